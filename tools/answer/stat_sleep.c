/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_sleep.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/ask/stat_reply.h"
#include "tools/text/stat_say.h"

/* The most that a process says that it keeps. */
enum { STAYS_MAX = 16 };

static const json_t *sleep_of(const json_t *status)
{
	return json_object_get(status, "sleep");
}

static const char *state_of(const json_t *status)
{
	const char *state = json_string_value(json_object_get(sleep_of(status), "state"));

	return state ? state : "awake";
}

static const char *setting_of(const json_t *status)
{
	const char *setting = json_string_value(json_object_get(sleep_of(status), "setting"));

	return setting && strcmp(setting, "off") != 0 ? setting : NULL;
}

static bool is_deep(const json_t *status)
{
	return json_is_true(json_object_get(sleep_of(status), "deep"));
}

bool stat_sleep_is_of_interest(const json_t *status)
{
	/* An answer that was made of a counter page has the bytes alone. */
	return strcmp(state_of(status), "awake") != 0 || setting_of(status) ||
	       stat_reply_sum(json_object_get(status, "devices"), "asleep_bytes");
}

void stat_sleep_cell(char text[static STAT_COLUMN_MAX], const json_t *status)
{
	char bytes[STAT_TEXT_MAX], age[STAT_TEXT_MAX];

	if (strcmp(state_of(status), "asleep") == 0) {
		stat_bytes(bytes, stat_reply_u64_or_0(sleep_of(status), "asleep_bytes"));
		stat_age(age, stat_reply_u64_or_0(sleep_of(status), "asleep_ns"));
		snprintf(text, STAT_COLUMN_MAX, "%.14s %.14s%s", bytes, age, is_deep(status) ? " deep" : "");
	} else if (strcmp(state_of(status), "awake") == 0) {
		strcpy(text, "-");
	} else {
		stat_clean(text, STAT_COLUMN_MAX, state_of(status));
	}
}

void stat_sleep_sentence(char text[static STAT_SLEEP_MAX], const json_t *status)
{
	const json_t *sleep = sleep_of(status);
	char bytes[STAT_TEXT_MAX], host[STAT_TEXT_MAX], empty[STAT_TEXT_MAX], age[STAT_TEXT_MAX];

	text[0] = '\0';
	if (strcmp(state_of(status), "awake") == 0)
		return;
	stat_bytes(bytes, stat_reply_u64_or_0(sleep, "asleep_bytes"));
	stat_bytes(host, stat_reply_u64_or_0(sleep, "host_bytes"));
	stat_bytes(empty, stat_reply_u64_or_0(sleep, "empty_bytes"));
	stat_age(age, stat_reply_u64_or_0(sleep, "asleep_ns"));
	if (strcmp(state_of(status), "asleep") == 0)
		snprintf(text, STAT_SLEEP_MAX,
			"asleep for %s: %s of the total are given to the driver; their contents take %s of host "
			"memory, "
			"and %s had none to keep",
			age, bytes, host, empty);
	else
		stat_clean(text, STAT_SLEEP_MAX, state_of(status));
}

static void write_stay(char text[static STAT_SLEEP_MAX], const json_t *stay)
{
	char bytes[STAT_TEXT_MAX] = "", line[STAT_SLEEP_MAX];
	uint64_t n;

	if (stat_reply_u64(stay, "bytes", &n)) {
		stat_bytes(bytes, n);
		strcat(bytes, " ");
	}
	snprintf(line, sizeof(line), "stays: %s%.32s (%.150s)", bytes, stat_reply_text(stay, "what"),
		stat_reply_text(stay, "why"));
	stat_clean(text, STAT_SLEEP_MAX, line);
}

static void write_setting(char text[static STAT_SLEEP_MAX], const json_t *status)
{
	const json_t *sleep = sleep_of(status);
	char age[STAT_TEXT_MAX], line[STAT_SLEEP_MAX];

	stat_age(age, stat_reply_u64_or_0(sleep, "idle_ns"));
	snprintf(line, sizeof(line),
		"GPUPOOL_SLEEP=%.32s: idle for %s; slept %" PRIu64 " times by itself, and %" PRIu64
		" times for other processes",
		setting_of(status), age, stat_reply_u64_or_0(sleep, "idle_sleeps"),
		stat_reply_u64_or_0(sleep, "asked_sleeps"));
	stat_clean(text, STAT_SLEEP_MAX, line);
}

bool stat_sleep_deep_bytes(const json_t *status, uint64_t *ret_bytes)
{
	const json_t *devices = json_object_get(status, "devices"), *device;
	uint64_t bytes;
	size_t i;

	json_array_foreach(devices, i, device) {
		if (!stat_reply_u64(device, "deep_bytes", &bytes))
			return false;
	}
	*ret_bytes = stat_reply_sum(devices, "deep_bytes");
	return true;
}

static void write_deep(char text[static STAT_SLEEP_MAX], const json_t *status)
{
	char age[STAT_TEXT_MAX], text_of[STAT_TEXT_MAX] = "the rest";
	uint64_t bytes;

	stat_age(age, stat_reply_u64_or_0(sleep_of(status), "deep_ns"));
	if (stat_sleep_deep_bytes(status, &bytes))
		stat_bytes(text_of, bytes);
	snprintf(text, STAT_SLEEP_MAX,
		"deep asleep for %s: CUDA calls wait for gpupool-stat wake; the driver took out %s", age, text_of);
}

bool stat_sleep_fact(char text[static STAT_SLEEP_MAX], const json_t *status, size_t nth)
{
	const json_t *stays = json_object_get(sleep_of(status), "stays");
	size_t n_stays = json_array_size(stays) < STAYS_MAX ? json_array_size(stays) : STAYS_MAX;
	const char *refusal = json_string_value(json_object_get(sleep_of(status), "refusal"));
	char line[STAT_SLEEP_MAX];

	if (is_deep(status) && nth-- == 0) {
		write_deep(text, status);
		return true;
	}
	if (nth < n_stays) {
		write_stay(text, json_array_get(stays, nth));
		return true;
	}
	nth -= n_stays;
	if (setting_of(status) && nth-- == 0) {
		write_setting(text, status);
		return true;
	}
	if (!refusal || nth)
		return false;
	snprintf(line, sizeof(line), "the last attempt to sleep failed: %.200s", refusal);
	stat_clean(text, STAT_SLEEP_MAX, line);
	return true;
}
