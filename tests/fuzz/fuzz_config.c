/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The parser of the environment, with hostile or mistaken settings. The input has the format of
 * /proc/PID/environ, a NUL after each entry. A small first byte of an entry stands for the name of
 * an option's variable and "=", so that the fuzzer does not have to guess the names.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "common/config.h"
#include "common/ctl_proto.h"

#define GROUP_NAME "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

enum { ENTRIES_MAX = 64 };

struct report_counts {
	unsigned n_refused, n_closed, n_unknown;
};

static void check_report(void *arg, const struct gp_config_report *report)
{
	struct report_counts *counts = arg;
	char line[GP_CONFIG_MESSAGE_SIZE], part[16];
	int length = gp_config_report_format(report, line, sizeof(line));

	FUZZ_CHECK(length > 0 && length < (int)sizeof(line), "a report has %d bytes", length);
	FUZZ_CHECK(strlen(line) == (size_t)length, "a report of %zu bytes returns length %d", strlen(line), length);
	FUZZ_CHECK(gp_config_report_format(report, part, sizeof(part)) == length,
		"the length of a report depends on the size of the buffer");
	FUZZ_CHECK(report->error.why && *report->error.why, "a report has no reason");
	FUZZ_CHECK(report->error.offset <= strlen(report->value), "a report points to character %zu of '%s'",
		report->error.offset, report->value);
	counts->n_refused += report->problem == GP_CONFIG_USES_DEFAULT;
	counts->n_closed += report->problem == GP_CONFIG_FAILS_CLOSED;
	counts->n_unknown += report->problem == GP_CONFIG_UNKNOWN_NAME;
}

static void ignore_report(void *arg, const struct gp_config_report *report)
{
}

/* Allocates each entry separately, so that a sanitiser sees reads past its end. */
static size_t make_environment(const uint8_t *data, size_t size, char **environment)
{
	size_t n = 0;

	while (size && n < ENTRIES_MAX) {
		size_t length = strnlen((const char *)data, size);
		const char *name = *data < GP_OPTION_COUNT ? gp_config_options[*data].variable : "";
		size_t skipped = *name && length ? 1 : 0, room = strlen(name) + length + 2;
		char *entry = malloc(room);

		fuzz_require(entry != NULL, "no memory");
		snprintf(entry, room, "%s%s%.*s", skipped ? name : "", skipped ? "=" : "", (int)(length - skipped),
			(const char *)data + skipped);
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

	FUZZ_CHECK(limit->kind <= GP_LIMIT_SHARE, "a limit has kind %d", (int)limit->kind);
	FUZZ_CHECK(limit->bytes <= INT64_MAX, "a limit has %ju bytes", (uintmax_t)limit->bytes);
	FUZZ_CHECK(limit->share_ppb <= 1000000000, "a limit has a share of %ju ppb", (uintmax_t)limit->share_ppb);
	for (size_t i = 0; limit->kind == GP_LIMIT_SHARE && i < sizeof(totals) / sizeof(*totals); i++)
		FUZZ_CHECK(gp_limit_bytes(limit, totals[i]) <= totals[i], "a share exceeds the whole memory");
}

static void check_values(const struct gp_config *config)
{
	char text[GP_SIZE_TEXT_MAX];
	struct gp_text_error error;
	uint64_t reparsed = 0;

	check_limit(&config->pinned_limit);
	for (int device = -1; device <= GP_LIMIT_DEVICES_MAX; device++) {
		check_limit(gp_limit_list_find(&config->limit, device));
		check_limit(gp_limit_list_find(&config->group.limit, device));
	}
	FUZZ_CHECK(strspn(config->group.name, GROUP_NAME) == strlen(config->group.name), "the group is '%s'",
		config->group.name);
	FUZZ_CHECK(config->reserve_bytes <= INT64_MAX, "the reserve is %s", config->text[GP_OPTION_RESERVE]);
	gp_size_format(config->reserve_bytes, text);
	FUZZ_CHECK(!gp_size_parse(text, &reparsed, &error) && reparsed == config->reserve_bytes, "%s is read as %ju",
		text, (uintmax_t)reparsed);
	FUZZ_CHECK(config->pending_count <= INT64_MAX || config->pending_count == UINT64_MAX, "the pending count is %s",
		config->text[GP_OPTION_PENDING_COUNT]);
	FUZZ_CHECK(config->pending_ratio >= 0 && config->pending_ratio <= 1, "the pending ratio is %g",
		config->pending_ratio);
	FUZZ_CHECK(config->oom_wait_ms <= UINT32_MAX || config->oom_wait_ms == GP_CONFIG_OOM_WAIT_AUTO,
		"the out-of-memory wait exceeds its maximum");
	FUZZ_CHECK(config->stacks.depth <= GP_STACKS_DEPTH_MAX, "the stack depth is %u", config->stacks.depth);
	FUZZ_CHECK(config->stacks.sample >= 1 && config->stacks.sample <= GP_STACKS_SAMPLE_MAX,
		"the stack sample is %u", config->stacks.sample);
	FUZZ_CHECK(!*config->report || !strncasecmp(config->report, "exit", 4), "the report is '%s'", config->report);
	FUZZ_CHECK(config->pool <= GP_CONFIG_POOL_AUTO, "the pool type is %d", (int)config->pool);
	FUZZ_CHECK(config->reuse <= GP_CONFIG_REUSE_COMPLETED, "the reuse mode is %d", (int)config->reuse);
	FUZZ_CHECK(config->log_level <= GP_LOG_DEBUG, "the log level is %d", (int)config->log_level);
	FUZZ_CHECK(*config->log_file, "the log file has no name");
	FUZZ_CHECK(!*config->runtime_dir || *config->runtime_dir == '/', "the runtime directory is relative");
}

/* A limit that cannot be parsed must become a limit of 0 bytes. */
static void check_closed(const struct gp_config *config)
{
	if (*config->limit_error)
		for (int device = -1; device <= GP_LIMIT_DEVICES_MAX; device++)
			FUZZ_CHECK(gp_limit_bytes(gp_limit_list_find(&config->limit, device), UINT64_MAX) == 0,
				"device %d is not limited to 0 bytes after: %s", device, config->limit_error);
	if (*config->group_error)
		for (int device = -1; device <= GP_LIMIT_DEVICES_MAX; device++)
			FUZZ_CHECK(
				config->group.is_on &&
					!gp_limit_bytes(gp_limit_list_find(&config->group.limit, device), UINT64_MAX),
				"the group is not limited to 0 bytes on device %d after: %s", device,
				config->group_error);
	if (*config->pinned_limit_error)
		FUZZ_CHECK(gp_limit_bytes(&config->pinned_limit, UINT64_MAX) == 0,
			"pinned memory is not limited to 0 bytes after: %s", config->pinned_limit_error);
}

/* The values that gpupool reports as effective must parse to the same configuration. */
static void check_effective(const struct gp_config *config)
{
	static struct gp_config reparsed;
	char *environment[GP_OPTION_COUNT + 1], value[GP_CONFIG_VALUE_SIZE];
	struct gp_text_error error;
	size_t n = 0;

	for (int i = 0; i < GP_OPTION_COUNT; i++) {
		size_t room = GP_CONFIG_VALUE_SIZE + 64;

		gp_config_value_text(config, (enum gp_option)i, value, sizeof(value));
		if (!*value)
			continue;
		FUZZ_CHECK(!gp_config_check((enum gp_option)i, value, &error),
			"%s=%s is effective, but cannot be parsed", gp_config_options[i].variable, value);
		environment[n] = malloc(room);
		fuzz_require(environment[n] != NULL, "no memory");
		snprintf(environment[n++], room, "%s=%s", gp_config_options[i].variable, value);
	}
	environment[n] = NULL;
	FUZZ_CHECK(!gp_config_parse(&reparsed, environment, ignore_report, NULL), "the effective values are refused");
	FUZZ_CHECK(!memcmp(reparsed.text, config->text, sizeof(reparsed.text)),
		"the texts of the effective values change when they are parsed");
	for (int device = -1; device <= GP_LIMIT_DEVICES_MAX; device++)
		FUZZ_CHECK(gp_limit_bytes(gp_limit_list_find(&reparsed.limit, device), UINT64_MAX) ==
				   gp_limit_bytes(gp_limit_list_find(&config->limit, device), UINT64_MAX),
			"the effective values give another limit for device %d", device);
	FUZZ_CHECK(reparsed.pool == config->pool && reparsed.reserve_bytes == config->reserve_bytes &&
			   reparsed.pending_count == config->pending_count &&
			   reparsed.pending_ratio == config->pending_ratio &&
			   reparsed.pinned_threads == config->pinned_threads &&
			   reparsed.oom_wait_ms == config->oom_wait_ms &&
			   !strcmp(reparsed.runtime_dir, config->runtime_dir),
		"the effective values give another configuration");
	while (n)
		free(environment[--n]);
}

/* The candidate directories of the control socket must be absolute and fit their buffers. */
static void check_socket_dirs(const struct gp_config *config)
{
	static const size_t sizes[] = {1, 2, 12, GP_CTL_PATH_MAX};
	struct gp_ctl_dirs dirs = {
		.runtime_dir = config->runtime_dir,
		.xdg_runtime_dir = gp_config_variable("XDG_RUNTIME_DIR"),
		.tmp_dir = gp_config_variable("TMPDIR"),
		.uid = 1000,
	};
	char path[GP_CTL_PATH_MAX];

	for (unsigned nth = 0; nth < 4; nth++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
			if (gp_ctl_dir(&dirs, nth, path, sizes[i]) == 0)
				FUZZ_CHECK(*path == '/' && strlen(path) < sizes[i], "socket directory '%s'", path);
}

/* Names of sockets and schemas come from other processes, too. */
static void check_names(const char *text)
{
	char formatted[GP_CTL_NAME_MAX], name[GP_CTL_SCHEMA_MAX];
	uint64_t start_ticks;
	unsigned major;
	pid_t pid;

	if (gp_ctl_name_parse(text, &pid, &start_ticks)) {
		gp_ctl_name_format(formatted, pid, start_ticks);
		FUZZ_CHECK(
			pid > 0 && !strcmp(text, formatted), "the socket name '%s' is parsed as '%s'", text, formatted);
	}
	if (gp_ctl_schema_parse(text, name, &major))
		FUZZ_CHECK(*name && strlen(name) < sizeof(name), "the schema '%s' is parsed as '%s'", text, name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct gp_config config;
	char *environment[ENTRIES_MAX + 1], **own = environ;
	size_t n = make_environment(data, size, environment);
	struct report_counts counts = {0};
	int r;

	environ = environment;
	r = gp_config_parse(&config, gp_config_environ(), check_report, &counts);
	FUZZ_CHECK(r == (counts.n_refused + counts.n_closed ? -EINVAL : 0), "gp_config_parse returns %d", r);
	FUZZ_CHECK((*config.limit_error != 0) + (*config.pinned_limit_error != 0) + (*config.group_error != 0) ==
			   (int)counts.n_closed,
		"%u limits were refused, but the configuration does not have as many errors", counts.n_closed);
	check_values(&config);
	check_closed(&config);
	if (!counts.n_closed)
		check_effective(&config);
	gp_config_check_devices(&config, 2, check_report, &counts);
	check_socket_dirs(&config);
	for (size_t i = 0; i < n; i++)
		check_names(environment[i]);
	environ = own;
	while (n)
		free(environment[--n]);
	return 0;
}
