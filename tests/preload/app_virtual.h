/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Declarations that the files of the program app_virtual share. */

#include "app_driver.h"
#include "tests/sim/abi.h"

#define BYTES (4 * MIB)
#define WORDS (4 * KIB) /* bytes that kernels write */

/* An array that is mapped as XLA does. */
struct array {
	CUdeviceptr ptr;
	CUmemGenericAllocationHandle handle;
	size_t bytes;
};

extern CUmemAllocationProp properties;
extern CUmemAccessDesc whole_access;

void make(struct array *a, size_t bytes);

/* Takes the memory away, without and with a wait for the GPU. */
void drop(const struct array *a);
void destroy(const struct array *a);

/* Scenarios of app_virtual_unwaited.c. */
void unwaited(void);
void unwaited_access(void);
void unwaited_beside_work(void);
void unwaited_by_driver(void);
void unwaited_by_thread(void);
void unwaited_ends(void);
void unwaited_goes_back(void);
void unwaited_later_work(void);
void unwaited_mapped_again(void);
void waits_for_more(void);
void waits_in_captures(void);
void waits_in_contexts(void);
void waits_of_runtime(void);
void waits_twice(void);
