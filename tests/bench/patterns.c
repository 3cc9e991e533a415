/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The patterns. A step does several pairs of one malloc and one free, so that the clock is read rarely. */

#include <sched.h>
#include <string.h>
#include <time.h>

#include "gpu_work.h"

enum { STEP_MAX = 256, CLOCK_READS = 32, SIZE_BITS_MIN = 9, SIZE_BITS = 11, COPY_SHARE = 4 };
enum { DRAWS_MIN = 1 << 15, DRAWS_PER_SLOT = 8 };

static uint64_t next_random(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

/* Uniform over the powers of two from 512 B to 512 KiB, then uniform over the sizes up to the next power. */
static uint32_t mixed_bytes(uint64_t random)
{
	uint32_t power = UINT32_C(1) << (SIZE_BITS_MIN + random % SIZE_BITS);

	return power + ((uint32_t)(random >> 16) & (power - 1));
}

unsigned bench_draws_for(unsigned live)
{
	unsigned n = DRAWS_MIN;

	while (n / DRAWS_PER_SLOT < live)
		n *= 2;
	return n;
}

void bench_lane_draw(struct bench_lane *lane, uint64_t seed)
{
	unsigned live = lane->request->live ? lane->request->live : 1;

	for (unsigned i = 0; i < lane->n_draws; i++) {
		lane->draws[i].slot = (uint32_t)((next_random(&seed) >> 11) % live);
		lane->draws[i].bytes = mixed_bytes(next_random(&seed));
	}
}

static const struct bench_draw *next_draw(struct bench_lane *lane)
{
	return &lane->draws[lane->n_drawn++ & (lane->n_draws - 1)];
}

static inline bool fill(struct bench_lane *lane, struct bench_slot *slot, bool is_pinned)
{
	size_t bytes = lane->request->bytes;

	slot->bytes = bytes ? bytes : next_draw(lane)->bytes;
	slot->ptr = NULL;
	lane->error = is_pinned ? bench_peer.pinned_alloc(&slot->ptr, slot->bytes)
				: bench_peer.alloc(&slot->ptr, slot->bytes, NULL);
	return !lane->error;
}

static inline void empty(struct bench_lane *lane, struct bench_slot *slot, bool is_pinned)
{
	int error = is_pinned ? bench_peer.pinned_free(slot->ptr) : bench_peer.free(slot->ptr, slot->bytes, NULL);

	slot->ptr = NULL;
	if (error)
		lane->error = error;
}

bool bench_slot_fill(struct bench_lane *lane, struct bench_slot *slot, bool is_pinned)
{
	return fill(lane, slot, is_pinned);
}

void bench_slot_empty(struct bench_lane *lane, struct bench_slot *slot, bool is_pinned)
{
	empty(lane, slot, is_pinned);
}

static unsigned step_pingpong(struct bench_lane *lane, unsigned n)
{
	struct bench_slot slot;

	for (unsigned i = 0; i < n && !lane->error; i++)
		if (fill(lane, &slot, false))
			empty(lane, &slot, false);
	return n;
}

static inline unsigned step_window_of(struct bench_lane *lane, unsigned n, bool is_pinned)
{
	for (unsigned i = 0; i < n && !lane->error; i++) {
		struct bench_slot *slot = &lane->slots[next_draw(lane)->slot];

		empty(lane, slot, is_pinned);
		if (!lane->error)
			fill(lane, slot, is_pinned);
	}
	return n;
}

static unsigned step_window(struct bench_lane *lane, unsigned n)
{
	return step_window_of(lane, n, false);
}

static unsigned step_pinned(struct bench_lane *lane, unsigned n)
{
	return step_window_of(lane, n, true);
}

static unsigned step_batch(struct bench_lane *lane, unsigned n)
{
	unsigned done = 0;

	for (; done < n && !lane->error; done += lane->request->live) {
		for (unsigned i = 0; i < lane->request->live && !lane->error; i++)
			empty(lane, &lane->slots[i], false);
		for (unsigned i = 0; i < lane->request->live && !lane->error; i++)
			fill(lane, &lane->slots[i], false);
	}
	return done;
}

/* Returns when the ring is full: the consumer may have ended. */
static unsigned step_produce(struct bench_lane *lane, unsigned n)
{
	struct bench_ring *ring = lane->ring;

	for (unsigned i = 0; i < n && !lane->error; i++) {
		unsigned head = ring->head;

		if (head - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) == BENCH_RING_SIZE) {
			sched_yield();
			break;
		}
		if (fill(lane, &ring->slots[head % BENCH_RING_SIZE], false))
			__atomic_store_n(&ring->head, head + 1, __ATOMIC_RELEASE);
	}
	return 0; /* the freeing thread counts the pair */
}

static unsigned step_consume(struct bench_lane *lane, unsigned n)
{
	struct bench_ring *ring = lane->ring;
	unsigned i;

	for (i = 0; i < n && !lane->error; i++) {
		unsigned tail = ring->tail;

		if (__atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) == tail) {
			sched_yield();
			break;
		}
		empty(lane, &ring->slots[tail % BENCH_RING_SIZE], false);
		__atomic_store_n(&ring->tail, tail + 1, __ATOMIC_RELEASE);
	}
	return i;
}

/* Threads work in pairs: the first thread of a pair allocates, and the second frees. */
static unsigned step_handover(struct bench_lane *lane, unsigned n)
{
	return lane->turn ? step_consume(lane, n) : step_produce(lane, n);
}

static unsigned step_submit(struct bench_lane *lane, unsigned n)
{
	for (unsigned i = 0; i < n && !lane->error; i++)
		lane->error = gpu_work_submit(gpu_work_stream(0));
	return n;
}

/* A pair with a submission before the free, so that each free needs a new fence. */
static unsigned step_submitted(struct bench_lane *lane, unsigned n)
{
	struct bench_slot slot;

	for (unsigned i = 0; i < n && !lane->error; i++) {
		if (!fill(lane, &slot, false))
			break;
		lane->error = gpu_work_submit(gpu_work_stream(0));
		empty(lane, &slot, false);
	}
	return n;
}

static unsigned step_kernel(struct bench_lane *lane, unsigned n)
{
	const struct bench_request *request = lane->request;

	for (unsigned i = 0; i < n && !lane->error; i++) {
		void *stream = gpu_work_stream(lane->turn++), *ptr;

		lane->error = bench_peer.alloc(&ptr, request->bytes, stream);
		if (!lane->error)
			lane->error = gpu_work_kernel(ptr, request->kernel_us, stream);
		if (!lane->error)
			lane->error = bench_peer.free(ptr, request->bytes, stream);
	}
	return n;
}

/* The same kernels on blocks that were allocated before the loop, one for each stream. */
static unsigned step_hoisted(struct bench_lane *lane, unsigned n)
{
	const struct bench_request *request = lane->request;

	for (unsigned i = 0; i < n && !lane->error; i++) {
		unsigned turn = lane->turn++;

		lane->error = gpu_work_kernel(
			lane->slots[turn % request->live].ptr, request->kernel_us, gpu_work_stream(turn));
	}
	return n;
}

/* Copies input in, runs a kernel that computes the output, and copies the output out. */
static int overlap_once(const struct bench_request *request, unsigned turn)
{
	size_t copied = request->bytes / COPY_SHARE;
	void *stream = gpu_work_stream(turn), *in, *out;
	int error = bench_peer.alloc(&in, request->bytes, stream);

	if (!error)
		error = bench_peer.alloc(&out, request->bytes, stream);
	if (!error)
		error = gpu_work_copy_in(in, copied, turn);
	if (!error)
		error = gpu_work_kernel(out, request->kernel_us, stream);
	if (!error)
		error = gpu_work_copy_out(out, copied, turn);
	if (!error)
		error = bench_peer.free(in, request->bytes, stream);
	return error ? error : bench_peer.free(out, request->bytes, stream);
}

/* Uses the streams in turn. */
static unsigned step_overlap(struct bench_lane *lane, unsigned n)
{
	for (unsigned i = 0; i < n && !lane->error; i++)
		lane->error = overlap_once(lane->request, lane->turn++);
	return n;
}

static const struct bench_pattern patterns[] = {
	{"pingpong", step_pingpong},
	{"window", step_window, .has_window = true},
	{"batch", step_batch, .has_window = true},
	{"handover", step_handover, .is_handed_over = true},
	{"pinned", step_pinned, .has_window = true, .is_pinned = true},
	{"submit", step_submit, .has_window = true},
	{"submitted", step_submitted},
	{"kernel", step_kernel, .has_kernels = true},
	{"hoisted", step_hoisted, .has_window = true, .has_kernels = true},
	{"overlap", step_overlap, .has_kernels = true},
};

const struct bench_pattern *bench_pattern_find(const char *name)
{
	for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
		if (strcmp(patterns[i].name, name) == 0)
			return &patterns[i];
	return NULL;
}

static double now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* True for a consumer that must not end before its producer has begun. */
static bool waits_for_other(const struct bench_lane *lane, const struct bench_pattern *pattern)
{
	return pattern->is_handed_over && lane->turn && !lane->pairs;
}

void bench_lane_run(struct bench_lane *lane, const struct bench_pattern *pattern, double ns)
{
	double cpu = now_ns(CLOCK_THREAD_CPUTIME_ID), start = now_ns(CLOCK_MONOTONIC);
	double last = start, now = start;
	unsigned n = 1;

	lane->pairs = 0;
	lane->error = 0;
	do {
		lane->pairs += pattern->step(lane, n);
		now = now_ns(CLOCK_MONOTONIC);
		if (now - last < ns / CLOCK_READS && n < STEP_MAX)
			n *= 2;
		last = now;
	} while ((now - start < ns || waits_for_other(lane, pattern)) && !lane->error);
	if (pattern->has_kernels && !lane->error) {
		lane->error = gpu_work_synchronize();
		now = now_ns(CLOCK_MONOTONIC);
	}
	lane->start_ns = start;
	lane->end_ns = now;
	lane->cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
}
