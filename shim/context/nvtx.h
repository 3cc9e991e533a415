/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Regions by the NVTX ranges that a program already has. Each copy of the NVTX headers in a process looks once for a
 * tool: it opens the file that NVTX_INJECTION64_PATH names and calls that file's InitializeInjectionNvtx2. gpupool-run
 * sets the variable to this library, unless the variable already names a profiler.
 *
 * The declarations below are copied from NVTX 3. Programs have them compiled in, so they cannot change.
 */

#include <stddef.h>
#include <stdint.h>

enum { NVTX_TABLE_CALLBACKS = 1 };
enum { NVTX_MODULE_CORE = 1, NVTX_MODULE_DOMAINS = 5 };
enum { NVTX_RANGE_PUSH_EX = 8, NVTX_RANGE_PUSH_A, NVTX_RANGE_PUSH_W, NVTX_RANGE_POP };
enum {
	NVTX_DOMAIN_RANGE_PUSH_EX = 4,
	NVTX_DOMAIN_RANGE_POP,
	NVTX_DOMAIN_REGISTER_STRING_A = 10,
	NVTX_DOMAIN_REGISTER_STRING_W,
	NVTX_DOMAIN_CREATE_A,
	NVTX_DOMAIN_CREATE_W,
};
enum { NVTX_MESSAGE_ASCII = 1, NVTX_MESSAGE_WIDE, NVTX_MESSAGE_REGISTERED };
enum { NVTX_NOT_TRACKED = -2 };

typedef void (*nvtx_function)(void);

struct nvtx_callbacks {
	size_t bytes; /* of this structure */
	int (*get_module)(int module, nvtx_function ***ret_functions, unsigned *ret_n);
};

typedef const void *nvtx_get_table(uint32_t table);

struct nvtx_attributes {
	uint16_t version, bytes;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type;
	const void *message;
};

/* The exported entry for NVTX. Returns 1 if gpupool follows the ranges of this copy of NVTX from now on, else 0. */
int InitializeInjectionNvtx2(nvtx_get_table *get_table);
