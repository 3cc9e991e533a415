/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Shared by the tests of the simulated GPU: a device with a context, streams of every kind, and kernels. */

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/apps/cuda_min.h"
#include "tests/apps/kernels.h"
#include "tests/sim/abi.h"
#include "tests/sim/simgpu.h"

#define MS  1000000ull
#define MIB ((size_t)1 << 20)

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

#define ok(expr)          ck_assert_int_eq(expr, CUDA_SUCCESS)
#define fails(expr, code) ck_assert_int_eq(expr, code)

struct test_kernels {
	CUmodule module;
	CUfunction fill, spin, spin_fill, count_wrong, set_flag, wait_flag;
};

/* Initialises the driver, makes the first device's primary context current and loads the kernels. */
extern CUcontext test_ctx;
extern struct test_kernels test_kernels;
void test_start(void);
void test_start_with(const char *option, const char *value);
void test_load_kernels(struct test_kernels *kernels); /* into the current context */

CUdeviceptr test_alloc(size_t bytes);
CUstream test_stream(unsigned flags);
CUevent test_event(void);

CUresult test_fill(CUstream stream, CUdeviceptr ptr, uint64_t words, uint32_t value);
CUresult test_spin(CUstream stream, uint64_t ns);
CUresult test_spin_fill(CUstream stream, CUdeviceptr ptr, uint64_t words, uint32_t value, uint64_t ns);
CUresult test_count_wrong(CUstream stream, CUdeviceptr ptr, uint64_t words, uint32_t expected, CUdeviceptr result);
CUresult test_set_flag(CUstream stream, CUdeviceptr ptr, uint32_t value);
CUresult test_wait_flag(CUstream stream, CUdeviceptr ptr, uint32_t value);

/* Returns the first word at ptr, after all work. */
uint32_t test_word(CUdeviceptr ptr);

/* Runs the cases of a file and ends the program. */
int test_run(const char *name, TCase *(*const *cases)(void), size_t n);
