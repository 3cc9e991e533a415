/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Asks a GPU about green contexts, with an answer on each line:
 * - which context owns memory;
 * - what context-wide records, waits and synchronisations cover;
 * - which work a free waits for;
 * - which objects end with which context.
 *
 *   cc -std=gnu11 -O2 -I. -o green_probe tests/gpu/green_probe.c -ldl -lpthread && ./green_probe
 *
 * Each group of questions runs in a new process with a time limit. To keep a stream busy, a kernel spins on a flag
 * until the answer is known. Work that has not run after PATIENCE_MS counts as held back.
 */

#include "contexts.h"

static CUresult call_synchronize(uint64_t unused)
{
	return cuCtxSynchronize();
}

static CUresult call_free(uint64_t ptr)
{
	return cuMemFree_v2(ptr);
}

static void identity(void)
{
	unsigned long long id = 0;
	CUcontext ctx = NULL;
	CUgreenCtx green;
	CUdevice device;
	CUresult r;

	for (int i = 0; i < N_PLACES; i++) {
		r = cuCtxGetId(places[i].ctx, &id);
		say("id of %s: %d, %llu", place_names[i], r, id);
		CHECK(cuCtxSetCurrent(places[i].ctx));
		r = cuCtxGetCurrent(&ctx);
		say("current with %s current: %d, %s", place_names[i], r, place_of(ctx));
		r = cuCtxGetId(NULL, &id);
		say("id of the current: %d, %llu; device: %d", r, id, cuCtxGetDevice(&device));
		r = cuStreamGetCtx(places[i].stream, &ctx);
		say("context of its stream: %d, %s", r, place_of(ctx));
		green = NULL;
		r = cuStreamGetGreenCtx(places[i].stream, &green);
		say("green context of its stream: %d, its own: %d", r, green == places[i].green);
		r = cuStreamGetGreenCtx(NULL, &green);
		say("green context of the NULL stream: %d, its own: %d", r, green == places[i].green);
	}
	r = cuCtxFromGreenCtx(&ctx, places[GREEN_A].green);
	say("a second cuCtxFromGreenCtx: %d, same: %d", r, ctx == places[GREEN_A].ctx);
	say("launch of the primary's kernel in a green stream: %d",
		launch(places[PRIMARY].set, places[GREEN_A].stream, next_flag()));
	say("launch of a green kernel in the primary's stream: %d",
		launch(places[GREEN_A].set, places[PRIMARY].stream, next_flag()));
	say("launch of a green kernel in another green stream: %d",
		launch(places[GREEN_A].set, places[GREEN_B].stream, next_flag()));
}

static void owners(void)
{
	static const size_t sizes[] = {512, 4 << 20};
	size_t available[2], total;
	CUcontext owner = NULL;
	void *host;
	CUresult r;

	for (int i = 0; i < N_PLACES; i++) {
		for (int k = 0; k < 2; k++) {
			CUdeviceptr ptr = take(i, sizes[k]);

			r = cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr);
			say("owner of %zu bytes allocated in %s: %d, %s", sizes[k], place_names[i], r, place_of(owner));
			for (int at = 0; at < N_PLACES; at++) {
				ptr = take(i, sizes[k]);
				CHECK(cuCtxSetCurrent(places[at].ctx));
				say("  freed with %s current: %d", place_names[at], cuMemFree_v2(ptr));
			}
			ptr = take(i, sizes[k]);
			say("  freed on A's stream: %d", cuMemFreeAsync(ptr, places[GREEN_A].stream));
			CHECK(cuStreamSynchronize(places[GREEN_A].stream));
			CHECK(cuMemGetInfo_v2(&available[k], &total));
		}
		CHECK(cuMemHostAlloc(&host, 4096, 0));
		r = cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)(uintptr_t)host);
		say("owner of pinned memory allocated in %s: %d, %s", place_names[i], r, place_of(owner));
	}
}

static CUresult record_primary(CUevent event)
{
	return cuCtxRecordEvent(places[PRIMARY].ctx, event);
}

static CUresult record_ctx_a(CUevent event)
{
	return cuCtxRecordEvent(places[GREEN_A].ctx, event);
}

static CUresult record_green_a(CUevent event)
{
	return cuGreenCtxRecordEvent(places[GREEN_A].green, event);
}

static const struct {
	const char *name;
	CUresult (*record)(CUevent event);
} records[] = {
	{"cuCtxRecordEvent(primary)", record_primary},
	{"cuCtxRecordEvent(A's context)", record_ctx_a},
	{"cuGreenCtxRecordEvent(A)", record_green_a},
};

/* Asks with an event of the primary context, and with one of A. */
static void covers(void)
{
	for (int i = 0; i < 3; i++) {
		for (int of = PRIMARY; of <= GREEN_A; of++) {
			for (int busy = 0; busy < N_PLACES; busy++) {
				CUevent event = event_of(of);
				unsigned flag = make_busy(busy);
				CUresult r = records[i].record(event);

				say("%s, event of %s, %s busy: %d, covers: %d", records[i].name, place_names[of],
					place_names[busy], r, r ? -1 : !is_ready_soon(event));
				raise_flag(flag);
				CHECK(cuStreamSynchronize(places[busy].stream));
				if (!r && !is_ready_soon(event))
					say("  and is not ready afterwards");
			}
		}
	}
}

static CUresult wait_primary(CUevent event)
{
	return cuCtxWaitEvent(places[PRIMARY].ctx, event);
}

static CUresult wait_ctx_a(CUevent event)
{
	return cuCtxWaitEvent(places[GREEN_A].ctx, event);
}

static CUresult wait_green_a(CUevent event)
{
	return cuGreenCtxWaitEvent(places[GREEN_A].green, event);
}

static const struct {
	const char *name;
	CUresult (*wait)(CUevent event);
} waits[] = {
	{"cuCtxWaitEvent(primary)", wait_primary},
	{"cuCtxWaitEvent(A's context)", wait_ctx_a},
	{"cuGreenCtxWaitEvent(A)", wait_green_a},
};

static void orders_row(int how, int busy, int later, CUstream stream)
{
	CUevent event = event_of(PRIMARY);
	unsigned flag = make_busy(busy), mark = next_flag();
	CUresult r = cuCtxRecordEvent(places[PRIMARY].ctx, event);

	if (!r)
		r = waits[how].wait(event);
	CHECK(cuCtxSetCurrent(places[later].ctx));
	CHECK(launch(places[later].set, stream, mark));
	say("%s on a record of %s's work, later %s of %s: %d, held back: %d", waits[how].name, place_names[busy],
		stream ? "stream" : "NULL stream", place_names[later], r, !is_set_soon(mark));
	raise_flag(flag);
	for (int i = 0; i < N_PLACES; i++)
		CHECK(cuStreamSynchronize(places[i].stream));
	CHECK(cuCtxSynchronize());
	if (!flag_value(mark))
		say("  and never ran");
}

static void orders(void)
{
	for (int how = 0; how < 3; how++)
		for (int busy = 0; busy < N_PLACES; busy++)
			for (int later = 0; later < N_PLACES; later++)
				if (later != busy)
					orders_row(how, busy, later, places[later].stream);
	for (int later = 0; later < N_PLACES; later++)
		orders_row(0, later == PRIMARY, later, NULL);
}

/* Asks about a stream that is created after the wait, in each place. */
static void orders_later_streams(void)
{
	for (int later = 0; later < N_PLACES; later++) {
		CUevent event = event_of(PRIMARY);
		int busy = later == GREEN_A ? PRIMARY : GREEN_A;
		unsigned flag = make_busy(busy), mark = next_flag();
		CUstream stream = NULL;

		CHECK(cuCtxRecordEvent(places[PRIMARY].ctx, event));
		CHECK(cuCtxWaitEvent(places[PRIMARY].ctx, event));
		CHECK(cuCtxSetCurrent(places[later].ctx));
		CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		CHECK(launch(places[later].set, stream, mark));
		say("a stream made in %s after a wait for %s's work: held back: %d", place_names[later],
			place_names[busy], !is_set_soon(mark));
		raise_flag(flag);
		CHECK(cuStreamSynchronize(stream));
	}
}

/*
 * Asks about a green context created after the wait. If its creation waits for the spinning kernel, the limit ends the
 * group.
 */
static void orders_later_greens(void)
{
	CUevent event = event_of(PRIMARY);
	unsigned flag, mark = next_flag();
	bool is_held_back;

	CHECK(cuStreamDestroy_v2(places[GREEN_A].stream));
	CHECK(cuGreenCtxDestroy(places[GREEN_A].green));
	flag = make_busy(PRIMARY);
	CHECK(cuCtxRecordEvent(places[PRIMARY].ctx, event));
	CHECK(cuCtxWaitEvent(places[PRIMARY].ctx, event));
	make_green(GREEN_A);
	say("a green context made after a wait for the primary's work, which goes on: %d", !is_ready_soon(event));
	CHECK(launch(places[GREEN_B].set, places[GREEN_A].stream, mark));
	is_held_back = !is_set_soon(mark);
	say("its later work: held back: %d, while the earlier goes on: %d", is_held_back, !is_ready_soon(event));
	raise_flag(flag);
	CHECK(cuStreamSynchronize(places[GREEN_A].stream));
}

/* Asks whether work on the NULL stream of one place waits for work on that of another. */
static void null_streams(void)
{
	for (int first = 0; first < N_PLACES; first++) {
		for (int second = 0; second < N_PLACES; second++) {
			unsigned flag = next_flag(), mark = next_flag();

			if (first == second)
				continue;
			CHECK(cuCtxSetCurrent(places[first].ctx));
			CHECK(launch(places[first].wait, NULL, flag));
			CHECK(cuCtxSetCurrent(places[second].ctx));
			CHECK(launch(places[second].set, NULL, mark));
			say("NULL stream of %s behind that of %s: held back: %d", place_names[second],
				place_names[first], !is_set_soon(mark));
			raise_flag(flag);
			CHECK(cuCtxSynchronize());
			CHECK(cuCtxSetCurrent(places[first].ctx));
			CHECK(cuCtxSynchronize());
		}
	}
}

static void synchronizes(void)
{
	for (int at = 0; at < N_PLACES; at++) {
		for (int busy = 0; busy < N_PLACES; busy++) {
			struct attempt a = {.call = call_synchronize, .ctx = places[at].ctx};
			unsigned flag = make_busy(busy);
			bool is_back;

			attempt_begin(&a);
			is_back = attempt_is_back_soon(&a);
			raise_flag(flag);
			pthread_join(a.thread, NULL);
			say("cuCtxSynchronize in %s, %s busy: %d, waits: %d", place_names[at], place_names[busy], a.r,
				!is_back);
		}
	}
}

static void free_row(int of, int at, int busy)
{
	CUdeviceptr ptr = take(of, 4 << 20);
	struct attempt a = {.call = call_free, .arg = ptr, .ctx = places[at].ctx};
	unsigned flag = make_busy(busy);
	bool is_back;

	/* A green context can be current in only one thread at a time. */
	CHECK(cuCtxSetCurrent(places[PRIMARY].ctx));
	attempt_begin(&a);
	is_back = attempt_is_back_soon(&a);
	raise_flag(flag);
	pthread_join(a.thread, NULL);
	CHECK(cuStreamSynchronize(places[busy].stream));
	say("free of %s's memory in %s, %s busy: %d, waits: %d", place_names[of], place_names[at], place_names[busy],
		a.r, !is_back);
}

static void frees(void)
{
	for (int of = PRIMARY; of <= GREEN_A; of++)
		for (int at = PRIMARY; at <= GREEN_A; at++)
			for (int busy = 0; busy < N_PLACES; busy++)
				free_row(of, at, busy);
}

static CUresult call_green_destroy(uint64_t place)
{
	return cuGreenCtxDestroy(places[place].green);
}

static CUresult call_launch(uint64_t where)
{
	return launch(places[where >> 32].set, places[where >> 32].stream, (unsigned)where);
}

/* Asks whether a thread can launch while another is inside a free that waits for a spinning kernel. */
static void launches_row(int busy, int where)
{
	struct attempt f = {.call = call_free, .arg = take(PRIMARY, 4 << 20), .ctx = places[PRIMARY].ctx};
	unsigned flag = make_busy(busy), mark = next_flag();
	struct attempt l = {.call = call_launch, .arg = (uint64_t)where << 32 | mark, .ctx = places[where].ctx};
	bool is_free_back, is_launched, has_run;

	attempt_begin(&f);
	is_free_back = attempt_is_back_soon(&f);
	attempt_begin(&l);
	is_launched = attempt_is_back_soon(&l);
	has_run = is_set_soon(mark);
	raise_flag(flag);
	pthread_join(f.thread, NULL);
	pthread_join(l.thread, NULL);
	CHECK(cuStreamSynchronize(places[busy].stream));
	CHECK(cuStreamSynchronize(places[where].stream));
	say("a free waits (%d) for %s; a launch in %s: %d, returns: %d, runs: %d", !is_free_back, place_names[busy],
		place_names[where], l.r, is_launched, has_run);
}

static void launches(void)
{
	for (int busy = 0; busy < N_PLACES; busy++)
		for (int where = 0; where < N_PLACES; where++)
			if (where != busy)
				launches_row(busy, where);
}

static void captures(void)
{
	for (int capturing = 0; capturing < N_PLACES; capturing++) {
		for (int i = 0; i < 3; i++) {
			CUevent event = event_of(i == 0 ? PRIMARY : GREEN_A);
			CUgraph graph = NULL;
			CUresult r;

			CHECK(cuStreamBeginCapture_v2(places[capturing].stream, CU_STREAM_CAPTURE_MODE_RELAXED));
			r = records[i].record(event);
			say("%s while %s captures: %d, end: %d", records[i].name, place_names[capturing], r,
				cuStreamEndCapture(places[capturing].stream, &graph));
		}
	}
}

static void tell_pointer(const char *when, CUdeviceptr ptr)
{
	CUcontext owner = NULL;
	uint32_t word = 0;
	CUresult r = cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr);

	say("%s: primary active: %d, owner: %d, %s", when, state(), r, place_of(owner));
	if (r)
		return;
	r = cuMemcpyDtoH_v2(&word, ptr, sizeof(word));
	say("%s: a copy of it: %d, still there: %d", when, r, word == 0x1234);
}

static CUdeviceptr take_marked(int place, size_t bytes)
{
	CUdeviceptr ptr = take(place, bytes);

	CHECK(cuMemsetD32_v2(ptr, 0x1234, 4));
	CHECK(cuCtxSynchronize());
	return ptr;
}

static void destruction(void)
{
	CUdeviceptr ptr = take_marked(GREEN_A, 4 << 20), small = take_marked(GREEN_A, 512);

	CHECK(cuStreamDestroy_v2(places[GREEN_A].stream));
	CHECK(cuCtxSetCurrent(places[PRIMARY].ctx));
	say_end("destroy A", cuGreenCtxDestroy(places[GREEN_A].green));
	tell_pointer("after the destruction, 4 MiB", ptr);
	tell_pointer("after the destruction, 512 bytes", small);
	say("free in the primary: %d", cuMemFree_v2(ptr));
	say("free in the primary: %d", cuMemFree_v2(small));
}

/* Asks whether the destruction of A waits for running work of A, and whether a free does. */
static void destruction_with_work(void)
{
	struct attempt f = {.call = call_free, .arg = take(PRIMARY, 4 << 20), .ctx = places[PRIMARY].ctx};
	struct attempt d = {.call = call_green_destroy, .arg = GREEN_A, .ctx = places[PRIMARY].ctx};
	unsigned flag = make_busy(GREEN_A);
	bool is_destroyed, is_free_back;
	CUevent event = event_of(PRIMARY);
	CUresult r;

	attempt_begin(&d);
	is_destroyed = attempt_is_back_soon(&d);
	r = cuCtxRecordEvent(places[PRIMARY].ctx, event);
	say("the primary's record afterwards: %d, covers: %d", r, r ? -1 : !is_ready_soon(event));
	attempt_begin(&f);
	is_free_back = attempt_is_back_soon(&f);
	raise_flag(flag);
	pthread_join(d.thread, NULL);
	pthread_join(f.thread, NULL);
	say("destroy with work running: %d, waits: %d; a free then: %d, waits: %d", d.r, !is_destroyed, f.r,
		!is_free_back);
}

static void destruction_while_current(void)
{
	CUdeviceptr ptr = take(GREEN_A, 4 << 20), other = 0;
	CUcontext ctx = NULL;
	CUresult r;

	say_end("destroy A while it is current", cuGreenCtxDestroy(places[GREEN_A].green));
	r = cuCtxGetCurrent(&ctx);
	say("current afterwards: %d, %s", r, place_of(ctx));
	say("free of what was allocated in it: %d", cuMemFree_v2(ptr));
	say("cuMemAlloc: %d", cuMemAlloc_v2(&other, 4 << 20));
	say("cuCtxSetCurrent of it: %d", cuCtxSetCurrent(places[GREEN_A].ctx));
	say("a second destruction: %d", cuGreenCtxDestroy(places[GREEN_A].green));
}

static void destruction_as_a_context(void)
{
	say_end("cuCtxDestroy of B's context", cuCtxDestroy_v2(places[GREEN_B].ctx));
	say("cuCtxSetCurrent of it: %d", cuCtxSetCurrent(places[GREEN_B].ctx));
	say_end("cuGreenCtxDestroy of B", cuGreenCtxDestroy(places[GREEN_B].green));
}

/* The green contexts hold the primary context: asks which call releases it last. */
static void last_reference(void)
{
	CUdeviceptr ptr = take_marked(GREEN_A, 4 << 20);

	say_end("release of the primary", cuDevicePrimaryCtxRelease_v2(0));
	tell_pointer("after the release", ptr);
	say_end("destroy B", cuGreenCtxDestroy(places[GREEN_B].green));
	CHECK(cuCtxSetCurrent(places[PRIMARY].ctx));
	tell_pointer("after B", ptr);
	say_end("destroy A, the last", cuGreenCtxDestroy(places[GREEN_A].green));
	CHECK(cuDevicePrimaryCtxRetain(&places[PRIMARY].ctx, 0));
	CHECK(cuCtxSetCurrent(places[PRIMARY].ctx));
	tell_pointer("after the last", ptr);
}

static void resets(void)
{
	CUdeviceptr ptr = take(GREEN_A, 4 << 20), other = 0;
	CUcontext ctx = NULL;

	say_end("reset with green contexts", cuDevicePrimaryCtxReset_v2(0));
	say("cuMemAlloc with A current: %d", cuMemAlloc_v2(&other, 4 << 20));
	say("free of A's memory: %d", cuMemFree_v2(ptr));
	CHECK(cuDevicePrimaryCtxRetain(&ctx, 0));
	say("retained again: same handle: %d", ctx == places[PRIMARY].ctx);
	say("cuMemAlloc with A current: %d", cuMemAlloc_v2(&other, 4 << 20));
	say("cuCtxFromGreenCtx: %d", cuCtxFromGreenCtx(&ctx, places[GREEN_A].green));
	say_end("cuGreenCtxDestroy of A", cuGreenCtxDestroy(places[GREEN_A].green));
	say_end("cuGreenCtxDestroy of B", cuGreenCtxDestroy(places[GREEN_B].green));
	say_end("release", cuDevicePrimaryCtxRelease_v2(0));
	say_end("release", cuDevicePrimaryCtxRelease_v2(0));
}

static CUresult call_nothing(uint64_t unused)
{
	return CUDA_SUCCESS;
}

static void threads(void)
{
	struct attempt a = {.call = call_nothing, .ctx = places[GREEN_A].ctx};

	CHECK(cuCtxSetCurrent(places[GREEN_A].ctx));
	attempt_begin(&a);
	pthread_join(a.thread, NULL);
	say("cuCtxSetCurrent of a green context in a second thread: %d", a.r);
}

static const struct group groups[] = {
	{"identity", identity},
	{"owners", owners},
	{"covers", covers},
	{"orders", orders},
	{"later streams", orders_later_streams},
	{"later green contexts", orders_later_greens},
	{"NULL streams", null_streams},
	{"synchronizes", synchronizes},
	{"frees", frees},
	{"launches", launches},
	{"captures", captures},
	{"destruction", destruction},
	{"destruction with work", destruction_with_work},
	{"destruction while current", destruction_while_current},
	{"destruction as a context", destruction_as_a_context},
	{"last reference", last_reference},
	{"resets", resets},
	{"threads", threads},
};

int main(int argc, char **argv)
{
	run_groups(groups, sizeof(groups) / sizeof(groups[0]), start, argc > 1 ? argv[1] : NULL);
	return 0;
}
