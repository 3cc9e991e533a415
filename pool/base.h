/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Small helpers that every file of the allocator uses. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef GP_DEBUG
#include <assert.h>
#define gp_assert(x) assert(x)
#else
/* A preloaded library must never abort its program, so release builds check no internal invariants. */
#define gp_assert(x) ((void)sizeof(!(x)))
#endif

#define gp_likely(x)   __builtin_expect(!!(x), 1)
#define gp_unlikely(x) __builtin_expect(!!(x), 0)

#define gp_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define GP_KIB (UINT64_C(1) << 10)
#define GP_MIB (UINT64_C(1) << 20)
#define GP_GIB (UINT64_C(1) << 30)

/* Every block starts at a multiple of this: the driver's own alignment, which texture binding needs. */
#define GP_ALIGN UINT64_C(512)

/* Requests of at most this size are small. The driver, too, packs small blocks together, GP_ALIGN apart. */
#define GP_SMALL_MAX GP_MIB

/*
 * Padding that keeps data that all threads read constantly off the cache lines that some threads write. It spans two
 * lines, since processors fetch lines in pairs. It is padding instead of alignment, since such structures come from
 * calloc.
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
 * Returns zeroed memory aligned to `align`, or NULL if host memory is short. *ret_memory is the pointer for free().
 * aligned_alloc is not used: a program that replaces calloc and free may not replace aligned_alloc to match.
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
