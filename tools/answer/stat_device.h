/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Tells whether the devices in two answers are the same one. Processes may number devices differently, so devices are
 * distinguished by their UUIDs or, if these are unknown, by numbers and sizes.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { STAT_UUID_MAX = 64, STAT_DEVICE_NAME_MAX = 48 };

struct stat_device {
	char uuid[STAT_UUID_MAX];    /* clean; "": unknown */
	uint64_t index, total_bytes; /* 0: unknown */
};

/* Reads a member of the "devices" of an answer to "status". */
void stat_device_read(struct stat_device *device, const json_t *answer);

bool stat_device_is_same(const struct stat_device *device, const struct stat_device *other);

/* Compares the numbers and, for the same number, the UUIDs. Returns less than, equal to or more than 0. */
int stat_device_compare(const struct stat_device *device, const struct stat_device *other);

/* Writes "0" or, if another device is shown with that number, "0 GPU-1a2b3c4d". */
void stat_device_name(char name[static STAT_DEVICE_NAME_MAX], const struct stat_device *device, bool has_namesake);
