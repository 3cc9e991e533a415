/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* How call stacks of allocations are taken, as it is typed: in the environment, or later at the control socket. */

#include "size.h"

enum { GP_STACKS_DEPTH_MAX = 64, GP_STACKS_SAMPLE_MAX = 1000000 };

struct gp_config_stacks {
	unsigned depth;  /* frames, up to GP_STACKS_DEPTH_MAX; 0: off */
	unsigned sample; /* of small allocations every so manieth has its stack; at least 1 */
};

/* "16", "16,sample=100" or "off". 0, or -EINVAL. */
int gp_config_stacks_parse(const char *text, struct gp_config_stacks *ret, struct gp_text_error *error);

/* "16", and "sample=100": a part of it. Whether it is one; *ret keeps the rest. */
bool gp_config_stacks_depth(const char *text, struct gp_config_stacks *ret);
bool gp_config_stacks_sample(const char *text, struct gp_config_stacks *ret);
