/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Writes formats made of lines: folded stacks for flame graphs, and the log that RMM's replay benchmark reads. */

#include <inttypes.h>
#include <time.h>

#include "tools/answer/stat_sites.h"
#include "tools/replay/replay_history.h"
#include "convert_formats.h"

#define NS_PER_SECOND UINT64_C(1000000000)

/* ';' separates frames, so it becomes ':' in a name. Blanks may stay: readers cut the line at its last one. */
static void put_frame(FILE *out, const char *frame)
{
	for (; *frame; frame++)
		fputc(*frame == ';' ? ':' : *frame, out);
}

enum stat_exit convert_folded(FILE *out, const struct stat_source *source, uint64_t n_max)
{
	struct stat_sites sites;

	stat_sites_make(&sites, source->leaks, source->pid, source->uid);
	for (size_t i = 0; i < sites.n; i++) {
		const struct stat_site *site = &sites.list[i];

		for (size_t frame = site->n_frames; frame--;) {
			put_frame(out, site->frames[frame]);
			fputc(frame ? ';' : ' ', out);
		}
		fprintf(out, "%" PRIu64 "\n", site->bytes);
	}
	stat_sites_free(&sites);
	return STAT_OK;
}

struct rmm {
	FILE *out;
	uint64_t n_left;
};

static void put_time(FILE *out, uint64_t start_s, uint64_t ns)
{
	time_t second = (time_t)((start_s + ns / NS_PER_SECOND) & INT64_MAX);
	struct tm tm = {0};

	gmtime_r(&second, &tm);
	fprintf(out, "%02d:%02d:%02d.%06d", tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(ns % NS_PER_SECOND / 1000));
}

/* Leaves out pinned memory: RMM has a log for each memory resource, and this is the log of the device's. */
static void put_rmm(void *arg, const struct history *h, const struct history_event *event)
{
	struct rmm *rmm = arg;
	bool is_new = event->kind == HISTORY_BLOCK_NEW, is_freed = event->kind == HISTORY_BLOCK_FREED;

	if ((!is_new && !is_freed && event->kind != HISTORY_REFUSED) || event->memory == HISTORY_PINNED || !rmm->n_left)
		return;
	rmm->n_left--;
	fprintf(rmm->out, "%" PRIu32 ",", event->thread);
	put_time(rmm->out, h->start_s, event->ns);
	if (is_new || is_freed)
		fprintf(rmm->out, ",%s,0x%" PRIx64, is_new ? "allocate" : "free", event->addr);
	else
		fputs(",allocate failure,(nil)", rmm->out);
	fprintf(rmm->out, ",%" PRIu64 ",0\n", event->requested_bytes);
}

enum stat_exit convert_rmm(FILE *out, const struct stat_source *source, uint64_t n_max)
{
	struct rmm rmm = {out, n_max};
	struct history history = {.on_change = put_rmm, .arg = &rmm};
	char error[REPLAY_ERROR_MAX];
	int r;

	fputs("Thread,Time,Action,Pointer,Size,Stream\n", out);
	r = history_run(&history, source->file, source->contents.n_events, error);
	history_deinit(&history);
	if (r == 0)
		return STAT_OK;
	stat_error(NULL, "%s: %s.", source->name, error);
	return STAT_FAILED;
}
