/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Asks a GPU about green contexts, and about contexts that are attached: whose memory is it, what do context-wide
 * records, waits and synchronisations cover, for what does a free wait, and what ends when. Each answer is a line.
 *
 *   cc -std=gnu11 -O2 -I. -o green_probe tests/gpu/green_probe.c -ldl -lpthread && ./green_probe
 *
 * Needs no toolkit. Each group of questions runs in a process of its own, with a time limit. To keep a stream busy a
 * kernel spins on a flag until the answer is in; what has not happened after PATIENCE_MS counts as held back.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/apps/green_abi.h"
#include "tests/apps/kernels.h"

enum { PATIENCE_MS = 250, GROUP_LIMIT_S = 90, N_FLAGS = 512, SMS = 16 };

typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;

/* One row per function that is called: its name and its parameters. */
#define FUNCTIONS(FUNCTION)                                                                                            \
	FUNCTION(cuInit, (unsigned flags))                                                                             \
	FUNCTION(cuDriverGetVersion, (int *version))                                                                   \
	FUNCTION(cuDevicePrimaryCtxRetain, (CUcontext * ctx, CUdevice device))                                         \
	FUNCTION(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                      \
	FUNCTION(cuDevicePrimaryCtxReset_v2, (CUdevice device))                                                        \
	FUNCTION(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active))                          \
	FUNCTION(cuCtxCreate_v2, (CUcontext * ctx, unsigned flags, CUdevice device))                                   \
	FUNCTION(cuCtxDestroy_v2, (CUcontext ctx))                                                                     \
	FUNCTION(cuCtxAttach, (CUcontext * ctx, unsigned flags))                                                       \
	FUNCTION(cuCtxDetach, (CUcontext ctx))                                                                         \
	FUNCTION(cuCtxSetCurrent, (CUcontext ctx))                                                                     \
	FUNCTION(cuCtxGetCurrent, (CUcontext * ctx))                                                                   \
	FUNCTION(cuCtxGetDevice, (CUdevice * device))                                                                  \
	FUNCTION(cuCtxGetId, (CUcontext ctx, unsigned long long *id))                                                  \
	FUNCTION(cuCtxSynchronize, (void))                                                                             \
	FUNCTION(cuCtxRecordEvent, (CUcontext ctx, CUevent event))                                                     \
	FUNCTION(cuCtxWaitEvent, (CUcontext ctx, CUevent event))                                                       \
	FUNCTION(cuEventCreate, (CUevent * event, unsigned flags))                                                     \
	FUNCTION(cuEventQuery, (CUevent event))                                                                        \
	FUNCTION(cuMemAlloc_v2, (CUdeviceptr * ptr, size_t bytes))                                                     \
	FUNCTION(cuMemFree_v2, (CUdeviceptr ptr))                                                                      \
	FUNCTION(cuMemFreeAsync, (CUdeviceptr ptr, CUstream stream))                                                   \
	FUNCTION(cuMemHostAlloc, (void **ptr, size_t bytes, unsigned flags))                                           \
	FUNCTION(cuMemFreeHost, (void *ptr))                                                                           \
	FUNCTION(cuMemGetInfo_v2, (size_t *available, size_t *total))                                                  \
	FUNCTION(cuMemsetD32_v2, (CUdeviceptr ptr, unsigned value, size_t n))                                          \
	FUNCTION(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))                                          \
	FUNCTION(cuPointerGetAttribute, (void *data, int attribute, CUdeviceptr ptr))                                  \
	FUNCTION(cuStreamCreate, (CUstream * stream, unsigned flags))                                                  \
	FUNCTION(cuStreamDestroy_v2, (CUstream stream))                                                                \
	FUNCTION(cuStreamSynchronize, (CUstream stream))                                                               \
	FUNCTION(cuStreamGetCtx, (CUstream stream, CUcontext * ctx))                                                   \
	FUNCTION(cuStreamBeginCapture_v2, (CUstream stream, int mode))                                                 \
	FUNCTION(cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                               \
	FUNCTION(cuModuleLoadData, (CUmodule * module, const void *image))                                             \
	FUNCTION(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))                      \
	FUNCTION(cuLaunchKernel,                                                                                       \
		(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,    \
			unsigned shared, CUstream stream, void **params, void **extra))                                \
	FUNCTION(cuDeviceGetDevResource, (CUdevice device, CUdevResource * resource, int type))                        \
	FUNCTION(cuDevSmResourceSplitByCount,                                                                          \
		(CUdevResource * result, unsigned *n, const CUdevResource *input, CUdevResource *rest, unsigned flags, \
			unsigned sms))                                                                                 \
	FUNCTION(cuDevResourceGenerateDesc, (CUdevResourceDesc * desc, CUdevResource * resources, unsigned n))         \
	FUNCTION(cuGreenCtxCreate, (CUgreenCtx * green, CUdevResourceDesc desc, CUdevice device, unsigned flags))      \
	FUNCTION(cuGreenCtxDestroy, (CUgreenCtx green))                                                                \
	FUNCTION(cuCtxFromGreenCtx, (CUcontext * ctx, CUgreenCtx green))                                               \
	FUNCTION(cuGreenCtxStreamCreate, (CUstream * stream, CUgreenCtx green, unsigned flags, int priority))          \
	FUNCTION(cuGreenCtxRecordEvent, (CUgreenCtx green, CUevent event))                                             \
	FUNCTION(cuGreenCtxWaitEvent, (CUgreenCtx green, CUevent event))                                               \
	FUNCTION(cuStreamGetGreenCtx, (CUstream stream, CUgreenCtx * green))

#define FUNCTION(name, parameters) static CUresult(*name) parameters;
FUNCTIONS(FUNCTION)
#undef FUNCTION

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

static void check(CUresult r, const char *what)
{
	if (r == CUDA_SUCCESS)
		return;
	say("stopped: %s: error %d", what, r);
	_exit(1);
}

#define CHECK(call) check((call), #call)

static bool load(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	bool is_complete = driver;

#define FUNCTION(name, parameters)                                                                                     \
	*(void **)&name = driver ? dlsym(driver, #name) : NULL;                                                        \
	if (driver && !name)                                                                                           \
		say("missing: %s", #name);                                                                             \
	is_complete = is_complete && name;
	FUNCTIONS(FUNCTION)
#undef FUNCTION
	return is_complete;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The places where work can be: the primary context and two green ones. */
enum { PRIMARY, GREEN_A, GREEN_B, N_PLACES };
static const char *const place_names[N_PLACES] = {"primary", "green A", "green B"};

static struct place {
	CUgreenCtx green; /* NULL: the primary context */
	CUcontext ctx;
	CUstream stream;
	CUfunction wait, set;
} places[N_PLACES];

static uint32_t *flags; /* pinned; what kernels wait for and set */
static unsigned n_flags;

static unsigned next_flag(void)
{
	if (n_flags == N_FLAGS)
		_exit(2);
	return n_flags++;
}

static uint32_t flag_value(unsigned flag)
{
	return __atomic_load_n(&flags[flag], __ATOMIC_ACQUIRE);
}

static void raise_flag(unsigned flag)
{
	__atomic_store_n(&flags[flag], 1, __ATOMIC_RELEASE);
}

static CUresult launch(CUfunction function, CUstream stream, unsigned flag)
{
	uint64_t ptr = (uint64_t)(uintptr_t)&flags[flag];
	uint32_t one = 1;
	void *params[] = {&ptr, &one};

	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

/* Keeps a place's stream busy until the flag is raised. */
static unsigned make_busy(int place)
{
	unsigned flag = next_flag();

	CHECK(launch(places[place].wait, places[place].stream, flag));
	return flag;
}

static bool is_set_soon(unsigned flag)
{
	long end = now_ms() + PATIENCE_MS;

	while (!flag_value(flag) && now_ms() < end) {
		/* A simulated GPU works while it is called. */
		for (int i = 0; i < 1000; i++)
			(void)cuCtxGetCurrent(&(CUcontext){NULL});
		usleep(1000);
	}
	return flag_value(flag);
}

static bool is_ready_soon(CUevent event)
{
	long end = now_ms() + PATIENCE_MS;

	while (cuEventQuery(event) == CUDA_ERROR_NOT_READY && now_ms() < end)
		usleep(1000);
	return cuEventQuery(event) == CUDA_SUCCESS;
}

static void load_kernels(struct place *place)
{
	CUmodule module;

	CHECK(cuCtxSetCurrent(place->ctx));
	CHECK(cuModuleLoadData(&module, kernels_ptx));
	CHECK(cuModuleGetFunction(&place->wait, module, "wait_flag"));
	CHECK(cuModuleGetFunction(&place->set, module, "set_flag"));
}

/* Everything is launched once before it matters, since a first launch may load, and so wait. */
static void warm_up(struct place *place)
{
	unsigned flag = next_flag();

	CHECK(cuCtxSetCurrent(place->ctx));
	CHECK(launch(place->set, place->stream, flag));
	CHECK(launch(place->wait, place->stream, flag));
	CHECK(cuStreamSynchronize(place->stream));
}

static void make_green(int place)
{
	CUdevResource all, parts[2], rest;
	CUdevResourceDesc desc;
	unsigned n = 2;

	CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	CHECK(cuDevSmResourceSplitByCount(parts, &n, &all, &rest, 0, SMS));
	CHECK(cuDevResourceGenerateDesc(&desc, &parts[place - GREEN_A], 1));
	CHECK(cuGreenCtxCreate(&places[place].green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	CHECK(cuCtxFromGreenCtx(&places[place].ctx, places[place].green));
	CHECK(cuGreenCtxStreamCreate(&places[place].stream, places[place].green, CU_STREAM_NON_BLOCKING, 0));
}

static void start(void)
{
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&places[PRIMARY].ctx, 0));
	CHECK(cuCtxSetCurrent(places[PRIMARY].ctx));
	CHECK(cuStreamCreate(&places[PRIMARY].stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemHostAlloc((void **)&flags, N_FLAGS * sizeof(*flags), CU_MEMHOSTALLOC_PORTABLE));
	memset(flags, 0, N_FLAGS * sizeof(*flags));
	make_green(GREEN_A);
	make_green(GREEN_B);
	for (int i = 0; i < N_PLACES; i++)
		load_kernels(&places[i]);
	for (int i = 0; i < N_PLACES; i++)
		warm_up(&places[i]);
	CHECK(cuCtxSetCurrent(places[PRIMARY].ctx));
}

static const char *place_of(CUcontext ctx)
{
	for (int i = 0; i < N_PLACES; i++)
		if (places[i].ctx == ctx)
			return place_names[i];
	return ctx ? "another" : "none";
}

static CUdeviceptr take(int place, size_t bytes)
{
	CUdeviceptr ptr = 0;

	CHECK(cuCtxSetCurrent(places[place].ctx));
	CHECK(cuMemAlloc_v2(&ptr, bytes));
	return ptr;
}

static CUevent event_of(int place)
{
	CUevent event = NULL;

	CHECK(cuCtxSetCurrent(places[place].ctx));
	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	return event;
}

/* A call that may wait, in a thread of its own with a place current. */
struct attempt {
	CUresult (*call)(uint64_t arg);
	uint64_t arg;
	CUcontext ctx;
	CUresult r;
	_Atomic bool is_back;
	pthread_t thread;
};

static void *attempt_main(void *arg)
{
	struct attempt *a = arg;

	a->r = cuCtxSetCurrent(a->ctx);
	if (!a->r)
		a->r = a->call(a->arg);
	a->is_back = true;
	return NULL;
}

static void attempt_begin(struct attempt *a)
{
	if (pthread_create(&a->thread, NULL, attempt_main, a))
		_exit(2);
}

static bool attempt_is_back_soon(struct attempt *a)
{
	long end = now_ms() + PATIENCE_MS;

	while (!a->is_back && now_ms() < end)
		usleep(1000);
	return a->is_back;
}

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

/* The event is one of the primary's, and one of A's. */
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

/* A stream made after the wait, in each place. */
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

/* A green context made after the wait. Should the making wait for what spins, the time limit ends this group. */
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

/* Whether the NULL streams of two places follow each other. */
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

	/* A green context may be current to one thread at a time. */
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

/* While one thread is inside a free behind a spinning kernel, can another launch? */
static void launches_row(int busy, int where)
{
	struct attempt f = {.call = call_free, .arg = take(PRIMARY, 4 << 20), .ctx = places[PRIMARY].ctx};
	unsigned flag = make_busy(busy), mark = next_flag();
	struct attempt l = {
		.call = call_launch, .arg = (uint64_t)where << 32 | mark, .ctx = places[where].ctx};
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

static int state(void)
{
	unsigned state_flags;
	int active = -1;

	CHECK(cuDevicePrimaryCtxGetState(0, &state_flags, &active));
	return active;
}

/* A call that may end the primary context, and what it did to it. */
static void say_end(const char *what, CUresult r)
{
	say("%s: %d, primary active: %d", what, r, state());
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

/* Work of A that is still running when A is destroyed: is it waited for, and does a free wait for it? */
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

/* The green contexts hold the primary one: who lets go of it last? */
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

/* Contexts with a usage count. */
static CUcontext attach_begin(void)
{
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&places[PRIMARY].ctx, 0));
	CHECK(cuCtxCreate_v2(&places[GREEN_A].ctx, 0, 0));
	return places[GREEN_A].ctx;
}

static void tell_current(CUcontext ctx)
{
	CUcontext now = NULL;
	CUresult r = cuCtxGetCurrent(&now);

	say("current: %d, the same: %d, none: %d", r, now == ctx, !now);
}

static void attached(void)
{
	CUcontext ctx = attach_begin(), same = NULL;
	CUdeviceptr ptr = 0;
	CUresult r;

	CHECK(cuMemAlloc_v2(&ptr, 4 << 20));
	r = cuCtxAttach(&same, 0);
	say("attach: %d, same: %d", r, same == ctx);
	say("attach with flags: %d", cuCtxAttach(&same, 1));
	CHECK(cuCtxSetCurrent(NULL));
	say("attach with none current: %d", cuCtxAttach(&same, 0));
	say("detach with none current: %d", cuCtxDetach(ctx));
	say("set current: %d", cuCtxSetCurrent(ctx));
	say("detach, the first: %d", cuCtxDetach(ctx));
	tell_current(ctx);
	say("free: %d", cuMemFree_v2(ptr));
	say("alloc: %d", cuMemAlloc_v2(&ptr, 4 << 20));
	say("detach, the second: %d", cuCtxDetach(ctx));
	tell_current(ctx);
	say("alloc: %d", cuMemAlloc_v2(&ptr, 4 << 20));
	say("set current: %d", cuCtxSetCurrent(ctx));
	say("detach, the third: %d", cuCtxDetach(ctx));
}

static void attached_primary(void)
{
	CUcontext ctx = attach_begin(), same = NULL;

	CHECK(cuCtxSetCurrent(places[PRIMARY].ctx));
	say_end("attach of the primary", cuCtxAttach(&same, 0));
	say_end("detach of the primary", cuCtxDetach(places[PRIMARY].ctx));
	say_end("detach again", cuCtxDetach(places[PRIMARY].ctx));
	CHECK(cuCtxSetCurrent(ctx));
	say("attach: %d", cuCtxAttach(&same, 0));
	say("destroy of what is attached twice: %d", cuCtxDestroy_v2(ctx));
	tell_current(ctx);
	say("detach of NULL: %d", cuCtxDetach(NULL));
	say("set current: %d", cuCtxSetCurrent(ctx));
	say("detach: %d", cuCtxDetach(ctx));
}

/* What can be done in a context that is gone: kept is memory of another one, which is not. */
static void tell_gone(CUcontext ctx, CUdeviceptr kept)
{
	unsigned long long id = 0;
	size_t available, total;
	CUdeviceptr ptr = 0;
	CUcontext now = NULL;
	CUevent event;
	CUstream stream;
	void *host;
	CUresult r;

	r = cuCtxGetCurrent(&now);
	say("current: %d, still: %d", r, now == ctx);
	r = cuCtxGetId(ctx, &id);
	say("id: %d, %llu", r, id);
	r = cuCtxGetId(NULL, &id);
	say("id of the current: %d, %llu", r, id);
	say("device: %d", cuCtxGetDevice(&(CUdevice){0}));
	say("alloc: %d", cuMemAlloc_v2(&ptr, 4 << 20));
	say("alloc of nothing: %d", cuMemAlloc_v2(&ptr, 0));
	say("pinned alloc: %d", cuMemHostAlloc(&host, 4096, 0));
	say("memory info: %d", cuMemGetInfo_v2(&available, &total));
	say("synchronise: %d", cuCtxSynchronize());
	say("stream: %d", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	say("event: %d", cuEventCreate(&event, 0));
	say("attribute of another's memory: %d", cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_CONTEXT, kept));
	say("free of NULL: %d", cuMemFree_v2(0));
	say("free of another's memory: %d", cuMemFree_v2(kept));
	say("pinned free of NULL: %d", cuMemFreeHost(NULL));
	say("set current to the same: %d", cuCtxSetCurrent(ctx));
}

static CUdeviceptr kept_ptr;

/* A context that ends while another thread works in it. */
static CUresult call_work(uint64_t unused)
{
	CUdeviceptr ptr = 0;
	CUresult r = cuMemAlloc_v2(&ptr, 4 << 20);

	say("a thread in it: alloc: %d", r);
	raise_flag(0);
	while (!flag_value(1))
		usleep(1000);
	say("its context is gone: free: %d", cuMemFree_v2(ptr));
	tell_gone(places[GREEN_A].ctx, kept_ptr);
	say("set current to the primary: %d", cuCtxSetCurrent(places[PRIMARY].ctx));
	say("free of its memory: %d", cuMemFree_v2(kept_ptr));
	return CUDA_SUCCESS;
}

static void ended_elsewhere(void)
{
	static uint32_t two[2];
	struct attempt a = {.call = call_work};

	flags = two;
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&places[PRIMARY].ctx, 0));
	kept_ptr = take(PRIMARY, 4 << 20);
	CHECK(cuCtxCreate_v2(&a.ctx, 0, 0));
	places[GREEN_A].ctx = a.ctx;
	attempt_begin(&a);
	while (!flag_value(0))
		usleep(1000);
	say("destroy: %d", cuCtxDestroy_v2(a.ctx));
	raise_flag(1);
	pthread_join(a.thread, NULL);
}

static void primary_gone(void)
{
	CUdeviceptr ptr, beside;
	CUcontext second = attach_begin();

	beside = take(GREEN_A, 4 << 20);
	ptr = take(PRIMARY, 4 << 20);
	say_end("release", cuDevicePrimaryCtxRelease_v2(0));
	tell_gone(places[PRIMARY].ctx, beside);
	say("free of its own: %d", cuMemFree_v2(ptr));
	say("in the second: %d", cuCtxSetCurrent(second));
	say("free of its own: %d", cuMemFree_v2(ptr));
	say_end("release too many", cuDevicePrimaryCtxRelease_v2(0));
	CHECK(cuDevicePrimaryCtxRetain(&places[PRIMARY].ctx, 0));
	say_end("reset", cuDevicePrimaryCtxReset_v2(0));
	say_end("reset of what is not active", cuDevicePrimaryCtxReset_v2(0));
	say_end("release after the reset", cuDevicePrimaryCtxRelease_v2(0));
	say("id: %d", cuCtxGetId(places[PRIMARY].ctx, &(unsigned long long){0}));
}

static const struct group {
	const char *name;
	void (*run)(void);
	bool needs_no_green;
} groups[] = {
	{"attached", attached, true},
	{"attached primary", attached_primary, true},
	{"ended elsewhere", ended_elsewhere, true},
	{"primary gone", primary_gone, true},
	{"identity", identity, false},
	{"owners", owners, false},
	{"covers", covers, false},
	{"orders", orders, false},
	{"later streams", orders_later_streams, false},
	{"later green contexts", orders_later_greens, false},
	{"NULL streams", null_streams, false},
	{"synchronizes", synchronizes, false},
	{"frees", frees, false},
	{"launches", launches, false},
	{"captures", captures, false},
	{"destruction", destruction, false},
	{"destruction with work", destruction_with_work, false},
	{"destruction while current", destruction_while_current, false},
	{"destruction as a context", destruction_as_a_context, false},
	{"last reference", last_reference, false},
	{"resets", resets, false},
	{"threads", threads, false},
};

static void run(const struct group *group)
{
	int status = 0;
	pid_t child;

	say("== %s", group->name);
	child = fork();
	if (child == 0) {
		alarm(GROUP_LIMIT_S);
		setenv("CUDA_MODULE_LOADING", "EAGER", 1);
		if (!load())
			_exit(3);
		if (!group->needs_no_green)
			start();
		group->run();
		_exit(0);
	}
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		say("ended by signal %d", WTERMSIG(status));
	else if (WEXITSTATUS(status))
		say("ended with status %d", WEXITSTATUS(status));
}

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		if (argc < 2 || strcmp(argv[1], groups[i].name) == 0)
			run(&groups[i]);
	return 0;
}
