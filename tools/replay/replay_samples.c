/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "replay_samples.h"

#include <stdlib.h>

#include "tools/text/stat_say.h"

void samples_init(struct samples *samples, uint64_t duration_ns, uint64_t n_parts)
{
	*samples = (struct samples){.part_ns = duration_ns / n_parts + 1};
}

void samples_deinit(struct samples *samples)
{
	for (unsigned i = 0; i < HISTORY_MEMORIES_MAX; i++)
		free(samples->memories[i].list);
}

static void add(struct samples_memory *m, const struct history_sample *sample)
{
	const struct history_sample *last = m->n ? &m->list[m->n - 1] : NULL;

	if (last && last->used_bytes == sample->used_bytes && last->total_bytes == sample->total_bytes)
		return;
	if (m->n == m->size) {
		m->size = m->size * 2 + 64;
		m->list = stat_alloc(reallocarray(m->list, m->size, sizeof(*m->list)));
	}
	m->list[m->n++] = *sample;
}

static void end_part(struct samples_memory *m)
{
	bool is_used_first = m->most_used.ns <= m->most_total.ns;

	if (!m->is_begun)
		return;
	add(m, is_used_first ? &m->most_used : &m->most_total);
	add(m, is_used_first ? &m->most_total : &m->most_used);
	add(m, &m->last);
	m->is_begun = false;
}

void samples_take(struct samples *samples, const struct history *h, const struct history_event *event)
{
	struct samples_memory *m = &samples->memories[event->memory];
	const struct history_memory *memory = &h->memories[event->memory];
	struct history_sample now = {event->ns, memory->used_bytes, memory->total_bytes};
	uint64_t part = event->ns / samples->part_ns;

	if (m->is_begun && part != m->part)
		end_part(m);
	if (!m->is_begun) {
		m->most_used = m->most_total = now;
		m->is_begun = true;
		m->part = part;
	}
	m->last = now;
	if (now.used_bytes > m->most_used.used_bytes)
		m->most_used = now;
	if (now.total_bytes > m->most_total.total_bytes)
		m->most_total = now;
}

void samples_end(struct samples *samples)
{
	for (unsigned i = 0; i < HISTORY_MEMORIES_MAX; i++)
		end_part(&samples->memories[i]);
}
