/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_rate.h"

#include <stdio.h>
#include <string.h>

#include "tools/ask/stat_reply.h"

enum type { GAUGE, COUNTER };

static const struct {
	const char *key;
	enum type type;
} members[] = {
#define STAT(name, metric, type, ...) {#name, type},
#include "pool/stats.def"
};

uint64_t stat_rate_elapsed_ns(const json_t *reply, const json_t *before)
{
	uint64_t now = stat_reply_u64_or_0(reply, "uptime_ns"), then = stat_reply_u64_or_0(before, "uptime_ns");

	return before && now > then ? now - then : 0;
}

/* Returns the growth of a counter per second. A counter that fell belongs to something else than before. */
static double growth(uint64_t now, uint64_t then, uint64_t elapsed_ns)
{
	return now < then || !elapsed_ns ? -1 : (double)(now - then) * 1e9 / (double)elapsed_ns;
}

static double sum(double a, double b)
{
	return a < 0 || b < 0 ? -1 : a + b;
}

/* Reads a member of an object, or its sum over an array of objects. */
static uint64_t read_member(const json_t *object, const char *key)
{
	return json_is_array(object) ? stat_reply_sum(object, key) : stat_reply_u64_or_0(object, key);
}

static double rate(const json_t *object, const json_t *before, const char *key, uint64_t elapsed_ns)
{
	return growth(read_member(object, key), read_member(before, key), elapsed_ns);
}

void stat_rates_of(struct stat_rates *rates, const json_t *object, const json_t *before, uint64_t elapsed_ns)
{
	double driver_ns, calls;

	*rates = (struct stat_rates){.allocs = -1, .misses = -1, .driver_calls = -1};
	if (!before || !elapsed_ns)
		return;
	rates->misses = rate(object, before, "misses", elapsed_ns);
	rates->allocs = sum(rate(object, before, "hits", elapsed_ns), rates->misses);
	calls = sum(
		rate(object, before, "driver_allocs", elapsed_ns), rate(object, before, "driver_frees", elapsed_ns));
	rates->driver_calls = sum(calls, rate(object, before, "moves", elapsed_ns));
	driver_ns = rate(object, before, "driver_ns", elapsed_ns);
	rates->driver_share = driver_ns > 0 ? driver_ns / 1e9 : 0;
}

void stat_rates_of_process(struct stat_rates *rates, const json_t *reply, const json_t *before)
{
	stat_rates_of(rates, json_object_get(reply, "devices"), json_object_get(before, "devices"),
		stat_rate_elapsed_ns(reply, before));
}

const json_t *stat_rate_device_before(const json_t *before, const json_t *device)
{
	const json_t *other;
	uint64_t index, other_index;
	size_t i;

	if (!stat_reply_u64(device, "index", &index))
		return NULL;
	json_array_foreach(json_object_get(before, "devices"), i, other)
		if (stat_reply_u64(other, "index", &other_index) && other_index == index)
			return other;
	return NULL;
}

double stat_rate_of_member(const char *key, const json_t *object, const json_t *before, uint64_t elapsed_ns)
{
	for (size_t i = 0; before && i < sizeof(members) / sizeof(*members); i++)
		if (members[i].type == COUNTER && strcmp(members[i].key, key) == 0)
			return rate(object, before, key, elapsed_ns);
	return -1;
}

void stat_rate_text(char text[static STAT_TEXT_MAX], double per_second)
{
	static const char prefixes[] = " kMGTPE";
	size_t i = 0;
	int digits;

	if (per_second <= 0) {
		strcpy(text, per_second < 0 ? "-" : "0");
		return;
	}
	for (; per_second >= 999.5 && prefixes[i + 1]; i++)
		per_second /= 1000;
	digits = per_second < 9.995 ? 2 : per_second < 99.95 ? 1 : 0;
	snprintf(text, STAT_TEXT_MAX, "%.*f%.*s", digits, per_second, i ? 1 : 0, prefixes + i);
}
