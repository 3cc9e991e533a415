/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The job, rank, pod and namespace of a process, as its environment tells them (job.def). */

/* The labels of job.def in their order, up to a NULL. */
extern const char *const gp_job_labels[];

/* The value of a variable in an environment of any form, or NULL. */
typedef const char *(*gp_job_find_fn)(const void *environment, const char *name);

/* The value of a label as it stands in the environment, not empty; NULL if no variable tells it. */
const char *gp_job_value(const char *label, gp_job_find_fn find, const void *environment);
