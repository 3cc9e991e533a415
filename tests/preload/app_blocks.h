/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* For programs whose memory goes away and comes back: blocks of known content, and calls that fail. */

#include "app_driver.h"

/* Allocates the blocks, and fills the nth one, from 0, with the value 100 + n. The GPU may not have finished. */
void app_make_blocks(CUdeviceptr *blocks, const size_t *sizes, unsigned n);

/* Counts the words of these blocks that have another value. */
size_t app_count_wrong_blocks(const CUdeviceptr *blocks, const size_t *sizes, unsigned n);

/* Returns the bytes that the process holds on a device; 0 on a real driver. */
uint64_t app_device_bytes(int device);

/* Makes the nth call from now fail: "FUNCTION N ERROR". NULL: no call fails any more. Nothing on a real driver. */
void app_fault(const char *text);
