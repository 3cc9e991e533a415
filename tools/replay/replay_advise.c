/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Three rounds of replays, each in parallel:
 *
 * 1. Each pool type as recorded, and the smallest limit under which it serves the recording.
 * 2. The best pool type under a range of limits above the smallest.
 * 3. The recorded pool type up to its peak, for the blocks that fragment its memory.
 *
 * The recommended limit leaves some room: the next run of the program is not the same. It is also one under which the
 * pool makes few more driver calls than without a limit, unless every limit costs more.
 */

#include "replay_advise.h"

#include "tools/text/stat_spool.h"

/* Percent of the smallest limit that fits. */
static const unsigned ranges[REPLAY_LIMITS] = {100, 102, 105, 112, 125};

/* The first limit that may be recommended, and the driver calls that it may take, over those without a limit. */
enum { FIRST_ROOMY = 1, CALLS_FACTOR = 2, CALLS_MORE = 64 };

struct advise {
	const char *path;
	struct replay_contents contents;
	struct replay_advice advice;
};

static int search(void *arg, size_t nth, struct replay_file *file, struct replay_progress *progress, void *ret_result,
	char error[static REPLAY_ERROR_MAX])
{
	const struct advise *a = arg;
	struct replay_settings settings = {.kind = (enum gp_kind)nth, .limit_bytes = GP_NO_LIMIT};

	return replay_search(file, &a->contents, &settings, progress, ret_result, error);
}

static int try_range(void *arg, size_t nth, struct replay_file *file, struct replay_progress *progress,
	void *ret_result, char error[static REPLAY_ERROR_MAX])
{
	const struct advise *a = arg;
	const struct replay_found *found = &a->advice.kinds[a->advice.conclusion.after.kind];
	uint64_t limit = found->smallest.limit_bytes / 100 * ranges[nth];
	struct replay_settings settings = {.kind = found->kind};
	struct replay_try *one = ret_result;

	settings.limit_bytes = nth ? gp_round_up(limit, GP_MIB) : found->smallest.limit_bytes;
	if (replay_try_limit(file, &a->contents, &settings, progress, one, error))
		return -1;
	one->fits = one->fits && (!found->serves_all || one->n_rescued == a->contents.n_refused);
	return 0;
}

static int find_fragments(void *arg, size_t nth, struct replay_file *file, struct replay_progress *progress,
	void *ret_result, char error[static REPLAY_ERROR_MAX])
{
	const struct advise *a = arg;

	return replay_fragments_find(
		file, &a->contents, &a->advice.kinds[a->contents.kind].recorded, progress, ret_result, error);
}

static int run_jobs(struct advise *a, replay_job_fn fn, size_t n, uint64_t n_replays, void *results,
	size_t result_bytes, char error[static REPLAY_ERROR_MAX])
{
	struct replay_jobs jobs = {
		a->path, &a->contents, fn, a, n, result_bytes, results, n_replays * a->contents.n_events};

	return replay_jobs_run(&jobs, error);
}

static struct replay_option option_of(const struct replay_found *found, const struct replay_try *with)
{
	struct replay_option option = replay_option_of(&found->recorded);

	if (!with)
		return option;
	option.fits = with->fits;
	option.limit_bytes = with->limit_bytes;
	option.peak_bytes = with->peak_bytes;
	option.driver_calls = with->driver_calls;
	return option;
}

static void conclude_kinds(struct advise *a)
{
	struct replay_option options[GP_N_KINDS];

	for (size_t i = 0; i < GP_N_KINDS; i++) {
		const struct replay_found *found = &a->advice.kinds[i];

		options[i] = option_of(found, found->fits ? &found->smallest : NULL);
		options[i].fits = found->fits;
	}
	replay_conclude(&a->advice.conclusion, &a->contents, options, GP_N_KINDS);
	a->advice.conclusion.before = option_of(&a->advice.kinds[a->contents.kind], NULL);
	a->advice.conclusion.has_before = true;
}

/* Chooses the limit that is recommended. */
static void conclude_limit(struct advise *a)
{
	struct replay_conclusion *c = &a->advice.conclusion;
	const struct replay_found *found = &a->advice.kinds[c->after.kind];
	uint64_t calls_max = CALLS_FACTOR * replay_driver_calls(&found->recorded) + CALLS_MORE;
	const struct replay_try *chosen = NULL;

	for (size_t i = FIRST_ROOMY; i < a->advice.n_limits; i++) {
		const struct replay_try *one = &a->advice.limits[i];

		if (one->fits &&
			(!chosen || (chosen->driver_calls > calls_max && one->driver_calls < chosen->driver_calls)))
			chosen = one;
	}
	c->after = option_of(found, chosen ? chosen : &found->smallest);
}

/* Returns 0, or -1 with the reason in error. */
static int advise(struct advise *a, char error[static REPLAY_ERROR_MAX])
{
	struct replay_advice *advice = &a->advice;

	if (run_jobs(a, search, GP_N_KINDS, GP_N_KINDS * REPLAY_SEARCH_MAX / 2, advice->kinds, sizeof(*advice->kinds),
		    error))
		return -1;
	conclude_kinds(a);
	if (advice->conclusion.has_after) {
		advice->n_limits = REPLAY_LIMITS;
		if (run_jobs(
			    a, try_range, REPLAY_LIMITS, REPLAY_LIMITS, advice->limits, sizeof(*advice->limits), error))
			return -1;
		conclude_limit(a);
	}
	advice->has_fragments = advice->kinds[a->contents.kind].recorded.peak_position != 0;
	return advice->has_fragments
		       ? run_jobs(a, find_fragments, 1, 1, &advice->fragments, sizeof(advice->fragments), error)
		       : 0;
}

static const char next_record[] = "gpupool-run --record=FILE COMMAND makes a recording.";

static enum stat_exit fail(const char *next, const char *name, const char *error)
{
	stat_error(next, "%s: %s.", name, error);
	return STAT_FAILED;
}

static enum stat_exit advise_on(struct advise *a, struct replay_file *file, const struct stat_options *options)
{
	char error[REPLAY_ERROR_MAX];

	if (replay_survey(file, &a->contents, error))
		return fail(NULL, options->file, error);
	if (!a->contents.n_allocs)
		return fail(next_record, options->file, "there is no allocation in it");
	if (!a->contents.peak_live_bytes)
		return fail(NULL, options->file, "it has pinned memory only, for which there is nothing to advise");
	if (advise(a, error))
		return fail(NULL, options->file, error);
	replay_fragments_name(&a->advice.sites, &a->advice.fragments, file, &a->contents, options->is_json);
	if (options->is_json)
		replay_advise_show_json(&a->contents, &a->advice);
	else
		replay_advise_show(&a->contents, &a->advice);
	replay_fragments_free_names(&a->advice.sites);
	return replay_survey_end(options->file, &a->contents);
}

enum stat_exit replay_advise_file(const struct stat_options *options)
{
	struct advise a = {.path = stat_spool(options->file)};
	char error[REPLAY_ERROR_MAX];
	struct replay_file *file;
	enum stat_exit status;

	if (!a.path)
		return STAT_FAILED;
	file = replay_open(a.path, error);
	if (!file)
		return fail(next_record, options->file, error);
	status = advise_on(&a, file, options);
	replay_close(file);
	return status;
}
