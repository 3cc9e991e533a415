/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The environment as somebody hostile, or clumsy, would set it. The input is one as /proc/PID/environ
 * shows it, a NUL behind each entry. A first byte below ' ' stands for a variable's name and its
 * "=", so that not all names have to be guessed.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "shim/config.h"
#include "shim/ctl_proto.h"

enum { ENTRIES_MAX = 64 };

struct told {
	unsigned n_refused, n_closed, n_unknown;
};

static void check_report(void *arg, const struct gp_config_report *report)
{
	struct told *told = arg;
	char line[GP_CONFIG_MESSAGE_SIZE], part[16];
	int length = gp_config_report_format(report, line, sizeof(line));

	FUZZ_CHECK(length > 0 && length < (int)sizeof(line), "a report of %d bytes", length);
	FUZZ_CHECK(strlen(line) == (size_t)length, "a report of %zu bytes says %d", strlen(line), length);
	FUZZ_CHECK(gp_config_report_format(report, part, sizeof(part)) == length, "another length");
	FUZZ_CHECK(report->error.why && *report->error.why, "no reason is given");
	FUZZ_CHECK(report->error.offset <= strlen(report->value), "character %zu of '%s'",
		report->error.offset, report->value);
	told->n_refused += report->problem == GP_CONFIG_USES_DEFAULT;
	told->n_closed += report->problem == GP_CONFIG_FAILS_CLOSED;
	told->n_unknown += report->problem == GP_CONFIG_UNKNOWN_NAME;
}

static void ignore_report(void *arg, const struct gp_config_report *report)
{
}

/* Each entry in memory of its own, so that nobody reads past one. */
static size_t make_environment(const uint8_t *data, size_t size, char **environment)
{
	size_t n = 0;

	while (size && n < ENTRIES_MAX) {
		size_t length = strnlen((const char *)data, size);
		const char *name = *data < GP_OPTION_COUNT ? gp_config_options[*data].variable : "";
		size_t skipped = *name && length ? 1 : 0, room = strlen(name) + length + 2;
		char *entry = malloc(room);

		fuzz_require(entry != NULL, "no memory");
		snprintf(entry, room, "%s%s%.*s", skipped ? name : "", skipped ? "=" : "",
			(int)(length - skipped), (const char *)data + skipped);
		environment[n++] = entry;
		length += length < size;
		data += length;
		size -= length;
	}
	environment[n] = NULL;
	return n;
}

static void check_limit(const struct gp_limit *limit)
{
	static const uint64_t totals[] = {0, 1, 80 * (UINT64_C(1) << 30), UINT64_MAX};

	FUZZ_CHECK(limit->kind <= GP_LIMIT_SHARE, "a limit of kind %d", (int)limit->kind);
	FUZZ_CHECK(limit->bytes <= INT64_MAX, "a limit of %ju bytes", (uintmax_t)limit->bytes);
	FUZZ_CHECK(limit->share_ppb <= 1000000000, "a share of %ju", (uintmax_t)limit->share_ppb);
	for (size_t i = 0; limit->kind == GP_LIMIT_SHARE && i < sizeof(totals) / sizeof(*totals); i++)
		FUZZ_CHECK(gp_limit_bytes(limit, totals[i]) <= totals[i], "more than all");
}

static void check_values(const struct gp_config *config)
{
	char text[GP_SIZE_TEXT_MAX];
	struct gp_text_error error;
	uint64_t again = 0;

	check_limit(&config->pinned_limit);
	for (int device = -1; device <= GP_LIMIT_DEVICES_MAX; device++)
		check_limit(gp_limit_list_find(&config->limit, device));
	FUZZ_CHECK(config->reserve_bytes <= INT64_MAX, "a reserve of %s", config->text[GP_OPTION_RESERVE]);
	gp_size_format(config->reserve_bytes, text);
	FUZZ_CHECK(!gp_size_parse(text, &again, &error) && again == config->reserve_bytes,
		"%s is read as %ju", text, (uintmax_t)again);
	FUZZ_CHECK(config->pending_count <= INT64_MAX || config->pending_count == UINT64_MAX,
		"a count of %s", config->text[GP_OPTION_PENDING_COUNT]);
	FUZZ_CHECK(config->pending_ratio >= 0 && config->pending_ratio <= 1, "a ratio of %g",
		config->pending_ratio);
	FUZZ_CHECK(config->oom_wait_ms <= UINT32_MAX, "a long wait");
	FUZZ_CHECK(config->stacks.depth <= GP_STACKS_DEPTH_MAX, "%u frames", config->stacks.depth);
	FUZZ_CHECK(config->stacks.sample >= 1 && config->stacks.sample <= GP_STACKS_SAMPLE_MAX, "one in %u",
		config->stacks.sample);
	FUZZ_CHECK(!*config->report || !strncasecmp(config->report, "exit", 4), "a report at '%s'", config->report);
	FUZZ_CHECK(config->pool <= GP_CONFIG_POOL_SPLIT, "pool %d", (int)config->pool);
	FUZZ_CHECK(config->reuse <= GP_CONFIG_REUSE_COMPLETED, "reuse %d", (int)config->reuse);
	FUZZ_CHECK(config->log_level <= GP_LOG_DEBUG, "log level %d", (int)config->log_level);
	FUZZ_CHECK(*config->log_file, "no log file");
	FUZZ_CHECK(!*config->runtime_dir || *config->runtime_dir == '/', "a relative directory");
}

/* A limit that could not be read is one of nothing. */
static void check_closed(const struct gp_config *config)
{
	if (*config->limit_error)
		for (int device = -1; device <= GP_LIMIT_DEVICES_MAX; device++)
			FUZZ_CHECK(gp_limit_bytes(gp_limit_list_find(&config->limit, device), UINT64_MAX) == 0,
				"device %d has no limit after: %s", device, config->limit_error);
	if (*config->pinned_limit_error)
		FUZZ_CHECK(gp_limit_bytes(&config->pinned_limit, UINT64_MAX) == 0,
			"no limit after: %s", config->pinned_limit_error);
}

/* What is said to be in force is read back as what is in force. */
static void check_again(const struct gp_config *config)
{
	static struct gp_config again;
	char *environment[GP_OPTION_COUNT + 1], value[GP_CONFIG_VALUE_SIZE];
	struct gp_text_error error;
	size_t n = 0;

	for (int i = 0; i < GP_OPTION_COUNT; i++) {
		size_t room = GP_CONFIG_VALUE_SIZE + 64;

		gp_config_value_text(config, (enum gp_option)i, value, sizeof(value));
		if (!*value)
			continue;
		FUZZ_CHECK(!gp_config_check((enum gp_option)i, value, &error),
			"%s=%s holds, but cannot be read", gp_config_options[i].variable, value);
		environment[n] = malloc(room);
		fuzz_require(environment[n] != NULL, "no memory");
		snprintf(environment[n++], room, "%s=%s", gp_config_options[i].variable, value);
	}
	environment[n] = NULL;
	FUZZ_CHECK(!gp_config_parse(&again, environment, ignore_report, NULL), "is refused again");
	FUZZ_CHECK(!memcmp(again.text, config->text, sizeof(again.text)), "other texts");
	for (int device = -1; device <= GP_LIMIT_DEVICES_MAX; device++)
		FUZZ_CHECK(gp_limit_bytes(gp_limit_list_find(&again.limit, device), UINT64_MAX) ==
				   gp_limit_bytes(gp_limit_list_find(&config->limit, device), UINT64_MAX),
			"another limit for device %d", device);
	FUZZ_CHECK(again.pool == config->pool && again.reserve_bytes == config->reserve_bytes &&
			   again.pending_count == config->pending_count &&
			   again.pending_ratio == config->pending_ratio &&
			   again.oom_wait_ms == config->oom_wait_ms &&
			   !strcmp(again.runtime_dir, config->runtime_dir),
		"other values");
	while (n)
		free(environment[--n]);
}

/* Where the socket would go. */
static void check_places(const struct gp_config *config)
{
	static const size_t sizes[] = {1, 2, 12, GP_CTL_PATH_MAX};
	struct gp_ctl_places places = {
		.runtime_dir = config->runtime_dir,
		.xdg_runtime_dir = gp_config_variable("XDG_RUNTIME_DIR"),
		.tmp_dir = gp_config_variable("TMPDIR"),
		.uid = 1000,
	};
	char path[GP_CTL_PATH_MAX];

	for (unsigned nth = 0; nth < 4; nth++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
			if (gp_ctl_place(&places, nth, path, sizes[i]) == 0)
				FUZZ_CHECK(*path == '/' && strlen(path) < sizes[i], "place '%s'", path);
}

/* Names of sockets and schemas come from outside, too. */
static void check_names(const char *text)
{
	char again[GP_CTL_NAME_MAX], name[GP_CTL_SCHEMA_MAX];
	uint64_t start_ticks;
	unsigned major;
	pid_t pid;

	if (gp_ctl_name_parse(text, &pid, &start_ticks)) {
		gp_ctl_name_format(again, pid, start_ticks);
		FUZZ_CHECK(pid > 0 && !strcmp(text, again), "'%s' is taken for '%s'", text, again);
	}
	if (gp_ctl_schema_parse(text, name, &major))
		FUZZ_CHECK(*name && strlen(name) < sizeof(name), "'%s' names '%s'", text, name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct gp_config config;
	char *environment[ENTRIES_MAX + 1], **own = environ;
	size_t n = make_environment(data, size, environment);
	struct told told = {0};
	int r;

	environ = environment;
	r = gp_config_parse(&config, gp_config_environ(), check_report, &told);
	FUZZ_CHECK(r == (told.n_refused + told.n_closed ? -EINVAL : 0), "returns %d", r);
	FUZZ_CHECK((*config.limit_error != 0) + (*config.pinned_limit_error != 0) == (int)told.n_closed,
		"%u limits failed, and that is not kept", told.n_closed);
	check_values(&config);
	check_closed(&config);
	if (!told.n_closed)
		check_again(&config);
	gp_config_check_devices(&config, 2, check_report, &told);
	check_places(&config);
	for (size_t i = 0; i < n; i++)
		check_names(environment[i]);
	environ = own;
	while (n)
		free(environment[--n]);
	return 0;
}
