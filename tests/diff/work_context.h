/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Helpers for programs that work in more than one context. A work context is a CUDA context with its kernels. Kernels
 * of all contexts and the host can wait for a word of pinned memory and set it. A call that fails because of a hang
 * ends the scenario with the answer "hangs", and the process with status 0.
 */

#include "tests/preload/app.h"

struct work_context {
	CUdevice device;
	CUcontext ctx;
	CUfunction fill, spin, spin_fill, count_wrong, set_flag, wait_flag;
};

/* Initialises the driver. Returns the number of devices. */
int context_start(void);

/*
 * Open the primary context of a device, or create a new context on it, and make it current. They run each kernel once,
 * because a first launch may load the kernel, and so wait.
 */
void context_open(struct work_context *context, CUdevice device);
void context_create(struct work_context *context, CUdevice device);

void context_enter(const struct work_context *context);
CUstream context_stream(const struct work_context *context); /* a non-blocking one */

/*
 * If the result is an error, prints that the current step hangs, or the call and its result, and ends the process. On a
 * real driver a call may never return: context_watch ends the process as hanging some seconds after its last call.
 */
#define CONTEXT_MUST(call) context_must(call, #call)
void context_must(int result, const char *call);
void context_watch(void);
extern const char *context_question; /* the question that a hang answers: "outcome" by default */

/* The following functions leave the context current. */
void context_fill(const struct work_context *context, CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value);
void context_spin(const struct work_context *context, CUstream stream, uint64_t ns);
void context_spin_fill(const struct work_context *context, CUstream stream, CUdeviceptr ptr, size_t bytes,
	uint32_t value, uint64_t ns);
void context_wait_flag(const struct work_context *context, CUstream stream, CUdeviceptr flag, uint32_t value);
void context_set_flag(const struct work_context *context, CUstream stream, CUdeviceptr flag, uint32_t value);

CUdeviceptr context_alloc(const struct work_context *context, size_t bytes);

/* Waits for all work of the context. Returns the number of words that differ from the value. */
size_t context_count_wrong(const struct work_context *context, CUdeviceptr ptr, size_t bytes, uint32_t value);
