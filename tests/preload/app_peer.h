/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Scenarios of two processes: the program starts itself again, before it knows of a driver. The second one exports
 * and says nothing; the first one imports, and prints what both found. APP_PEER_PRELOAD says what the second one gets
 * as LD_PRELOAD, if not the same.
 */

#include "app_driver.h"

#define LAZY 1 /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */

/* In either process: the half of the scenario that is its own. */
void app_pair(const char *scenario, void (*exporter)(void), void (*importer)(void));

#define APP_PAIR(name, exporter, importer)                                                                             \
	static void name(void)                                                                                         \
	{                                                                                                              \
		app_pair(#name, exporter, importer);                                                                   \
	}

/* From one to the other, which waits for it. */
void app_put(const void *data, size_t bytes);
void app_take(void *data, size_t bytes);
void app_put_number(uint64_t number);
uint64_t app_take_number(void);
void app_go(void);    /* the other may go on */
void app_await(void); /* until the other says so */

/*
 * Handles of blocks, and what they open as. The words of a block, of which those at its ends are looked at, are waited
 * for: the other process cannot.
 */
void app_put_handle(CUdeviceptr ptr);
CUipcMemHandle app_take_handle(void);
CUipcMemHandle app_handle_of(CUdeviceptr ptr);
CUdeviceptr app_open(CUipcMemHandle handle);
int app_try_open(CUipcMemHandle handle); /* the result; closes it again */
void app_fill_now(CUdeviceptr ptr, size_t bytes, uint32_t value);
int app_wrong(CUdeviceptr ptr, size_t bytes, uint32_t value); /* words that are not the value */
int app_is_readable(CUdeviceptr ptr);
uint64_t app_id_of(CUdeviceptr ptr);

void app_peer_wait(void); /* for the exporter's end, and prints it */
