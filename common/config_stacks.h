/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The settings of call stacks of allocations, as typed in the environment or later at the control socket. */

#include "size.h"

enum { GP_STACKS_DEPTH_MAX = 64, GP_STACKS_SAMPLE_MAX = 1000000 };

#define GP_STACKS_ON "16" /* the value that "on" stands for */

struct gp_config_stacks {
	unsigned depth;  /* frames, up to GP_STACKS_DEPTH_MAX; 0: off */
	unsigned sample; /* N, at least 1: every Nth small allocation has a stack */
};

/* Reads "16", "16,sample=100", "on" or "off". Returns 0 or -EINVAL. */
int gp_config_stacks_parse(const char *text, struct gp_config_stacks *ret, struct gp_text_error *error);

/* Read one part: "16", or "sample=100". Return true if the text is that part. The rest of *ret is kept. */
bool gp_config_stacks_depth(const char *text, struct gp_config_stacks *ret);
bool gp_config_stacks_sample(const char *text, struct gp_config_stacks *ret);
