/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * GPUPOOL_LIMIT_GROUP: the process's part in a limit that it shares with other processes (base/group_page.h). The
 * process joins at its first allocation on a device with such a limit. If it cannot join, its allocations fail, since
 * the user relies on the limit.
 */

#include "device.h"
#include "shim/base/group_page.h"
#include "shim/base/json.h"

/* To be called once the settings have been read. */
void gp_groups_start(void);

/* Puts a new device under the limit of the group, if it has one. Makes no system call. */
void gp_group_attach(struct gp_device *device);

/* The group of a device, for messages and answers. */
struct gp_group_report {
	bool is_on;
	char kind[8], name[GP_GROUP_NAME_MAX]; /* "name", "job" or "cgroup" */
	const char *problem;                   /* why the process cannot join, or NULL */
	struct gp_group_view view;             /* if it has joined; else only the limit is set */
};

/* device: NULL gives an empty report. No lock may be held. */
void gp_group_report(const struct gp_device *device, struct gp_group_report *ret);

/* Returns the limit that the process has for its group on a device, or GP_NO_LIMIT. Makes no system call. */
uint64_t gp_group_limit(const struct gp_device *device);

/* True if that process is in the group. */
bool gp_group_is_shared_with(pid_t pid, uint64_t start_ticks);

/* Writes the member "group": an object, or null. */
void gp_group_json(struct gp_json *out, const struct gp_group_report *report);
