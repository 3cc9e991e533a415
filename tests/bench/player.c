/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The protocol of a player. It prints "ready", and then answers each line of stdin, such as
 *
 *   window bytes=65536 live=32 ms=10
 *
 * with a line on stdout: "pair ns=... cpu_ns=... pairs=...", or "error what=... code=...". While requests are equal,
 * the blocks stay allocated. So several players can take turns, and each finds its blocks as it left them.
 *
 * A request for one thread runs in the first thread: a process in which other threads have allocated is a different
 * case.
 */

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_work.h"
#include "stub_driver.h"

#define SEED UINT64_C(88172645463325252)

static struct {
	struct bench_request request;
	const struct bench_pattern *pattern; /* NULL before a request is set up */
	struct bench_lane *lanes;
	struct bench_slot *held; /* includes the blocks between which cached blocks lie */
	unsigned n_lanes, n_held;
	double ns;
	/* Workers, if there are several threads. */
	pthread_t threads[BENCH_THREADS_MAX];
	unsigned n_threads;
	pthread_barrier_t barrier;
	bool is_over;
} session;

/* Counts calls of the calling thread; NULL unless the driver is the stub driver. */
static uint64_t (*count_calls)(enum stub_call call);

static const char *const call_names[STUB_N_CALLS] = {"memory", "record", "fence", "current", "other"};

/* Runs the pattern each time that the player reaches the barrier, until session.is_over. */
static void *worker(void *arg)
{
	struct bench_lane *lane = arg;
	int error = bench_peer.thread_init();

	for (;;) {
		pthread_barrier_wait(&session.barrier);
		if (session.is_over)
			return NULL;
		bench_lane_run(lane, session.pattern, session.ns);
		lane->error = error ? error : lane->error;
		pthread_barrier_wait(&session.barrier);
	}
}

/* Zeroed host memory that shares no cache line with other memory; NULL if there is none. */
static void *alloc_aligned(size_t n, size_t bytes)
{
	size_t size = (n * bytes + BENCH_ALIGNMENT - 1) / BENCH_ALIGNMENT * BENCH_ALIGNMENT;
	void *memory = aligned_alloc(BENCH_ALIGNMENT, size);

	return memory ? memset(memory, 0, size) : NULL;
}

static bool start_workers(void)
{
	if (pthread_barrier_init(&session.barrier, NULL, session.n_lanes + 1))
		return false;
	session.is_over = false;
	for (; session.n_threads < session.n_lanes; session.n_threads++) {
		unsigned i = session.n_threads;

		if (pthread_create(&session.threads[i], NULL, worker, &session.lanes[i]))
			abort(); /* the threads at the barrier would wait forever */
	}
	return true;
}

static void end_workers(void)
{
	if (!session.n_threads)
		return;
	session.is_over = true;
	pthread_barrier_wait(&session.barrier);
	while (session.n_threads)
		pthread_join(session.threads[--session.n_threads], NULL);
	pthread_barrier_destroy(&session.barrier);
}

static void empty_slots(struct bench_lane *lane, struct bench_slot *slots, unsigned n, bool is_pinned)
{
	for (unsigned i = 0; i < n; i++)
		if (slots[i].ptr)
			bench_slot_empty(lane, &slots[i], is_pinned);
}

static void tear_down(void)
{
	end_workers();
	for (unsigned i = 0; i < session.n_lanes; i++) {
		struct bench_lane *lane = &session.lanes[i];
		struct bench_ring *ring = i % 2 ? NULL : lane->ring; /* shared with the next lane */

		for (; ring && ring->tail != ring->head; ring->tail++)
			bench_slot_empty(lane, &ring->slots[ring->tail % BENCH_RING_SIZE], false);
		if (lane->slots)
			empty_slots(lane, lane->slots, session.request.live, session.pattern->is_pinned);
		free(lane->slots);
		free(lane->draws);
		free(ring);
	}
	if (session.n_held)
		empty_slots(session.lanes, session.held, session.n_held, false);
	free(session.held);
	free(session.lanes);
	session.held = NULL;
	session.lanes = NULL;
	session.n_lanes = session.n_held = 0;
	session.pattern = NULL;
}

/* Frees the second of every two blocks, so that each cached block lies between live blocks. */
static bool fill_held(struct bench_lane *lane, unsigned held, unsigned cached)
{
	unsigned n = held + 2 * cached;

	if (!n)
		return true;
	session.held = calloc(n, sizeof(*session.held));
	if (!session.held)
		return false;
	session.n_held = n;
	for (unsigned i = 0; i < n; i++)
		if (!bench_slot_fill(lane, &session.held[i], false))
			return false;
	for (unsigned i = 0; i < 2 * cached; i += 2)
		bench_slot_empty(lane, &session.held[i], false);
	return !lane->error;
}

static bool fill_window(struct bench_lane *lane)
{
	lane->slots = alloc_aligned(session.request.live, sizeof(*lane->slots));
	if (!lane->slots)
		return false;
	for (unsigned i = 0; i < session.request.live; i++)
		if (!bench_slot_fill(lane, &lane->slots[i], session.pattern->is_pinned))
			return false;
	return true;
}

static bool make_lanes(void)
{
	session.n_lanes = session.request.threads > 1 ? session.request.threads : 1;
	session.lanes = alloc_aligned(session.n_lanes, sizeof(*session.lanes));
	if (!session.lanes)
		return false;
	for (unsigned i = 0; i < session.n_lanes; i++) {
		struct bench_lane *lane = &session.lanes[i];

		*lane = (struct bench_lane){
			.request = &session.request, .n_draws = bench_draws_for(session.request.live)};
		lane->draws = alloc_aligned(lane->n_draws, sizeof(*lane->draws));
		if (!lane->draws)
			return false;
		bench_lane_draw(lane, SEED + i);
		if (session.pattern->is_handed_over) {
			lane->turn = i % 2;
			lane->ring = lane->turn ? session.lanes[i - 1].ring
						: aligned_alloc(BENCH_ALIGNMENT, sizeof(struct bench_ring));
			if (!lane->ring)
				return false;
			lane->ring->head = lane->ring->tail = 0;
		}
	}
	return true;
}

static const char *set_up_gpu(int *error)
{
	const struct bench_request *request = &session.request;

	*error = gpu_work_streams(request->streams);
	if (*error)
		return "streams";
	if (request->contexts)
		*error = gpu_work_contexts(request->contexts);
	if (*error)
		return "contexts";
	if (session.pattern->has_kernels)
		*error = gpu_work_prepare(request->bytes);
	return *error ? "kernels" : NULL;
}

/* Returns the name of the failed step, or NULL. */
static const char *set_up(const struct bench_request *request, int *error)
{
	const char *what;

	session.request = *request;
	session.pattern = bench_pattern_find(request->pattern);
	*error = 0;
	if (!session.pattern)
		return "pattern";
	if (session.pattern->is_pinned && !bench_peer.pinned_alloc)
		return "no_pinned_memory";
	if (session.pattern->is_handed_over && (request->threads < 2 || request->threads % 2))
		return "threads";
	if (session.pattern->has_window && !request->live)
		return "live";
	what = set_up_gpu(error);
	if (what)
		return what;
	if (!make_lanes())
		return "host_memory";
	if (!fill_held(session.lanes, request->held, request->cached)) {
		*error = session.lanes->error;
		return "held";
	}
	for (unsigned i = 0; session.pattern->has_window && i < session.n_lanes; i++)
		if (!fill_window(&session.lanes[i])) {
			*error = session.lanes[i].error;
			return "window";
		}
	if (session.n_lanes > 1 && !start_workers())
		return "barrier";
	return NULL;
}

static void run(void)
{
	if (session.n_lanes == 1) {
		bench_lane_run(session.lanes, session.pattern, session.ns);
		return;
	}
	pthread_barrier_wait(&session.barrier);
	pthread_barrier_wait(&session.barrier);
}

/* Prints wall time as each thread sees it, and processor time, for each pair. */
static const char *print_answer(const uint64_t *calls_before, int *error)
{
	double start = session.lanes[0].start_ns, end = 0, cpu = 0, pairs = 0;

	for (unsigned i = 0; i < session.n_lanes; i++) {
		const struct bench_lane *lane = &session.lanes[i];

		*error = lane->error ? lane->error : *error;
		start = lane->start_ns < start ? lane->start_ns : start;
		end = lane->end_ns > end ? lane->end_ns : end;
		cpu += lane->cpu_ns;
		pairs += (double)lane->pairs;
	}
	if (*error || pairs == 0)
		return *error ? "run" : "no_pairs";
	printf("pair ns=%.2f cpu_ns=%.2f pairs=%.0f", (end - start) * session.n_lanes / pairs, cpu / pairs, pairs);
	for (int i = 0; count_calls && i < STUB_N_CALLS; i++)
		printf(" %s_calls=%" PRIu64, call_names[i], count_calls((enum stub_call)i) - calls_before[i]);
	putchar('\n');
	return NULL;
}

static void find_stub(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);

	count_calls = driver ? (__typeof__(count_calls))dlsym(driver, "stub_calls") : NULL;
}

static void answer(const struct bench_request *request, double ms)
{
	uint64_t before[STUB_N_CALLS] = {0};
	const char *what = NULL;
	int error = 0;

	if (!session.pattern || memcmp(request, &session.request, sizeof(*request)) != 0) {
		tear_down();
		what = set_up(request, &error);
	}
	if (!what) {
		for (int i = 0; count_calls && i < STUB_N_CALLS; i++)
			before[i] = count_calls((enum stub_call)i);
		session.ns = ms * 1e6;
		run();
		what = print_answer(before, &error);
	}
	if (what) {
		tear_down();
		printf("error what=%s code=%d\n", what, error);
	}
	fflush(stdout);
}

/* Returns false for an unknown word. */
static bool parse_word(const char *word, struct bench_request *request, double *ms)
{
	const struct {
		const char *key;
		unsigned *value;
	} keys[] = {
		{"live", &request->live},
		{"held", &request->held},
		{"cached", &request->cached},
		{"threads", &request->threads},
		{"streams", &request->streams},
		{"contexts", &request->contexts},
		{"kernel_us", &request->kernel_us},
	};

	if (sscanf(word, "bytes=%zu", &request->bytes) == 1 || sscanf(word, "ms=%lf", ms) == 1)
		return true;
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		size_t n = strlen(keys[i].key);

		if (strncmp(word, keys[i].key, n) == 0 && word[n] == '=')
			return sscanf(word + n + 1, "%u", keys[i].value) == 1;
	}
	return false;
}

static bool parse(char *line, struct bench_request *request, double *ms)
{
	char *rest, *word = strtok_r(line, " \n", &rest);

	memset(request, 0, sizeof(*request)); /* requests are compared as bytes */
	*ms = 10;
	if (!word || strlen(word) >= sizeof(request->pattern))
		return false;
	memcpy(request->pattern, word, strlen(word));
	while ((word = strtok_r(NULL, " \n", &rest)))
		if (!parse_word(word, request, ms))
			return false;
	return request->threads <= BENCH_THREADS_MAX;
}

int main(void)
{
	struct bench_request request;
	char line[256];
	double ms;
	int error = bench_peer.init();

	if (error) {
		printf("error what=init code=%d\n", error);
		return EXIT_FAILURE;
	}
	find_stub();
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (parse(line, &request, &ms)) {
			answer(&request, ms);
		} else {
			puts("error what=request code=0");
			fflush(stdout);
		}
	}
	tear_down();
	return EXIT_SUCCESS;
}
