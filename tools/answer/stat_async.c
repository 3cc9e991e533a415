/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_async.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/ask/stat_reply.h"
#include "tools/text/stat_say.h"

enum { REASONS_MAX = 64 };

static const struct {
	const char *name, *words;
} reasons[] = {
#define GP_ASYNC_LEFT(id, name, words) {name, words},
#include "common/async_left.def"
};

static const json_t *left_of(const json_t *status)
{
	return json_object_get(json_object_get(status, "async"), "left");
}

static uint64_t served(const json_t *status)
{
	return stat_reply_sum(json_object_get(status, "devices"), "stream_allocs");
}

/* Returns the words for a reason. One of a later version of gpupool has only its name. */
static const char *words_of(char clean[static 64], const json_t *reason)
{
	const char *name = stat_reply_text(reason, "name");

	for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
		if (!strcmp(reasons[i].name, name))
			return reasons[i].words;
	stat_clean(clean, 64, name);
	return clean;
}

static void write_sum(char text[static STAT_ASYNC_MAX], const json_t *status)
{
	uint64_t n_served = served(status), n_left = stat_reply_sum(left_of(status), "count");

	if (n_served || n_left)
		snprintf(text, STAT_ASYNC_MAX,
			"cudaMallocAsync and the like: %" PRIu64 " allocation%s from the pool, %" PRIu64
			" left to the driver",
			n_served, stat_plural(n_served), n_left);
}

bool stat_async_fact(char text[static STAT_ASYNC_MAX], const json_t *status, size_t nth)
{
	const json_t *left = left_of(status), *reason;
	char clean[64];
	size_t i;

	*text = '\0';
	if (!nth) {
		write_sum(text, status);
		return *text != '\0';
	}
	json_array_foreach(left, i, reason) {
		uint64_t n = stat_reply_u64_or_0(reason, "count");

		if (i == REASONS_MAX)
			return false;
		if (!n || --nth)
			continue;
		snprintf(
			text, STAT_ASYNC_MAX, "%" PRIu64 " of them left to the driver: %s", n, words_of(clean, reason));
		return true;
	}
	return false;
}
