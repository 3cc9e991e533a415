/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The value of GPUPOOL_LIMIT_GROUP: a limit that processes share.
 *
 *	GROUP := [NAME ":"] LIMITS	8GiB, train:8GiB, train:0=8GiB,1=50%
 *	NAME  := 1 to 47 of A-Z a-z 0-9 . _ -
 *
 * Without a name the group is that of the job or of the cgroup.
 */

#include "size.h"

enum { GP_GROUP_NAME_MAX = 48 }; /* bytes of a name, with the NUL */

struct gp_config_group {
	bool is_on;
	char name[GP_GROUP_NAME_MAX]; /* empty: the job, or the cgroup */
	struct gp_limit_list limit;   /* for each device, of all processes of the group together */
};

/* Reads a GROUP or "none". Returns 0 or -EINVAL. */
int gp_config_group_parse(const char *text, struct gp_config_group *ret, struct gp_text_error *error);
