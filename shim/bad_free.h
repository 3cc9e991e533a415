/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Frees that are none: said once each, and kept for who asks. */

#include "../pool/addrmap.h"
#include "stack_json.h"

enum gp_bad_free {
	GP_BAD_FREE_DOUBLE,   /* it is free already */
	GP_BAD_FREE_INTERIOR, /* inside a block */
};

/* The program frees that address of a map. No lock may be held. */
void gp_bad_free_report(struct gp_addrmap *map, uint64_t addr, enum gp_bad_free what);

/* The driver has refused to free that address. If it is known as one that was freed, so is this. */
void gp_bad_free_refused(uint64_t addr);

/* "bad_frees": the last ones. */
void gp_bad_free_write(struct gp_json *out, struct gp_stack_json *stacks);
