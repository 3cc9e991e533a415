/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The requests that the broker understands, and its answers: those of "yield" and "wanted" of common/ctl.def. */

#include <stdbool.h>
#include <stdint.h>

#include "common/broker.h"

enum {
	STAT_YIELD_REQUEST_MAX = 128, /* bytes of a line, with its end */
	STAT_YIELD_UUID = 16,
};

struct stat_yield_request {
	bool is_wanted; /* the process waits */
	unsigned char uuid[STAT_YIELD_UUID];
	uint64_t bytes;
};

struct stat_yield_sums {
	uint64_t released_bytes, held_bytes;
};

/*
 * Parses a line without its end: "yield UUID BYTES" or "wanted UUID BYTES", with single spaces and nothing else. Cuts
 * it into words. Returns false if it is anything else.
 */
bool stat_yield_request_parse(char *line, struct stat_yield_request *ret);

/* Writes the line for processes, with its end. */
void stat_yield_request_format(char text[static STAT_YIELD_REQUEST_MAX], const struct stat_yield_request *request);

/* Write an answer, with its end. why: a text without characters that JSON escapes. */
void stat_yield_answer_format(
	char text[static GP_BROKER_ANSWER_MAX], const struct stat_yield_request *request, struct stat_yield_sums sums);
void stat_yield_error_format(char text[static GP_BROKER_ANSWER_MAX], const char *reason, const char *why);
