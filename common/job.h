/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The job, rank, pod and namespace of a process, from its environment (job.def). */

/* The labels of job.def in their order, up to a NULL. */
extern const char *const gp_job_labels[];

/* Returns the value of a variable in an environment of any form, or NULL. */
typedef const char *(*gp_job_find_fn)(const void *environment, const char *name);

/* Returns the value of a label from the environment, which is never empty; NULL if no variable holds it. */
const char *gp_job_value(const char *label, gp_job_find_fn find, const void *environment);
