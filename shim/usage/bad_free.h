/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Frees that the pool refuses: each is logged once, and the last ones are kept for `leaks`. */

#include "pool/addrmap.h"
#include "shim/trace/stack_json.h"

enum gp_bad_free {
	GP_BAD_FREE_DOUBLE,   /* the block is already free */
	GP_BAD_FREE_INTERIOR, /* the address is inside a block */
};

/* Reports a bad free of an address in that map. The caller may hold no lock. */
void gp_bad_free_report(struct gp_addrmap *map, uint64_t addr, enum gp_bad_free what);

/* The driver refused to free that address: reports a double free if the address is known as freed before. */
void gp_bad_free_refused(uint64_t addr);

/* Writes the number of bad frees, and "bad_frees": the last ones. */
void gp_bad_free_write(struct gp_json *out, struct gp_stack_json *stacks);
