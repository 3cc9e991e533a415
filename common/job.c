/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "job.h"

#include <stddef.h>
#include <string.h>

const char *const gp_job_labels[] = {"job", "rank", "pod", "namespace", NULL};

static const struct {
	const char *label, *variable, *beside;
} variables[] = {
#define GP_JOB_VARIABLE(label, variable, beside) {label, variable, beside},
#include "job.def"
};

const char *gp_job_value(const char *label, gp_job_find_fn find, const void *environment)
{
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
		const char *value;

		if (strcmp(variables[i].label, label) ||
			(variables[i].beside && !find(environment, variables[i].beside)))
			continue;
		value = find(environment, variables[i].variable);
		if (value && *value)
			return value;
	}
	return NULL;
}
