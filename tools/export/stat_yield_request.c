/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_yield_request.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/uuid.h"

enum { WORDS = 3 };

static bool parse_uuid(const char *text, unsigned char uuid[static STAT_YIELD_UUID])
{
	static const char digits[] = "0123456789abcdef";

	if (strlen(text) != 2 * STAT_YIELD_UUID || strspn(text, digits) != 2 * STAT_YIELD_UUID)
		return false;
	for (int i = 0; i < STAT_YIELD_UUID; i++)
		uuid[i] = (unsigned char)((strchr(digits, text[2 * i]) - digits) << 4 |
					  (strchr(digits, text[2 * i + 1]) - digits));
	return true;
}

bool stat_yield_request_parse(char *line, struct stat_yield_request *ret)
{
	char *words[WORDS];
	const char *end;

	for (int i = 0; i < WORDS; i++) {
		words[i] = line;
		line = strchr(line, ' ');
		if ((line != NULL) != (i < WORDS - 1))
			return false;
		if (line)
			*line++ = '\0';
	}
	ret->is_wanted = strcmp(words[0], "wanted") == 0;
	if ((!ret->is_wanted && strcmp(words[0], "yield") != 0) || !parse_uuid(words[1], ret->uuid))
		return false;
	end = gp_ctl_parse_digits(words[2], &ret->bytes);
	return end && !*end && (words[2][0] != '0' || words[2][1] == '\0');
}

void stat_yield_request_format(char text[static STAT_YIELD_REQUEST_MAX], const struct stat_yield_request *request)
{
	char uuid[GP_UUID_TEXT_MAX];

	snprintf(text, STAT_YIELD_REQUEST_MAX, "%s %s %" PRIu64 "\n", request->is_wanted ? "wanted" : "yield",
		gp_uuid_format(uuid, request->uuid, GP_UUID_SENT), request->bytes);
}

void stat_yield_answer_format(
	char text[static GP_BROKER_ANSWER_MAX], const struct stat_yield_request *request, struct stat_yield_sums sums)
{
	if (request->is_wanted)
		snprintf(text, GP_BROKER_ANSWER_MAX,
			"{\"schema\":\"gpupool.wanted/1\",\"released_bytes\":%" PRIu64 ",\"held_bytes\":%" PRIu64 "}\n",
			sums.released_bytes, sums.held_bytes);
	else
		snprintf(text, GP_BROKER_ANSWER_MAX,
			"{\"schema\":\"gpupool.yield/1\",\"released_bytes\":%" PRIu64 "}\n", sums.released_bytes);
}

void stat_yield_error_format(char text[static GP_BROKER_ANSWER_MAX], const char *reason, const char *why)
{
	snprintf(text, GP_BROKER_ANSWER_MAX, "{\"schema\":\"gpupool.error/1\",\"reason\":\"%s\",\"error\":\"%s\"}\n",
		reason, why);
}
