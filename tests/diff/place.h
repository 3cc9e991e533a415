/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Helpers for programs that work in more than one context. A place is a context with its kernels. Kernels of all places
 * and the host can wait for a word of pinned memory and set it. A call that fails because of a hang ends the scenario
 * with the answer "hangs", and the process with status 0.
 */

#include "tests/preload/app.h"

struct place {
	CUdevice device;
	CUcontext ctx;
	CUfunction fill, spin, spin_fill, count_wrong, set_flag, wait_flag;
};

/* Initialises the driver. Returns the number of devices. */
int place_start(void);

/*
 * Open the primary context of a device, or create a new context on it, and make it current. They run each kernel once,
 * because a first launch may load the kernel, and so wait.
 */
void place_open(struct place *place, CUdevice device);
void place_create(struct place *place, CUdevice device);

void place_enter(const struct place *place);
CUstream place_stream(const struct place *place); /* a non-blocking one */

/*
 * If the result is an error, prints that the current step hangs, or the call and its result, and ends the process. On a
 * real driver a call may never return: place_watch ends the process as hanging some seconds after its last call.
 */
#define PLACE_MUST(call) place_must(call, #call)
void place_must(int result, const char *call);
void place_watch(void);
extern const char *place_what; /* the question that a hang answers: "outcome" by default */

/* The following functions leave the place current. */
void place_fill(const struct place *place, CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value);
void place_spin(const struct place *place, CUstream stream, uint64_t ns);
void place_spin_fill(
	const struct place *place, CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value, uint64_t ns);
void place_wait_flag(const struct place *place, CUstream stream, CUdeviceptr flag, uint32_t value);
void place_set_flag(const struct place *place, CUstream stream, CUdeviceptr flag, uint32_t value);

CUdeviceptr place_alloc(const struct place *place, size_t bytes);

/* Waits for all work of the place. Returns the number of words that differ from the value. */
size_t place_count_wrong(const struct place *place, CUdeviceptr ptr, size_t bytes, uint32_t value);
