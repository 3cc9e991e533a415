/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Small things that every file of the allocator uses. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef GP_DEBUG
#include <assert.h>
#define gp_assert(x) assert(x)
#else
/* A guest never aborts its host: what ships checks nothing that only our own mistakes could break. */
#define gp_assert(x) ((void)sizeof(!(x)))
#endif

#define gp_likely(x)   __builtin_expect(!!(x), 1)
#define gp_unlikely(x) __builtin_expect(!!(x), 0)

#define gp_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define GP_KIB (UINT64_C(1) << 10)
#define GP_MIB (UINT64_C(1) << 20)
#define GP_GIB (UINT64_C(1) << 30)

/* Every block starts at a multiple of this: what the driver itself gives, and what texture binding needs. */
#define GP_ALIGN UINT64_C(512)

/* A request of at most this many bytes is small. The driver, too, puts small blocks together, GP_ALIGN apart. */
#define GP_SMALL_MAX GP_MIB

/*
 * Room that keeps what all threads read all the time off the lines of what some of them write. Two lines, since
 * processors fetch them in pairs; and room instead of alignment, since such structures come from calloc.
 */
#define GP_LINES_APART 128

static inline uint64_t gp_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t gp_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Rounds up to a multiple of a power of two; saturates to the largest multiple instead of wrapping to 0. */
static inline uint64_t gp_round_up(uint64_t bytes, uint64_t multiple)
{
	if (bytes > UINT64_MAX - (multiple - 1))
		return UINT64_MAX & ~(multiple - 1);
	return (bytes + multiple - 1) & ~(multiple - 1);
}

/*
 * Zeroes that begin at such a multiple; *ret_memory is what free takes. A program that brings its own calloc and free
 * need not have an aligned_alloc that goes with them. NULL: host memory is short.
 */
static inline void *gp_calloc_aligned(size_t bytes, size_t align, void **ret_memory)
{
	char *memory = (char *)calloc(1, bytes + align);

	*ret_memory = memory;
	return memory ? memory + (align - (uintptr_t)memory % align) : NULL;
}

static inline unsigned gp_log2(uint64_t x)
{
	return 63 - (unsigned)__builtin_clzll(x | 1);
}
