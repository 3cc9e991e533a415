/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "replay_gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/tuning.h"
#include "tools/text/stat_say.h"

#define PAUSE_NS UINT64_C(1000000)

/* The range of addresses for memory that was not recorded. No device has addresses in it. */
#define NEW_ADDRESSES     (UINT64_C(1) << 60)
#define NEW_ADDRESSES_END (UINT64_C(1) << 63)
#define ADDRESS_UNIT      (2 * GP_MIB)

/*
 * Thread caches hash addresses, so peaks depend a little on the first one, as those of a process do on the addresses
 * that the kernel chooses. With this one, peaks are near the middle of their range (tests/bench/peaks.py).
 */
#define FIRST_ADDRESS (NEW_ADDRESSES + ADDRESS_UNIT)

enum { GAPS_TRIED = 256 }; /* bounds the time of a search, which a hostile recording could make long */

void replay_memory_init(struct replay_memory *m, uint64_t capacity_bytes, uint64_t limit_bytes)
{
	*m = (struct replay_memory){.room_bytes = capacity_bytes, .next_address = FIRST_ADDRESS};
	gp_addrmap_init(&m->map);
	gp_budget_init(&m->budget, limit_bytes);
}

void replay_memory_deinit(struct replay_memory *m)
{
	gp_addrmap_deinit(&m->map);
	replay_map_deinit(&m->segments);
	replay_map_deinit(&m->gaps);
}

void replay_pool_drop(struct replay_pool *p)
{
	struct replay_map *segments = &p->memory->segments, *recorded = &p->recorded_segments;
	struct replay_entry *segment = NULL;

	gp_pool_drop(p->pool);
	while ((segment = replay_map_of_pool(segments, p->number))) {
		p->memory->total_bytes -= segment->bytes;
		replay_map_remove(segments, segment);
	}
	while ((segment = replay_map_next(recorded, segment)))
		p->memory->recorded_bytes -= segment->bytes;
	replay_map_deinit(recorded);
}

void replay_pool_deinit(struct replay_pool *p)
{
	free(p->answers.events);
	replay_map_deinit(&p->recorded_segments);
}

void replay_answer(struct replay_pool *p, const struct replay_event *event)
{
	struct replay_answers *a = &p->answers;

	if (a->n == a->size) {
		a->size = a->size * 2 + 16;
		a->events = stat_alloc(realloc(a->events, a->size * sizeof(*a->events)));
	}
	a->events[a->n++] = *event;
	a->n_queries += event->kind == GP_RECORD_QUERY;
}

/* Updates the state of the recorded GPU and driver by a recorded answer. */
static void apply_answer(struct replay_pool *p, const struct replay_event *e)
{
	struct replay_memory *m = p->memory;
	unsigned slot = (unsigned)e->values[0] % GP_FENCE_SLOTS;
	struct replay_entry *segment;

	p->now = gp_max(p->now, e->position);
	p->now_ns = gp_max(p->now_ns, e->ns);
	switch (e->kind) {
	case GP_RECORD_FENCE:
		if (!e->values[1])
			p->recorded_covers[slot] = e->position;
		break;
	case GP_RECORD_QUERY:
		if (!e->values[1])
			p->done = gp_max(p->done, p->recorded_covers[slot]);
		break;
	case GP_RECORD_RESERVE:
		if (e->values[2])
			break;
		m->recorded_bytes += e->values[1];
		replay_map_put(&p->recorded_segments, (struct replay_entry){e->values[0], e->values[1], 0, 0});
		break;
	case GP_RECORD_RELEASE:
		segment = replay_map_find(&p->recorded_segments, e->values[0]);
		if (!segment)
			break;
		m->recorded_bytes -= segment->bytes;
		replay_map_remove(&p->recorded_segments, segment);
		break;
	case GP_RECORD_AVAILABLE:
		if (e->values[0] < UINT64_MAX - m->recorded_bytes)
			m->room_bytes = e->values[0] + m->recorded_bytes;
		break;
	default:
		break;
	}
}

static void apply_until(struct replay_pool *p, size_t end)
{
	struct replay_answers *a = &p->answers;

	for (; a->at < end; a->at++) {
		a->n_queries -= a->events[a->at].kind == GP_RECORD_QUERY;
		apply_answer(p, &a->events[a->at]);
		p->n_pauses = 0;
	}
}

void replay_apply_answers(struct replay_pool *p)
{
	apply_until(p, p->answers.n);
	p->answers.at = p->answers.n = 0;
}

/*
 * Returns the next queued answer of that kind to a request for that many bytes (0: for any number), or NULL if none was
 * recorded for the current call. Applies that answer and those queued before it, which came earlier.
 */
static const struct replay_event *take_answer(struct replay_pool *p, enum gp_record_kind kind, uint64_t bytes)
{
	struct replay_answers *a = &p->answers;

	for (size_t i = a->at; i < a->n; i++) {
		const struct replay_event *e = &a->events[i];

		if (e->kind != kind || (bytes && e->values[1] != bytes))
			continue;
		apply_until(p, i + 1);
		return e;
	}
	return NULL;
}

/* Returns the result in a recorded answer, or the given one if there is no answer. */
static int result_of(const struct replay_event *e, unsigned field, int otherwise)
{
	return e ? (int)(int64_t)e->values[field] : otherwise;
}

/* Segments do not overlap, so the last one that begins before the end is the only candidate. */
static bool is_taken(const struct replay_map *segments, uint64_t addr, uint64_t bytes)
{
	const struct replay_entry *last = replay_map_at_most(segments, addr + bytes - 1);

	return last && last->key + last->bytes > addr;
}

/* Returns the first of the lowest gaps that has room, or NULL. */
static struct replay_entry *find_gap(const struct replay_memory *m, uint64_t bytes)
{
	struct replay_entry *gap = NULL;

	for (unsigned i = 0; i < GAPS_TRIED && (gap = replay_map_next(&m->gaps, gap)); i++)
		if (gap->bytes >= bytes)
			return gap;
	return NULL;
}

/* Returns an address for memory, and takes it. There are enough addresses, as reserve() has checked. */
static uint64_t find_address(struct replay_memory *m, const struct replay_event *recorded, uint64_t bytes)
{
	uint64_t rounded = gp_round_up(bytes, ADDRESS_UNIT), addr = m->next_address;
	struct replay_entry *gap, rest;

	if (recorded && !is_taken(&m->segments, recorded->values[0], bytes))
		return recorded->values[0];
	gap = find_gap(m, rounded);
	if (!gap) {
		m->next_address += rounded;
		return addr;
	}
	addr = gap->key;
	rest = (struct replay_entry){.key = gap->key + rounded, .bytes = gap->bytes - rounded};
	replay_map_remove(&m->gaps, gap);
	if (rest.bytes)
		replay_map_put(&m->gaps, rest);
	return addr;
}

/* Makes the addresses of a segment free again, and merges them with the gaps beside them. */
static void free_address(struct replay_memory *m, uint64_t addr, uint64_t bytes)
{
	struct replay_entry gap = {.key = addr, .bytes = gp_round_up(bytes, ADDRESS_UNIT)}, *other;

	if (addr < NEW_ADDRESSES)
		return;
	other = replay_map_find(&m->gaps, gap.key + gap.bytes);
	if (other) {
		gap.bytes += other->bytes;
		replay_map_remove(&m->gaps, other);
	}
	other = replay_map_at_most(&m->gaps, addr);
	if (other && other->key + other->bytes == addr)
		other->bytes += gap.bytes;
	else
		replay_map_put(&m->gaps, gap);
}

static bool has_room(const struct replay_pool *p, uint64_t bytes)
{
	const struct replay_memory *m = p->memory;

	return m->total_bytes <= m->room_bytes && bytes <= m->room_bytes - m->total_bytes;
}

static void note_peak(const struct replay_pool *p)
{
	struct replay_memory *m = p->memory;
	uint64_t bytes = atomic_load(&m->budget.charged_bytes) - m->unpooled_bytes;

	if (bytes <= m->peak_bytes)
		return;
	m->peak_bytes = bytes;
	m->peak_position = p->now;
}

/* Takes memory from the driver, for both backends: for the replay, a handle is an address, too. */
static int take(void *arg, uint64_t bytes, uint64_t *ret_addr)
{
	struct replay_pool *p = arg;
	struct replay_memory *m = p->memory;
	const struct replay_event *e = take_answer(p, GP_RECORD_RESERVE, bytes);
	int r = result_of(e, 2, has_room(p, bytes) ? 0 : -ENOMEM);

	if (!r && bytes > NEW_ADDRESSES_END - m->next_address)
		r = -ENOMEM;
	if (r)
		return r;
	*ret_addr = find_address(m, e, bytes);
	replay_map_put(&m->segments, (struct replay_entry){*ret_addr, bytes, 0, p->number});
	m->total_bytes += bytes;
	note_peak(p);
	return 0;
}

/*
 * Returns a segment to the driver. The recorded answer may be about another segment, and its result is ignored; it is
 * only taken from the queue.
 */
static int return_segment(struct replay_pool *p, uint64_t addr)
{
	struct replay_memory *m = p->memory;
	struct replay_entry *segment = replay_map_find(&m->segments, addr);

	(void)take_answer(p, GP_RECORD_RELEASE, 0);
	if (!segment)
		return 0;
	m->total_bytes -= segment->bytes;
	free_address(m, addr, segment->bytes);
	replay_map_remove(&m->segments, segment);
	return 0;
}

static int release(void *arg, uint64_t addr)
{
	return return_segment(arg, addr);
}

static bool can_release_behind(void *arg)
{
	return ((struct replay_pool *)arg)->flags & GP_RECORD_POOL_BEHIND;
}

static bool is_first_release_slow(void *arg)
{
	return ((struct replay_pool *)arg)->flags & GP_RECORD_POOL_SLOW_RELEASE;
}

static void advance_to_clock(struct replay_pool *p)
{
	if (p->clock->now == p->first_now)
		return;
	p->now = gp_max(p->now, p->clock->now);
	p->now_ns = gp_max(p->now_ns, p->clock->now_ns);
}

/* True if the recording saw all work up to that position complete; in a trace all work is complete at once. */
static bool is_seen_done(const struct replay_pool *p, uint64_t position)
{
	return p->is_instant || position <= p->done;
}

/* True if all work up to that position and time is complete, as far as the recording shows. */
static bool is_done(const struct replay_pool *p, uint64_t position, uint64_t ns)
{
	return is_seen_done(p, position) || (p->now_ns > ns && p->now_ns - ns > p->lag_ns);
}

static int release_begin(void *arg, uint64_t addr, int slot)
{
	struct replay_pool *p = arg;

	if (!can_release_behind(p))
		return -ENOTSUP;
	if (slot != GP_NO_SLOT) {
		p->release_covers = gp_max(p->release_covers, p->fences->covers[slot]);
		p->release_ns = gp_max(p->release_ns, p->fences->covers_ns[slot]);
	}
	return return_segment(p, addr);
}

static int release_poll(void *arg)
{
	struct replay_pool *p = arg;
	const struct replay_event *e = take_answer(p, GP_RECORD_RETURNED, 0);

	advance_to_clock(p->fences);
	return result_of(e, 0, is_done(p->fences, p->release_covers, p->release_ns) ? 0 : -EAGAIN);
}

/* Waits for the releases. As the host waits, their work completes. */
static int release_drain(void *arg, uint64_t max_ns)
{
	struct replay_pool *p = arg;
	int r = release_poll(p);

	if (r != -EAGAIN)
		return r;
	p->fences->now_ns += PAUSE_NS;
	p->fences->done = gp_max(p->fences->done, p->release_covers);
	return release_poll(p);
}

static int fence_record(void *arg, int slot, bool is_at_free, uint64_t *ret_epoch)
{
	struct replay_pool *p = arg;
	const struct replay_event *e = take_answer(p, GP_RECORD_FENCE, 0);
	int r = result_of(e, 1, 0);

	if (e && !e->values[2])
		gp_submission_note(p->work);
	*ret_epoch = gp_submission_look(p->work);
	advance_to_clock(p);
	if (r)
		return r;
	p->covers[slot] = e ? e->position : p->now;
	p->covers_ns[slot] = e ? e->ns : p->now_ns;
	return 0;
}

static bool fence_record_waits(void *arg)
{
	return ((struct replay_pool *)arg)->flags & GP_RECORD_POOL_WAITS;
}

static int fence_query(void *arg, int slot)
{
	struct replay_pool *p = arg;
	const struct replay_event *e = take_answer(p, GP_RECORD_QUERY, 0);
	int r = result_of(e, 1, 0);

	if (r && r != -EAGAIN)
		return r;
	if (e)
		return is_seen_done(p, p->covers[slot]) ? 0 : -EAGAIN;
	advance_to_clock(p);
	return is_done(p, p->covers[slot], p->covers_ns[slot]) ? 0 : -EAGAIN;
}

static bool fence_is_beyond(void *arg, int slot)
{
	return result_of(take_answer(arg, GP_RECORD_BEYOND, 0), 0, 0);
}

static int fence_gpu_wait(void *arg, int slot)
{
	struct replay_pool *p = arg;

	return result_of(take_answer(p, GP_RECORD_ORDER, 0), 1, p->is_pinned ? -EAGAIN : 0);
}

/*
 * Short pauses in a row, at most. A wait for a fence makes no more of them between two queries. Other waits may ask no
 * fence, so that no recorded query ends their short pauses.
 */
#define SHORT_PAUSES_MAX (GP_POLL_INTERVAL_MAX_NS / GP_POLL_INTERVAL_MIN_NS)

/*
 * Lets time pass while the pool waits. Each recorded query sets the clock to its time, so up to the next one only the
 * shortest time passes: the wait must not reach its limit sooner than in the recorded process. If none is left, the
 * replay has waited longer than that did, and all work completes.
 */
static void pause_(void *arg, unsigned attempt)
{
	struct replay_pool *p = arg;
	bool is_short = p->answers.n_queries && p->n_pauses++ < SHORT_PAUSES_MAX;

	advance_to_clock(p);
	p->now_ns += is_short ? GP_POLL_INTERVAL_MIN_NS : PAUSE_NS;
	if (!p->answers.n_queries)
		p->done = p->now;
}

static bool trim_driver(void *arg)
{
	return result_of(take_answer(arg, GP_RECORD_TRIM, 0), 0, 0);
}

static uint64_t available(void *arg)
{
	struct replay_pool *p = arg;
	const struct replay_memory *m = p->memory;
	const struct replay_event *e = take_answer(p, GP_RECORD_AVAILABLE, 0);

	if (e && e->values[0] == UINT64_MAX)
		return UINT64_MAX;
	return m->room_bytes > m->total_bytes ? m->room_bytes - m->total_bytes : 0;
}

static int reserve(void *arg, uint64_t bytes, uint64_t *ret_addr, uint64_t *ret_available)
{
	int r = take(arg, bytes, ret_addr);

	if (!r && ret_available)
		*ret_available = available(arg);
	return r;
}

static uint64_t now_ns(void *arg)
{
	advance_to_clock(arg);
	return ((struct replay_pool *)arg)->now_ns;
}

int replay_attempt(struct replay_pool *p, uint64_t bytes)
{
	return result_of(take_answer(p, GP_RECORD_ATTEMPT, 0), 0, has_room(p, bytes) ? 0 : -ENOMEM);
}

/*
 * Reserves addresses. They cost nothing and are never reused; the replay does not access memory. A gap lies between two
 * ranges, as between those of a process: thread caches hash addresses, and adjacent ranges collide less than others.
 */
static int address_reserve(void *arg, uint64_t bytes, uint64_t *ret_addr)
{
	struct replay_memory *m = ((struct replay_pool *)arg)->memory;
	uint64_t room = NEW_ADDRESSES_END - m->next_address;

	if (room < ADDRESS_UNIT || bytes > room - ADDRESS_UNIT)
		return -ENOMEM;
	*ret_addr = m->next_address;
	m->next_address += bytes + ADDRESS_UNIT;
	return 0;
}

static void address_free(void *arg, uint64_t addr, uint64_t bytes)
{
}

static void release_chunk(void *arg, uint64_t handle, uint64_t bytes)
{
	(void)return_segment(arg, handle);
}

static int map(void *arg, uint64_t addr, uint64_t bytes, uint64_t handle, bool *ret_is_stuck)
{
	return 0;
}

static int unmap(void *arg, uint64_t addr, uint64_t bytes)
{
	return 0;
}

static int wait_for_all(void *arg)
{
	struct replay_pool *p = arg;

	advance_to_clock(p);
	p->done = p->now;
	return 0;
}

static const struct gp_mapping_ops mapping = {
	.address_reserve = address_reserve,
	.address_free = address_free,
	.create = take,
	.release = release_chunk,
	.map = map,
	.unmap = unmap,
	.wait = wait_for_all,
};

static const struct gp_backend_ops ops = {
	.mapping = &mapping,
	.reserve = reserve,
	.release = release,
	.release_begin = release_begin,
	.can_release_behind = can_release_behind,
	.is_first_release_slow = is_first_release_slow,
	.release_poll = release_poll,
	.release_drain = release_drain,
	.fence_record = fence_record,
	.fence_record_waits = fence_record_waits,
	.fence_query = fence_query,
	.fence_is_beyond = fence_is_beyond,
	.fence_gpu_wait = fence_gpu_wait,
	.pause = pause_,
	.trim_driver = trim_driver,
	.available = available,
	.now_ns = now_ns,
};

struct gp_backend replay_backend(struct replay_pool *p)
{
	return (struct gp_backend){.ops = &ops, .arg = p};
}
