/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Helpers for programs on several devices, each with a context, its primary one, a stream and a kernel. */

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

enum { DEVICES_MAX = 8, WORDS = 1024 };

extern struct device {
	CUcontext ctx;
	CUstream stream;
	CUfunction fill;
} devices[DEVICES_MAX];

extern int n_devices;

/*
 * Start n devices, or two that can access each other. If the machine lacks them, they print that the scenario is
 * skipped and return false.
 */
bool devices_start(int n);
bool devices_start_peers(void);
void devices_start_one(int device); /* again, after the end of its context */
void devices_create(int device);    /* from now on the device's context is one that the program has created */

void devices_enter(int device);                   /* makes its context current */
void devices_enable_access(int device, int peer); /* lets the device access the peer's memory */

/* Launch a kernel on the device that writes WORDS words. devices_fill_and_wait also waits for it. */
CUresult devices_fill(int device, CUdeviceptr ptr, uint32_t value);
void devices_fill_and_wait(int device, CUdeviceptr ptr, uint32_t value);

/* Copies WORDS words to the host with the device, and counts those that differ from the value. */
unsigned devices_count_wrong(int device, CUdeviceptr ptr, uint32_t value);
