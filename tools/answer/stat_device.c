/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_device.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/ask/stat_reply.h"

enum { UUID_SHORT = 12 }; /* "GPU-1a2b3c4d" */

void stat_device_read(struct stat_device *device, const json_t *answer)
{
	const char *uuid = json_string_value(json_object_get(answer, "uuid"));

	device->index = stat_reply_u64_or_0(answer, "index");
	device->total_bytes = stat_reply_u64_or_0(answer, "device_total_bytes");
	stat_clean(device->uuid, sizeof(device->uuid), uuid ? uuid : "");
}

bool stat_device_is_same(const struct stat_device *device, const struct stat_device *other)
{
	return strcmp(device->uuid, other->uuid) == 0 &&
	       (*device->uuid || (device->index == other->index && device->total_bytes == other->total_bytes));
}

int stat_device_compare(const struct stat_device *device, const struct stat_device *other)
{
	if (device->index != other->index)
		return device->index < other->index ? -1 : 1;
	return strcmp(device->uuid, other->uuid);
}

void stat_device_name(char name[static STAT_DEVICE_NAME_MAX], const struct stat_device *device, bool has_namesake)
{
	size_t n = has_namesake ? stat_cut(device->uuid, UUID_SHORT) : 0;

	snprintf(name, STAT_DEVICE_NAME_MAX, "%" PRIu64 "%s%.*s", device->index, n ? " " : "", (int)n, device->uuid);
}
