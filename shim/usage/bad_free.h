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

/* Reports a bad free of an address in that map. No lock may be held. */
void gp_bad_free_report(struct gp_addrmap *map, uint64_t addr, enum gp_bad_free what);

/* To be called when the driver refused to free an address. Reports a double free if a record shows an earlier free. */
void gp_bad_free_refused(uint64_t addr);

/* Writes the members "n_bad_frees", and "bad_frees", which has the last ones. */
void gp_bad_free_write(struct gp_json *out, struct gp_stack_json *stacks);
