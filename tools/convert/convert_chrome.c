/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Chrome's trace format, which Perfetto reads, too: a counter track for each device and for pinned memory, thinned out
 * without losing a peak, and an instant event for each allocation that failed.
 */

#include <inttypes.h>

#include "tools/replay/replay_samples.h"
#include "convert_formats.h"

enum { PARTS = 20000, INSTANTS_MAX = 10000 };

struct chrome {
	FILE *out;
	uint64_t pid;
	uint64_t n_instants;
	struct samples samples;
};

/* Writes microseconds with three decimals: no nanosecond is lost. */
static void put_time(FILE *out, uint64_t ns)
{
	fprintf(out, "\"ts\":%" PRIu64 ".%03u", ns / 1000, (unsigned)(ns % 1000));
}

static void add_change(void *arg, const struct history *h, const struct history_event *event)
{
	struct chrome *c = arg;

	samples_take(&c->samples, h, event);
	if (event->kind != HISTORY_REFUSED || c->n_instants++ >= INSTANTS_MAX)
		return;
	fputs(",\n{\"ph\":\"i\",\"s\":\"p\",\"cat\":\"memory\",\"name\":\"out of memory\",", c->out);
	fprintf(c->out, "\"pid\":%" PRIu64 ",\"tid\":%" PRIu32 ",", c->pid, event->thread);
	put_time(c->out, event->ns);
	fprintf(c->out, ",\"args\":{\"requested_bytes\":%" PRIu64 "}}", event->requested_bytes);
}

static void put_counters(const struct chrome *c, unsigned number, bool has_driver_memory)
{
	const struct samples_memory *m = &c->samples.memories[number];

	for (size_t i = 0; i < m->n; i++) {
		const struct history_sample *s = &m->list[i];
		uint64_t idle = s->total_bytes > s->used_bytes ? s->total_bytes - s->used_bytes : 0;

		fprintf(c->out, ",\n{\"ph\":\"C\",\"cat\":\"memory\",\"pid\":%" PRIu64 ",\"name\":\"", c->pid);
		if (number == HISTORY_PINNED)
			fputs("pinned memory", c->out);
		else
			fprintf(c->out, "device %u memory", number);
		fputs("\",", c->out);
		put_time(c->out, s->ns);
		fprintf(c->out, ",\"args\":{\"used\":%" PRIu64, s->used_bytes);
		if (has_driver_memory)
			fprintf(c->out, ",\"unused\":%" PRIu64, idle);
		fputs("}}", c->out);
	}
}

static enum stat_exit run(struct chrome *c, const struct stat_source *source)
{
	struct history history = {.on_change = add_change, .arg = c};
	char error[REPLAY_ERROR_MAX];
	int r = history_run(&history, source->file, source->contents.n_events, error);

	samples_end(&c->samples);
	for (unsigned i = 0; i < HISTORY_MEMORIES_MAX; i++)
		put_counters(c, i, !history.is_text);
	history_deinit(&history);
	if (r == 0)
		return STAT_OK;
	stat_error(NULL, "%s: %s.", source->name, error);
	return STAT_FAILED;
}

enum stat_exit convert_chrome(FILE *out, const struct stat_source *source, uint64_t n_max)
{
	const struct replay_contents *contents = &source->contents;
	uint64_t duration_ns = contents->is_text ? contents->n_events * 1000 : contents->duration_ns;
	struct chrome chrome = {.out = out, .pid = contents->pid & INT32_MAX};
	enum stat_exit result;

	samples_init(&chrome.samples, duration_ns, n_max < PARTS ? n_max + 1 : PARTS);
	fprintf(out,
		"{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"gpupool-stat " GPUPOOL_VERSION
		"\",\"start_unix_s\":%" PRIu64 "},\"traceEvents\":[\n"
		"{\"ph\":\"M\",\"pid\":%" PRIu64 ",\"name\":\"process_name\",\"args\":{\"name\":\"gpupool\"}}",
		contents->start_s, chrome.pid);
	result = run(&chrome, source);
	fputs("\n]}\n", out);
	samples_deinit(&chrome.samples);
	return result;
}
