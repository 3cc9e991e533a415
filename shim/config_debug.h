/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What is done to find writes that hit memory of nobody, or of others, as it is typed (debug.h says how). */

#include "size.h"

enum { GP_DEBUG_DEPTH = 16 }; /* of stacks, if nobody says otherwise */

struct gp_config_debug {
	bool poison; /* freed blocks are filled, and checked before anybody has them again */
	bool guard;  /* around blocks are zones that nobody may write to */
	bool full;   /* all bytes of large blocks are checked, not samples */
};

static inline bool gp_config_debug_is_on(const struct gp_config_debug *debug)
{
	return debug->poison || debug->guard;
}

/* "poison,guard", "poison", "poison,full", ... or "off". 0, or -EINVAL. */
int gp_config_debug_parse(const char *text, struct gp_config_debug *ret, struct gp_text_error *error);
