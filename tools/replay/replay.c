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
	_Static_assert(GP_N_KINDS == 5, "the message names them");
	stat_error(next_help, "--pool: '%s' is not none, simple, binned, split or vmm.", text);
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

struct each {
	struct replay_contents contents;
	struct replay_settings settings;
	bool is_each; /* every pool type, not only that of the settings */
};

static int run_one(void *arg, size_t nth, struct replay_file *file, struct replay_progress *progress, void *ret_result,
	char error[static REPLAY_ERROR_MAX])
{
	const struct each *each = arg;
	struct replay_settings settings = each->settings;

	if (each->is_each)
		settings.kind = (enum gp_kind)nth;
	return replay_run(file, &each->contents, &settings, progress, NULL, ret_result, error);
}

struct find {
	const struct each *each;
	const struct replay_result *earlier;
};

static int find_fragments(void *arg, size_t nth, struct replay_file *file, struct replay_progress *progress,
	void *ret_result, char error[static REPLAY_ERROR_MAX])
{
	const struct find *find = arg;

	(void)nth;
	return replay_fragments_find(file, &find->each->contents, find->earlier, progress, ret_result, error);
}

/*
 * Finds the call sites that fragment the memory of a pool type, by another replay. *ret_is_found is false if the
 * file has no stacks, or no peak of device memory. Returns 0, or -1 with the reason in error.
 */
static int find_causes(struct replay_causes *causes, bool *ret_is_found, const char *path, struct replay_file *file,
	const struct each *each, const struct replay_result *earlier, char error[static REPLAY_ERROR_MAX])
{
	struct find find = {each, earlier};
	struct replay_jobs jobs = {path, &each->contents, find_fragments, &find, 1, sizeof(causes->fragments),
		&causes->fragments, each->contents.n_events};

	*ret_is_found = replay_has_stacks(file) && earlier->peak_position;
	if (!*ret_is_found)
		return 0;
	causes->kind = earlier->settings.kind;
	return replay_jobs_run(&jobs, error);
}

static void show(const struct stat_options *options, struct replay_file *file, const struct each *each,
	const struct replay_result *results, size_t n, struct replay_causes *causes)
{
	if (causes)
		replay_fragments_name(&causes->sites, &causes->fragments, file, &each->contents, options->is_json);
	if (options->is_json)
		replay_show_json(&each->contents, results, n, causes);
	else
		replay_show(&each->contents, results, n, causes);
	if (causes)
		replay_fragments_free_names(&causes->sites);
}

/* Replays the file with each pool type, or only with that of the settings, and prints the results. */
static enum stat_exit run(
	const char *path, struct replay_file *file, const struct stat_options *options, struct each *each)
{
	struct replay_result results[GP_N_KINDS];
	struct replay_causes causes;
	bool has_causes;
	size_t n = each->is_each ? GP_N_KINDS : 1;
	struct replay_jobs jobs = {
		path, &each->contents, run_one, each, n, sizeof(*results), results, n * each->contents.n_events};
	char error[REPLAY_ERROR_MAX];

	if (!each->contents.n_allocs)
		return fail(options->file, "there is no allocation in it");
	if (replay_jobs_run(&jobs, error) || find_causes(&causes, &has_causes, path, file, each,
						     &results[each->is_each ? each->contents.kind : 0], error))
		return fail(options->file, error);
	show(options, file, each, results, n, has_causes ? &causes : NULL);
	return replay_survey_end(options->file, &each->contents);
}

enum stat_exit replay_command(const struct stat_command *command, const struct stat_options *options)
{
	struct each each = {.settings = {.limit_bytes = GP_NO_LIMIT}, .is_each = !options->pool};
	char error[REPLAY_ERROR_MAX];
	struct replay_file *file;
	enum stat_exit status;
	const char *path;

	if (options->pool && !choose_kind(options->pool, &each.settings.kind))
		return STAT_USAGE;
	if (options->limit && !choose_limit(options->limit, &each.settings.limit_bytes))
		return STAT_USAGE;
	if (options->reuse && !choose_reuse(options->reuse, &each.settings.reuse))
		return STAT_USAGE;
	path = stat_spool(options->file);
	if (!path)
		return STAT_FAILED;
	file = replay_open(path, error);
	if (!file)
		return fail(options->file, error);
	status = replay_survey(file, &each.contents, error) ? fail(options->file, error)
							    : run(path, file, options, &each);
	replay_close(file);
	return status;
}
