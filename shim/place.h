/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Lines of interpreted programs, which have no address. In a stack each is a number with the highest bit set, which no
 * address has. Memory for them comes from the kernel, is bounded, and is never given back.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GP_PLACE_BIT ((uintptr_t)1 << (sizeof(uintptr_t) * 8 - 1))

enum { GP_PLACES_MAX = 1 << 16, GP_PLACE_TEXT_MAX = 256 };

/* 0 or -ENOMEM. May be called again. */
int gp_place_init(void);

/* What makes a function that one: addresses, of which the first may be another function's later. */
struct gp_function {
	uintptr_t identity[5];
};

/* The number of a function, or 0 if it is new; and of a new one with these names. 0: there is no room. */
uint32_t gp_function_find(const struct gp_function *function);
uint32_t gp_function_add(const struct gp_function *function, const char *file, const char *name);

/* The same of a place in it, which the interpreter knows by that number. Places have GP_PLACE_BIT. */
uintptr_t gp_place_find(uint32_t function, uint32_t at);
uintptr_t gp_place_add(uint32_t function, uint32_t at, unsigned line);

struct gp_place_info {
	const char *file, *name; /* stay */
	unsigned line;		 /* 0: unknown */
};

void gp_place_info(uintptr_t place, struct gp_place_info *ret);

/* The number without the bit, from 1 to gp_places_count(). */
static inline uint32_t gp_place_number(uintptr_t place)
{
	return (uint32_t)(place & ~GP_PLACE_BIT);
}

static inline bool gp_place_is(uintptr_t frame)
{
	return (frame & GP_PLACE_BIT) != 0;
}

uint32_t gp_places_count(void);
