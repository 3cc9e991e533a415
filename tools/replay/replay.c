/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "replay.h"

#include <string.h>

#include "common/size.h"
#include "tools/text/stat_spool.h"
#include "replay_run.h"
#include "replay_show.h"

static const char next_help[] = "gpupool-stat replay --help";

static bool choose_kind(const char *text, enum gp_kind *ret_kind)
{
	for (enum gp_kind kind = 0; kind < GP_N_KINDS; kind++) {
		if (strcmp(text, gp_kind_name(kind)) != 0)
			continue;
		*ret_kind = kind;
		return true;
	}
	stat_error(next_help, "--pool: there is no pool type '%s'.", text);
	return false;
}

static bool choose_reuse(const char *text, enum replay_reuse *ret_reuse)
{
	for (enum replay_reuse reuse = REPLAY_REUSE_AUTO; reuse <= REPLAY_REUSE_COMPLETED; reuse++) {
		if (strcmp(text, replay_reuse_name(reuse)) != 0)
			continue;
		*ret_reuse = reuse;
		return true;
	}
	stat_error(next_help, "--reuse: '%s' is not auto, ordered or completed.", text);
	return false;
}

static bool choose_limit(const char *text, uint64_t *ret_bytes)
{
	struct gp_text_error why;

	if (gp_size_parse(text, ret_bytes, &why) == 0 && *ret_bytes)
		return true;
	stat_error("for example: --limit=8GiB", "--limit: '%s' is not a size.", text);
	return false;
}

static enum stat_exit fail(const char *path, const char *error)
{
	stat_error(NULL, "%s: %s.", path, error);
	return STAT_FAILED;
}

/* Replays the file with each pool type, or only with that of the settings, and prints the results. */
static enum stat_exit run(struct replay_file *file, const struct stat_options *options, bool is_each,
	const struct replay_settings *settings)
{
	struct replay_settings one = *settings;
	struct replay_result results[GP_N_KINDS];
	struct replay_contents contents;
	char error[REPLAY_ERROR_MAX];
	size_t n = 0;

	if (replay_survey(file, &contents, error))
		return fail(options->file, error);
	if (!contents.n_allocs)
		return fail(options->file, "there is no allocation in it");
	for (enum gp_kind kind = 0; kind < GP_N_KINDS; kind++) {
		if (!is_each && kind != settings->kind)
			continue;
		one.kind = kind;
		if (replay_run(file, &contents, &one, &results[n++], error))
			return fail(options->file, error);
	}
	if (options->is_json)
		replay_show_json(&contents, results, n);
	else
		replay_show(&contents, results, n);
	return replay_survey_end(options->file, &contents);
}

enum stat_exit replay_command(const struct stat_command *command, const struct stat_options *options)
{
	struct replay_settings settings = {.limit_bytes = GP_NO_LIMIT};
	char error[REPLAY_ERROR_MAX];
	struct replay_file *file;
	enum stat_exit result;
	const char *path;

	if (options->pool && !choose_kind(options->pool, &settings.kind))
		return STAT_USAGE;
	if (options->limit && !choose_limit(options->limit, &settings.limit_bytes))
		return STAT_USAGE;
	if (options->reuse && !choose_reuse(options->reuse, &settings.reuse))
		return STAT_USAGE;
	path = stat_spool(options->file);
	if (!path)
		return STAT_FAILED;
	file = replay_open(path, error);
	if (!file)
		return fail(options->file, error);
	result = run(file, options, !options->pool, &settings);
	replay_close(file);
	return result;
}
