/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Scenarios of two processes. The program starts itself again before it looks for a driver. The second process
 * exports and prints nothing. The first one imports, and prints what both have found. APP_PEER_PRELOAD is LD_PRELOAD
 * for the second process, if it needs another one.
 */

#include "app_driver.h"

#define LAZY 1 /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */

/* Runs this process's half of the scenario. */
void app_pair(const char *scenario, void (*exporter)(void), void (*importer)(void));

#define APP_PAIR(name, exporter, importer)           \
	static void name(void)                       \
	{                                            \
		app_pair(#name, exporter, importer); \
	}

/* Sends data to the other process, or waits for data from it. */
void app_put(const void *data, size_t bytes);
void app_take(void *data, size_t bytes);
void app_put_number(uint64_t number);
uint64_t app_take_number(void);
void app_go(void);    /* lets the other process go on */
void app_await(void); /* waits for the other process's app_go */

/*
 * Handles of blocks, and the blocks that they open as. Only the words at both ends of a block are written and
 * compared. These calls wait for the GPU, since the other process cannot.
 */
void app_put_handle(CUdeviceptr ptr);
CUipcMemHandle app_take_handle(void);
CUipcMemHandle app_handle_of(CUdeviceptr ptr);
CUdeviceptr app_open(CUipcMemHandle handle);
int app_try_open(CUipcMemHandle handle); /* returns the result, and closes the block again */
void app_fill_now(CUdeviceptr ptr, size_t bytes, uint32_t value);
int app_wrong(CUdeviceptr ptr, size_t bytes, uint32_t value); /* counts the words that are not the value */
int app_is_readable(CUdeviceptr ptr);
uint64_t app_id_of(CUdeviceptr ptr);

void app_peer_wait(void); /* waits for the second process's end and prints its status */
