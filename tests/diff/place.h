/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * For programs that work in more than one context: a place is a context with its kernels, and a word of pinned memory
 * that kernels of all places and the host can wait for and set. A call that fails since something hangs ends the
 * scenario: there was nothing wrong with the program, and that is what it says.
 */

#include "tests/preload/app.h"

struct place {
	CUdevice device;
	CUcontext ctx;
	CUfunction fill, spin, spin_fill, count_wrong, set_flag, wait_flag;
};

/* The driver and its devices; how many there are. */
int place_start(void);

/*
 * The primary context of a device, or a context of its own, which is current afterwards. Each kernel has run once in
 * it, since a first launch may load, and so wait.
 */
void place_open(struct place *place, CUdevice device);
void place_create(struct place *place, CUdevice device);

void place_enter(const struct place *place);
CUstream place_stream(const struct place *place); /* a non-blocking one */

/*
 * Says that what is going on hangs, or what failed, and ends the process, if the result is an error. A real driver may
 * not even come back with one: place_watch says it after a while, counted from its last call.
 */
#define PLACE_MUST(call) place_must(call, #call)
void place_must(int result, const char *call);
void place_watch(void);
extern const char *place_what; /* is going on: "outcome" */

/* All leave the place current. */
void place_fill(const struct place *place, CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value);
void place_spin(const struct place *place, CUstream stream, uint64_t ns);
void place_spin_fill(const struct place *place, CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value,
	uint64_t ns);
void place_wait_flag(const struct place *place, CUstream stream, CUdeviceptr flag, uint32_t value);
void place_set_flag(const struct place *place, CUstream stream, CUdeviceptr flag, uint32_t value);

CUdeviceptr place_alloc(const struct place *place, size_t bytes);

/* Words that are not the value, when all work of the place is done. */
size_t place_count_wrong(const struct place *place, CUdeviceptr ptr, size_t bytes, uint32_t value);
