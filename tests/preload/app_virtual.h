/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Declarations that the files of the program app_virtual share. */

#include "app_driver.h"
#include "tests/sim/abi.h"

#define BYTES (4 * MIB)
#define WORDS (4 * KIB) /* bytes that kernels write */

/* An array is memory that the program maps itself, as XLA does. */
struct array {
	CUdeviceptr ptr;
	CUmemGenericAllocationHandle handle;
	size_t bytes;
};

extern CUmemAllocationProp array_properties;
extern CUmemAccessDesc array_access;
extern int array_n_peers;         /* devices that get access */
extern bool array_reserves_first; /* addresses before memory */

/* Returns what the first call that failed returned; then nothing is left. */
CUresult array_try(struct array *a, size_t bytes);
void array_make(struct array *a, size_t bytes);

/* Takes the memory away without waiting for work, or after that. */
void array_drop(const struct array *a);
void array_destroy(const struct array *a);

/* Scenarios of app_virtual_back.c. */
void nearly_full(void);
void over_limit(void);
void beside_compressible(void);
void given_by_other(void);
void two_at_once(void);
void unmapped_asleep(void);
