/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_spill.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/ask/stat_reply.h"
#include "tools/text/stat_say.h"

static const json_t *spill_of(const json_t *status)
{
	return json_object_get(status, "spill");
}

static uint64_t number(const json_t *status, const char *member)
{
	return stat_reply_u64_or_0(spill_of(status), member);
}

bool stat_spill_is_of_interest(const json_t *status)
{
	return stat_spill_bytes(status) || number(status, "out_bytes") || number(status, "refusals");
}

uint64_t stat_spill_bytes(const json_t *status)
{
	uint64_t bytes = number(status, "host_bytes");

	/* An answer that was made of a counter page has the members of devices alone. */
	return bytes ? bytes : stat_reply_sum(json_object_get(status, "devices"), "spilled_bytes");
}

/* Writes the time for copying all that is in the host once. Returns false if nothing was copied. */
static bool write_time(char text[static STAT_TEXT_MAX], const json_t *status)
{
	uint64_t copied = number(status, "copied_bytes"), ns = number(status, "copied_ns");
	double time_ns = copied ? (double)stat_spill_bytes(status) / (double)copied * (double)ns : 0;

	/* A hostile answer may have any numbers. */
	if (time_ns < 1 || time_ns > 1e18)
		return false;
	stat_duration(text, (uint64_t)time_ns);
	return true;
}

void stat_spill_cell(char text[static STAT_COLUMN_MAX], const json_t *status)
{
	char bytes[STAT_TEXT_MAX], time[STAT_TEXT_MAX];

	strcpy(text, "-");
	if (!stat_spill_bytes(status))
		return;
	stat_bytes(bytes, stat_spill_bytes(status));
	if (write_time(time, status))
		snprintf(text, STAT_COLUMN_MAX, "%.16s %.16s", bytes, time);
	else
		snprintf(text, STAT_COLUMN_MAX, "%.16s", bytes);
}

static bool write_now(char text[static STAT_SPILL_MAX], const json_t *status)
{
	char bytes[STAT_TEXT_MAX], age[STAT_TEXT_MAX], time[STAT_TEXT_MAX];

	if (!stat_spill_bytes(status))
		return false;
	stat_bytes(bytes, stat_spill_bytes(status));
	stat_age(age, number(status, "spilled_ns"));
	if (write_time(time, status))
		snprintf(text, STAT_SPILL_MAX,
			"for %s, %s have been in host memory (GPUPOOL_SPILL): work that uses all of it once takes at "
			"least %s more",
			age, bytes, time);
	else
		snprintf(text, STAT_SPILL_MAX,
			"for %s, %s have been in host memory (GPUPOOL_SPILL), where work is slower", age, bytes);
	return true;
}

static bool write_moves(char text[static STAT_SPILL_MAX], const json_t *status)
{
	char out[STAT_TEXT_MAX], back[STAT_TEXT_MAX], time[STAT_TEXT_MAX];

	if (!number(status, "out_bytes"))
		return false;
	stat_bytes(out, number(status, "out_bytes"));
	stat_bytes(back, number(status, "back_bytes"));
	stat_duration(time, number(status, "held_ns"));
	snprintf(text, STAT_SPILL_MAX, "moved to host memory %s, and back %s; work waited %s for it", out, back, time);
	return true;
}

static bool write_reason(char text[static STAT_SPILL_MAX], const json_t *status, const char *member, const char *words)
{
	const char *why = json_string_value(json_object_get(spill_of(status), member));
	char clean[STAT_SPILL_MAX - 160];

	if (!why)
		return false;
	stat_clean(clean, sizeof(clean), why);
	snprintf(text, STAT_SPILL_MAX, "%s: %s", words, clean);
	return true;
}

static bool write_stay(char text[static STAT_SPILL_MAX], const json_t *status)
{
	return stat_spill_bytes(status) &&
	       write_reason(text, status, "stays", "the last time, memory did not come back from the host");
}

static bool write_refusals(char text[static STAT_SPILL_MAX], const json_t *status)
{
	uint64_t n = number(status, "refusals");
	char words[128];

	if (!n)
		return false;
	snprintf(words, sizeof(words), "%" PRIu64 " time%s no memory could be moved to the host", n, stat_plural(n));
	if (!write_reason(text, status, "refusal", words))
		snprintf(text, STAT_SPILL_MAX, "%s", words);
	return true;
}

static bool write_no_effect(char text[static STAT_SPILL_MAX], const json_t *status)
{
	return write_reason(text, status, "no_effect", "GPUPOOL_SPILL has no effect");
}

bool stat_spill_fact(char text[static STAT_SPILL_MAX], const json_t *status, size_t nth)
{
	static bool (*const facts[])(char text[static STAT_SPILL_MAX], const json_t *status) = {
		write_no_effect, write_now, write_moves, write_stay, write_refusals};

	for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++)
		if (facts[i](text, status) && !nth--)
			return true;
	*text = '\0';
	return false;
}
