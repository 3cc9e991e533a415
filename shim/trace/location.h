/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Code locations: lines of interpreted programs, which have no address. In a stack a code location is a number with the
 * highest bit set, which no address has. The memory of code locations comes from the kernel, is bounded, and is never
 * given back.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GP_LOCATION_BIT ((uintptr_t)1 << (sizeof(uintptr_t) * 8 - 1))

enum { GP_LOCATIONS_MAX = 1 << 16, GP_LOCATION_TEXT_MAX = 256 };

/* Reserves the tables. Returns 0 or -ENOMEM. May be called again. */
int gp_location_init(void);

/* Identifies a function by several words. Its address, the first of them, may be reused for another function later. */
struct gp_function {
	uintptr_t identity[5];
};

/* Return the number of a function. gp_function_find returns 0 if it is unknown, gp_function_add if there is no room. */
uint32_t gp_function_find(const struct gp_function *function);
uint32_t gp_function_add(const struct gp_function *function, const char *file, const char *name);

/*
 * Return the code location of an instruction, with GP_LOCATION_BIT set; 0 if it is unknown, or if there is no room. at:
 * the number of the instruction in its function.
 */
uintptr_t gp_location_find(uint32_t function, uint32_t at);
uintptr_t gp_location_add(uint32_t function, uint32_t at, unsigned line);

struct gp_location_info {
	const char *file, *name; /* valid for the life of the process */
	unsigned line;           /* 0: unknown */
};

void gp_location_info(uintptr_t location, struct gp_location_info *ret);

/* Returns the number without the bit, from 1 to gp_locations_count(). */
static inline uint32_t gp_location_number(uintptr_t location)
{
	return (uint32_t)(location & ~GP_LOCATION_BIT);
}

static inline bool gp_location_is(uintptr_t frame)
{
	return (frame & GP_LOCATION_BIT) != 0;
}

uint32_t gp_locations_count(void);
