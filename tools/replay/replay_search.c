/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A pool under a limit gives cached memory back before an allocation fails, so it needs less memory than its peak
 * without a limit, and makes more driver calls. A higher limit nearly always suffices if a lower one does. The result
 * is a limit that was replayed itself, whether or not that holds.
 */

#include "replay_search.h"

/* The search ends once the limit is known to this share of it, and to the driver's unit. */
#define PRECISION 128
#define UNIT      (2 * GP_MIB)

struct search {
	struct replay_file *file;
	const struct replay_contents *contents;
	struct replay_settings settings;
	struct replay_progress *progress;
	struct replay_found *found;
	bool needs_all; /* a limit fits only if the allocations that failed in the recorded process are served, too */
};

int replay_try_limit(struct replay_file *file, const struct replay_contents *contents,
	const struct replay_settings *settings, struct replay_progress *progress, struct replay_try *ret_try,
	char error[static REPLAY_ERROR_MAX])
{
	struct replay_result result;
	uint64_t n;

	if (replay_run(file, contents, settings, progress, NULL, &result, error))
		return -1;
	n = result.device.hits + result.device.misses;
	*ret_try = (struct replay_try){
		.limit_bytes = settings->limit_bytes,
		.peak_bytes = result.peak_total_bytes,
		.driver_calls = replay_driver_calls(&result),
		.host_waits = result.device.fence_waits,
		.hit_rate = n ? (double)result.device.hits / (double)n : 0,
		.n_rescued = result.n_rescued,
		.fits = !result.n_refused,
	};
	return 0;
}

/* Tries a limit, and keeps the result if it fits. */
static int try_limit(struct search *s, uint64_t limit_bytes, bool *ret_fits, char error[static REPLAY_ERROR_MAX])
{
	struct replay_try one;

	s->settings.limit_bytes = limit_bytes;
	s->settings.ends_at_refusal = true;
	s->found->n_replays++;
	if (replay_try_limit(s->file, s->contents, &s->settings, s->progress, &one, error))
		return -1;
	*ret_fits = one.fits && (!s->needs_all || one.n_rescued == s->contents->n_refused);
	if (!*ret_fits)
		return 0;
	s->found->smallest = one;
	s->found->fits = true;
	return 0;
}

/*
 * Finds a limit that fits: the peak as recorded, or somewhat more, or the peak that the pool has with the whole device.
 */
static int find_upper(struct search *s, char error[static REPLAY_ERROR_MAX])
{
	uint64_t peak = s->found->recorded.peak_device_bytes;
	uint64_t limits[] = {gp_round_up(peak, UNIT), gp_round_up(peak + peak / 8, UNIT), REPLAY_CAPACITY_MAX};
	bool fits = false;

	for (size_t i = 0; i < sizeof(limits) / sizeof(*limits) && !fits; i++)
		if (limits[i] && try_limit(s, limits[i], &fits, error))
			return -1;
	if (!fits || s->found->smallest.limit_bytes != REPLAY_CAPACITY_MAX)
		return 0;
	return try_limit(s, gp_round_up(s->found->smallest.peak_bytes, UNIT), &fits, error);
}

static int bisect(struct search *s, char error[static REPLAY_ERROR_MAX])
{
	const struct replay_result *recorded = &s->found->recorded;
	uint64_t least = s->contents->peak_live_bytes / gp_max(recorded->n_devices, 1u) / UNIT * UNIT;
	bool fits;

	while (s->found->n_replays < REPLAY_SEARCH_MAX) {
		uint64_t most = s->found->smallest.limit_bytes, middle;

		if (most <= least || most - least <= gp_max(UNIT, most / PRECISION))
			break;
		middle = gp_round_up(least + (most - least) / 2, UNIT);
		if (middle >= most)
			break;
		if (try_limit(s, middle, &fits, error))
			return -1;
		if (!fits)
			least = middle;
	}
	return 0;
}

int replay_search(struct replay_file *file, const struct replay_contents *contents,
	const struct replay_settings *settings, struct replay_progress *progress, struct replay_found *found,
	char error[static REPLAY_ERROR_MAX])
{
	struct search s = {file, contents, *settings, progress, found, contents->n_refused != 0};

	*found = (struct replay_found){.kind = settings->kind, .n_replays = 1};
	if (replay_run(file, contents, settings, progress, NULL, &found->recorded, error))
		return -1;
	if (find_upper(&s, error))
		return -1;
	found->serves_all = found->fits;
	s.needs_all = found->fits && s.needs_all;
	if (!found->fits && contents->n_refused && find_upper(&s, error))
		return -1;
	return found->fits ? bisect(&s, error) : 0;
}
