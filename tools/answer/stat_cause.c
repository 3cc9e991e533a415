/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_cause.h"

#include <stdbool.h>
#include <string.h>

#include "tools/ask/stat_reply.h"

/* pinned: the text for pinned host memory; NULL if it is the same. */
static const struct {
	const char *name, *text, *pinned;
} causes[] = {
	{"beyond-device", "the request is larger than the device", "the request is larger than the machine's memory"},
	{"beyond-limit", "the request is larger than the limit"},
	{"fragmented", "fragmentation: enough memory is unused, but it is not contiguous"},
	{"limited", "the limit is reached"},
	{"full", "the device is full", "no pinned memory is left"},
	{"others", "the device is full; other processes, or CUDA itself, use most of it"},
	{"refused", "the driver refused the request although enough memory is free"},
	{"pending", "the GPU may still be using memory that the program has freed"},
	{"rounded", "rounding: the pool rounds sizes up by more than is missing"},
};

const char *stat_cause_text(const json_t *oom)
{
	const char *name = stat_reply_text(oom, "cause");
	bool is_pinned = strcmp(stat_reply_text(oom, "kind"), "pinned") == 0;

	for (size_t i = 0; i < sizeof(causes) / sizeof(*causes); i++)
		if (strcmp(causes[i].name, name) == 0)
			return is_pinned && causes[i].pinned ? causes[i].pinned : causes[i].text;
	return "unknown";
}
