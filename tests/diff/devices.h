/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Several devices, each with its primary context, a stream and a kernel. */

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

enum { DEVICES_MAX = 8, WORDS = 1024 };

extern struct device {
	CUcontext ctx;
	CUstream stream;
	CUfunction fill;
} devices[DEVICES_MAX];

extern int n_devices;

/* Starts so many; false, and a line that says so, where there are fewer, or where the first two cannot be peers. */
bool devices_start(int n);
bool devices_start_peers(void);
void devices_start_one(int device); /* once more, after its end */

void devices_enter(int device);
void devices_let(int device, int peer); /* access to what the peer has */

/* Has a kernel of the device write WORDS words; the second waits for it. */
CUresult devices_fill(int device, CUdeviceptr ptr, uint32_t value);
void devices_filled(int device, CUdeviceptr ptr, uint32_t value);

/* Reads them with the device. */
unsigned devices_count_wrong(int device, CUdeviceptr ptr, uint32_t value);
