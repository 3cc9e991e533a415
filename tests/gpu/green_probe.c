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
 * until the answer is known. Work that has not run after WAIT_LIMIT_MS counts as held back.
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

	for (int i = 0; i < N_CONTEXTS; i++) {
		r = cuCtxGetId(contexts[i].ctx, &id);
		print_line("id of %s: %d, %llu", context_names[i], r, id);
		CHECK(cuCtxSetCurrent(contexts[i].ctx));
		r = cuCtxGetCurrent(&ctx);
		print_line("current with %s current: %d, %s", context_names[i], r, name_of_context(ctx));
		r = cuCtxGetId(NULL, &id);
		print_line("id of the current: %d, %llu; device: %d", r, id, cuCtxGetDevice(&device));
		r = cuStreamGetCtx(contexts[i].stream, &ctx);
		print_line("context of its stream: %d, %s", r, name_of_context(ctx));
		green = NULL;
		r = cuStreamGetGreenCtx(contexts[i].stream, &green);
		print_line("green context of its stream: %d, its own: %d", r, green == contexts[i].green);
		r = cuStreamGetGreenCtx(NULL, &green);
		print_line("green context of the NULL stream: %d, its own: %d", r, green == contexts[i].green);
	}
	r = cuCtxFromGreenCtx(&ctx, contexts[GREEN_A].green);
	print_line("a second cuCtxFromGreenCtx: %d, same: %d", r, ctx == contexts[GREEN_A].ctx);
	print_line("launch of the primary's kernel in a green stream: %d",
		launch(contexts[PRIMARY].set, contexts[GREEN_A].stream, next_flag()));
	print_line("launch of a green kernel in the primary's stream: %d",
		launch(contexts[GREEN_A].set, contexts[PRIMARY].stream, next_flag()));
	print_line("launch of a green kernel in another green stream: %d",
		launch(contexts[GREEN_A].set, contexts[GREEN_B].stream, next_flag()));
}

static void owners(void)
{
	static const size_t sizes[] = {512, 4 << 20};
	size_t available[2], total;
	CUcontext owner = NULL;
	void *host;
	CUresult r;

	for (int i = 0; i < N_CONTEXTS; i++) {
		for (int k = 0; k < 2; k++) {
			CUdeviceptr ptr = alloc_in(i, sizes[k]);

			r = cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr);
			print_line("owner of %zu bytes allocated in %s: %d, %s", sizes[k], context_names[i], r,
				name_of_context(owner));
			for (int at = 0; at < N_CONTEXTS; at++) {
				ptr = alloc_in(i, sizes[k]);
				CHECK(cuCtxSetCurrent(contexts[at].ctx));
				print_line("  freed with %s current: %d", context_names[at], cuMemFree_v2(ptr));
			}
			ptr = alloc_in(i, sizes[k]);
			print_line("  freed on A's stream: %d", cuMemFreeAsync(ptr, contexts[GREEN_A].stream));
			CHECK(cuStreamSynchronize(contexts[GREEN_A].stream));
			CHECK(cuMemGetInfo_v2(&available[k], &total));
		}
		CHECK(cuMemHostAlloc(&host, 4096, 0));
		r = cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)(uintptr_t)host);
		print_line(
			"owner of pinned memory allocated in %s: %d, %s", context_names[i], r, name_of_context(owner));
	}
}

static CUresult record_primary(CUevent event)
{
	return cuCtxRecordEvent(contexts[PRIMARY].ctx, event);
}

static CUresult record_ctx_a(CUevent event)
{
	return cuCtxRecordEvent(contexts[GREEN_A].ctx, event);
}

static CUresult record_green_a(CUevent event)
{
	return cuGreenCtxRecordEvent(contexts[GREEN_A].green, event);
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
			for (int busy = 0; busy < N_CONTEXTS; busy++) {
				CUevent event = event_of(of);
				unsigned flag = make_busy(busy);
				CUresult r = records[i].record(event);

				print_line("%s, event of %s, %s busy: %d, covers: %d", records[i].name,
					context_names[of], context_names[busy], r, r ? -1 : !is_ready_soon(event));
				raise_flag(flag);
				CHECK(cuStreamSynchronize(contexts[busy].stream));
				if (!r && !is_ready_soon(event))
					print_line("  and is not ready afterwards");
			}
		}
	}
}

static CUresult wait_primary(CUevent event)
{
	return cuCtxWaitEvent(contexts[PRIMARY].ctx, event);
}

static CUresult wait_ctx_a(CUevent event)
{
	return cuCtxWaitEvent(contexts[GREEN_A].ctx, event);
}

static CUresult wait_green_a(CUevent event)
{
	return cuGreenCtxWaitEvent(contexts[GREEN_A].green, event);
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
	CUresult r = cuCtxRecordEvent(contexts[PRIMARY].ctx, event);

	if (!r)
		r = waits[how].wait(event);
	CHECK(cuCtxSetCurrent(contexts[later].ctx));
	CHECK(launch(contexts[later].set, stream, mark));
	print_line("%s on a record of %s's work, later %s of %s: %d, held back: %d", waits[how].name,
		context_names[busy], stream ? "stream" : "NULL stream", context_names[later], r, !is_set_soon(mark));
	raise_flag(flag);
	for (int i = 0; i < N_CONTEXTS; i++)
		CHECK(cuStreamSynchronize(contexts[i].stream));
	CHECK(cuCtxSynchronize());
	if (!flag_value(mark))
		print_line("  and never ran");
}

static void orders(void)
{
	for (int how = 0; how < 3; how++)
		for (int busy = 0; busy < N_CONTEXTS; busy++)
			for (int later = 0; later < N_CONTEXTS; later++)
				if (later != busy)
					orders_row(how, busy, later, contexts[later].stream);
	for (int later = 0; later < N_CONTEXTS; later++)
		orders_row(0, later == PRIMARY, later, NULL);
}

/* Asks about a stream that is created after the wait, in each context. */
static void orders_later_streams(void)
{
	for (int later = 0; later < N_CONTEXTS; later++) {
		CUevent event = event_of(PRIMARY);
		int busy = later == GREEN_A ? PRIMARY : GREEN_A;
		unsigned flag = make_busy(busy), mark = next_flag();
		CUstream stream = NULL;

		CHECK(cuCtxRecordEvent(contexts[PRIMARY].ctx, event));
		CHECK(cuCtxWaitEvent(contexts[PRIMARY].ctx, event));
		CHECK(cuCtxSetCurrent(contexts[later].ctx));
		CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		CHECK(launch(contexts[later].set, stream, mark));
		print_line("a stream made in %s after a wait for %s's work: held back: %d", context_names[later],
			context_names[busy], !is_set_soon(mark));
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

	CHECK(cuStreamDestroy_v2(contexts[GREEN_A].stream));
	CHECK(cuGreenCtxDestroy(contexts[GREEN_A].green));
	flag = make_busy(PRIMARY);
	CHECK(cuCtxRecordEvent(contexts[PRIMARY].ctx, event));
	CHECK(cuCtxWaitEvent(contexts[PRIMARY].ctx, event));
	make_green(GREEN_A);
	print_line(
		"a green context made after a wait for the primary's work, which goes on: %d", !is_ready_soon(event));
	CHECK(launch(contexts[GREEN_B].set, contexts[GREEN_A].stream, mark));
	is_held_back = !is_set_soon(mark);
	print_line("its later work: held back: %d, while the earlier goes on: %d", is_held_back, !is_ready_soon(event));
	raise_flag(flag);
	CHECK(cuStreamSynchronize(contexts[GREEN_A].stream));
}

/* Asks whether work on the NULL stream of one context waits for work on that of another. */
static void null_streams(void)
{
	for (int first = 0; first < N_CONTEXTS; first++) {
		for (int second = 0; second < N_CONTEXTS; second++) {
			unsigned flag = next_flag(), mark = next_flag();

			if (first == second)
				continue;
			CHECK(cuCtxSetCurrent(contexts[first].ctx));
			CHECK(launch(contexts[first].wait, NULL, flag));
			CHECK(cuCtxSetCurrent(contexts[second].ctx));
			CHECK(launch(contexts[second].set, NULL, mark));
			print_line("NULL stream of %s behind that of %s: held back: %d", context_names[second],
				context_names[first], !is_set_soon(mark));
			raise_flag(flag);
			CHECK(cuCtxSynchronize());
			CHECK(cuCtxSetCurrent(contexts[first].ctx));
			CHECK(cuCtxSynchronize());
		}
	}
}

static void synchronizes(void)
{
	for (int at = 0; at < N_CONTEXTS; at++) {
		for (int busy = 0; busy < N_CONTEXTS; busy++) {
			struct attempt a = {.call = call_synchronize, .ctx = contexts[at].ctx};
			unsigned flag = make_busy(busy);
			bool has_returned;

			attempt_begin(&a);
			has_returned = attempt_returns_soon(&a);
			raise_flag(flag);
			pthread_join(a.thread, NULL);
			print_line("cuCtxSynchronize in %s, %s busy: %d, waits: %d", context_names[at],
				context_names[busy], a.r, !has_returned);
		}
	}
}

static void free_row(int of, int at, int busy)
{
	CUdeviceptr ptr = alloc_in(of, 4 << 20);
	struct attempt a = {.call = call_free, .arg = ptr, .ctx = contexts[at].ctx};
	unsigned flag = make_busy(busy);
	bool has_returned;

	/* A green context can be current in only one thread at a time. */
	CHECK(cuCtxSetCurrent(contexts[PRIMARY].ctx));
	attempt_begin(&a);
	has_returned = attempt_returns_soon(&a);
	raise_flag(flag);
	pthread_join(a.thread, NULL);
	CHECK(cuStreamSynchronize(contexts[busy].stream));
	print_line("free of %s's memory in %s, %s busy: %d, waits: %d", context_names[of], context_names[at],
		context_names[busy], a.r, !has_returned);
}

static void frees(void)
{
	for (int of = PRIMARY; of <= GREEN_A; of++)
		for (int at = PRIMARY; at <= GREEN_A; at++)
			for (int busy = 0; busy < N_CONTEXTS; busy++)
				free_row(of, at, busy);
}

static CUresult call_green_destroy(uint64_t context)
{
	return cuGreenCtxDestroy(contexts[context].green);
}

static CUresult call_launch(uint64_t where)
{
	return launch(contexts[where >> 32].set, contexts[where >> 32].stream, (unsigned)where);
}

/* Asks whether a thread can launch while another is inside a free that waits for a spinning kernel. */
static void launches_row(int busy, int where)
{
	struct attempt f = {.call = call_free, .arg = alloc_in(PRIMARY, 4 << 20), .ctx = contexts[PRIMARY].ctx};
	unsigned flag = make_busy(busy), mark = next_flag();
	struct attempt l = {.call = call_launch, .arg = (uint64_t)where << 32 | mark, .ctx = contexts[where].ctx};
	bool is_free_back, is_launched, has_run;

	attempt_begin(&f);
	is_free_back = attempt_returns_soon(&f);
	attempt_begin(&l);
	is_launched = attempt_returns_soon(&l);
	has_run = is_set_soon(mark);
	raise_flag(flag);
	pthread_join(f.thread, NULL);
	pthread_join(l.thread, NULL);
	CHECK(cuStreamSynchronize(contexts[busy].stream));
	CHECK(cuStreamSynchronize(contexts[where].stream));
	print_line("a free waits (%d) for %s; a launch in %s: %d, returns: %d, runs: %d", !is_free_back,
		context_names[busy], context_names[where], l.r, is_launched, has_run);
}

static void launches(void)
{
	for (int busy = 0; busy < N_CONTEXTS; busy++)
		for (int where = 0; where < N_CONTEXTS; where++)
			if (where != busy)
				launches_row(busy, where);
}

static void captures(void)
{
	for (int capturing = 0; capturing < N_CONTEXTS; capturing++) {
		for (int i = 0; i < 3; i++) {
			CUevent event = event_of(i == 0 ? PRIMARY : GREEN_A);
			CUgraph graph = NULL;
			CUresult r;

			CHECK(cuStreamBeginCapture_v2(contexts[capturing].stream, CU_STREAM_CAPTURE_MODE_RELAXED));
			r = records[i].record(event);
			print_line("%s while %s captures: %d, end: %d", records[i].name, context_names[capturing], r,
				cuStreamEndCapture(contexts[capturing].stream, &graph));
		}
	}
}

static void print_pointer(const char *when, CUdeviceptr ptr)
{
	CUcontext owner = NULL;
	uint32_t word = 0;
	CUresult r = cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr);

	print_line("%s: primary active: %d, owner: %d, %s", when, state(), r, name_of_context(owner));
	if (r)
		return;
	r = cuMemcpyDtoH_v2(&word, ptr, sizeof(word));
	print_line("%s: a copy of it: %d, still there: %d", when, r, word == 0x1234);
}

static CUdeviceptr alloc_marked(int context, size_t bytes)
{
	CUdeviceptr ptr = alloc_in(context, bytes);

	CHECK(cuMemsetD32_v2(ptr, 0x1234, 4));
	CHECK(cuCtxSynchronize());
	return ptr;
}

static void destruction(void)
{
	CUdeviceptr ptr = alloc_marked(GREEN_A, 4 << 20), small = alloc_marked(GREEN_A, 512);

	CHECK(cuStreamDestroy_v2(contexts[GREEN_A].stream));
	CHECK(cuCtxSetCurrent(contexts[PRIMARY].ctx));
	print_end("destroy A", cuGreenCtxDestroy(contexts[GREEN_A].green));
	print_pointer("after the destruction, 4 MiB", ptr);
	print_pointer("after the destruction, 512 bytes", small);
	print_line("free in the primary: %d", cuMemFree_v2(ptr));
	print_line("free in the primary: %d", cuMemFree_v2(small));
}

/* Asks whether the destruction of A waits for running work of A, and whether a free does. */
static void destruction_with_work(void)
{
	struct attempt f = {.call = call_free, .arg = alloc_in(PRIMARY, 4 << 20), .ctx = contexts[PRIMARY].ctx};
	struct attempt d = {.call = call_green_destroy, .arg = GREEN_A, .ctx = contexts[PRIMARY].ctx};
	unsigned flag = make_busy(GREEN_A);
	bool is_destroyed, is_free_back;
	CUevent event = event_of(PRIMARY);
	CUresult r;

	attempt_begin(&d);
	is_destroyed = attempt_returns_soon(&d);
	r = cuCtxRecordEvent(contexts[PRIMARY].ctx, event);
	print_line("the primary's record afterwards: %d, covers: %d", r, r ? -1 : !is_ready_soon(event));
	attempt_begin(&f);
	is_free_back = attempt_returns_soon(&f);
	raise_flag(flag);
	pthread_join(d.thread, NULL);
	pthread_join(f.thread, NULL);
	print_line("destroy with work running: %d, waits: %d; a free then: %d, waits: %d", d.r, !is_destroyed, f.r,
		!is_free_back);
}

static void destruction_while_current(void)
{
	CUdeviceptr ptr = alloc_in(GREEN_A, 4 << 20), other = 0;
	CUcontext ctx = NULL;
	CUresult r;

	print_end("destroy A while it is current", cuGreenCtxDestroy(contexts[GREEN_A].green));
	r = cuCtxGetCurrent(&ctx);
	print_line("current afterwards: %d, %s", r, name_of_context(ctx));
	print_line("free of what was allocated in it: %d", cuMemFree_v2(ptr));
	print_line("cuMemAlloc: %d", cuMemAlloc_v2(&other, 4 << 20));
	print_line("cuCtxSetCurrent of it: %d", cuCtxSetCurrent(contexts[GREEN_A].ctx));
	print_line("a second destruction: %d", cuGreenCtxDestroy(contexts[GREEN_A].green));
}

static void destruction_as_a_context(void)
{
	print_end("cuCtxDestroy of B's context", cuCtxDestroy_v2(contexts[GREEN_B].ctx));
	print_line("cuCtxSetCurrent of it: %d", cuCtxSetCurrent(contexts[GREEN_B].ctx));
	print_end("cuGreenCtxDestroy of B", cuGreenCtxDestroy(contexts[GREEN_B].green));
}

/* The green contexts hold the primary context: asks which call releases it last. */
static void last_reference(void)
{
	CUdeviceptr ptr = alloc_marked(GREEN_A, 4 << 20);

	print_end("release of the primary", cuDevicePrimaryCtxRelease_v2(0));
	print_pointer("after the release", ptr);
	print_end("destroy B", cuGreenCtxDestroy(contexts[GREEN_B].green));
	CHECK(cuCtxSetCurrent(contexts[PRIMARY].ctx));
	print_pointer("after B", ptr);
	print_end("destroy A, the last", cuGreenCtxDestroy(contexts[GREEN_A].green));
	CHECK(cuDevicePrimaryCtxRetain(&contexts[PRIMARY].ctx, 0));
	CHECK(cuCtxSetCurrent(contexts[PRIMARY].ctx));
	print_pointer("after the last", ptr);
}

static void resets(void)
{
	CUdeviceptr ptr = alloc_in(GREEN_A, 4 << 20), other = 0;
	CUcontext ctx = NULL;

	print_end("reset with green contexts", cuDevicePrimaryCtxReset_v2(0));
	print_line("cuMemAlloc with A current: %d", cuMemAlloc_v2(&other, 4 << 20));
	print_line("free of A's memory: %d", cuMemFree_v2(ptr));
	CHECK(cuDevicePrimaryCtxRetain(&ctx, 0));
	print_line("retained again: same handle: %d", ctx == contexts[PRIMARY].ctx);
	print_line("cuMemAlloc with A current: %d", cuMemAlloc_v2(&other, 4 << 20));
	print_line("cuCtxFromGreenCtx: %d", cuCtxFromGreenCtx(&ctx, contexts[GREEN_A].green));
	print_end("cuGreenCtxDestroy of A", cuGreenCtxDestroy(contexts[GREEN_A].green));
	print_end("cuGreenCtxDestroy of B", cuGreenCtxDestroy(contexts[GREEN_B].green));
	print_end("release", cuDevicePrimaryCtxRelease_v2(0));
	print_end("release", cuDevicePrimaryCtxRelease_v2(0));
}

static CUresult call_nothing(uint64_t unused)
{
	return CUDA_SUCCESS;
}

static void threads(void)
{
	struct attempt a = {.call = call_nothing, .ctx = contexts[GREEN_A].ctx};

	CHECK(cuCtxSetCurrent(contexts[GREEN_A].ctx));
	attempt_begin(&a);
	pthread_join(a.thread, NULL);
	print_line("cuCtxSetCurrent of a green context in a second thread: %d", a.r);
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
