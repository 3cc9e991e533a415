/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_parse.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "tools/answer/stat_group.h"
#include "tools/text/stat_number.h"
#include "tools/text/stat_say.h"

/* Parses seconds, which may have a fraction, within these bounds. Returns milliseconds. */
static bool parse_seconds(const char *text, double least, double most, uint64_t *ret_ms)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds >= least && seconds <= most))
		return false;
	*ret_ms = (uint64_t)(seconds * 1000 + 0.5);
	return true;
}

bool stat_parse_timeout(struct stat_options *options, const char *text)
{
	uint64_t ms;

	if (!parse_seconds(text, 0.001, 86400, &ms)) {
		stat_error("as in: --timeout=0.5", "--timeout: '%s' is not a number of seconds from 0.001 to 86400.",
			text);
		return false;
	}
	options->timeout_ms = (int)ms;
	return true;
}

bool stat_parse_max(struct stat_options *options, const char *text)
{
	if (stat_number_parse(text, UINT64_MAX - 1, &options->max_blocks))
		return true;
	stat_error("as in: -n 20", "-n: '%s' is not a number of blocks.", text);
	return false;
}

bool stat_parse_device(struct stat_options *options, const char *text)
{
	uint64_t number;

	options->device = text;
	if (strlen(text) <= 4 && stat_number_parse(text, INT_MAX, &number))
		return true;
	stat_error("as in: --device=0", "--device: '%s' is not the number of a device.", text);
	return false;
}

bool stat_parse_by(struct stat_options *options, const char *text)
{
	enum stat_by unused;

	options->by = text;
	if (stat_by_parse(text, &unused))
		return true;
	stat_error("use site, library, size or age.", "--by: blocks cannot be grouped by '%s'.", text);
	return false;
}

bool stat_parse_min(struct stat_options *options, const char *text)
{
	struct gp_text_error error;

	if (gp_size_parse(text, &options->min_bytes, &error) == 0)
		return true;
	stat_error(error.next ? error.next : "as in: --min=1MiB", "--min: '%s' %s.", text, error.why);
	return false;
}

bool stat_parse_older(struct stat_options *options, const char *text)
{
	if (parse_seconds(text, 0, 1e9, &options->older_ms))
		return true;
	stat_error("as in: --older=60", "--older: '%s' is not a number of seconds.", text);
	return false;
}

bool stat_parse_watch(struct stat_options *options, const char *text)
{
	uint64_t ms;

	if (!parse_seconds(text, 0.01, 86400, &ms)) {
		stat_error("as in: --watch=5", "--watch: '%s' is not a number of seconds from 0.01 to 86400.", text);
		return false;
	}
	options->watch_ms = (int)ms;
	return true;
}

bool stat_parse_count(struct stat_options *options, const char *text)
{
	if (stat_number_parse(text, INT64_MAX, &options->count) && options->count)
		return true;
	stat_error("as in: --count=10", "--count: '%s' is not a number of answers, from 1.", text);
	return false;
}
