/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The value of GPUPOOL_DEBUG: checks that find writes to free memory and past the end of blocks (debug.h). */

#include "size.h"

enum { GP_DEBUG_DEPTH = 16 }; /* of stacks, unless GPUPOOL_STACKS sets another */

struct gp_config_debug {
	bool poison; /* freed blocks are filled, and checked before they are used again */
	bool guard;  /* zones around blocks are filled, and must not be written to */
	bool full;   /* all bytes of large blocks are checked, not samples */
};

static inline bool gp_config_debug_is_on(const struct gp_config_debug *debug)
{
	return debug->poison || debug->guard;
}

/* Reads "poison,guard", "poison", "poison,full", ... or "off". Returns 0 or -EINVAL. */
int gp_config_debug_parse(const char *text, struct gp_config_debug *ret, struct gp_text_error *error);
