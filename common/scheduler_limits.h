/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The limits of device memory that schedulers of GPUs put into the environment (scheduler_limits.def). gpupool holds
 * them unless GPUPOOL_LIMIT is set. If there are several, each device has the smallest.
 */

#include "size.h"

#define GP_SCHEDULER_NAMES_MAX 256  /* bytes of a list of variables, with its NUL */
#define GP_SCHEDULER_TEXT_MAX  1024 /* bytes of the limits as LIMITS, with the NUL */
#define GP_SCHEDULER_NAME_MAX  48   /* bytes of the longest variable, with its NUL */

struct gp_scheduler_limits {
	struct gp_limit_list limit;
	char text[GP_SCHEDULER_TEXT_MAX];       /* the limit as gp_limit_list_parse() takes it */
	char variables[GP_SCHEDULER_NAMES_MAX]; /* that it was read from, separated by spaces; "": none */

	/* The value that could not be read, after -EINVAL. */
	char bad_variable[GP_SCHEDULER_NAME_MAX];
	const char *bad_value; /* in the environment */
	struct gp_text_error error;
};

/* Reads the variables. Returns 0, also if there are none, or -EINVAL if a value cannot be read. */
int gp_scheduler_limits_read(char *const *environment, struct gp_scheduler_limits *ret);
