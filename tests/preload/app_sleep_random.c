/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A random program that is put to sleep at random points. Each block has one value in all of its words, which the
 * program knows, and compares now and then. The simulated driver sees every race and every use of memory that is away.
 * tests/soak/sleeps.py runs many of these programs.
 *
 *   APP_SEED=N     another program (1)
 *   APP_CYCLES=N   ends after that many sleeps, each of which the next work ends (100)
 */

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "api/gpupool.h"
#include "app_driver.h"
#include "tests/apps/kernels.h"
#include "tests/sim/abi.h"

enum { N_BLOCKS = 8, N_STREAMS = 3, N_PLACES = 2, N_GRAPHS = 2, TIMEOUT_MS = 60000, STEPS_A_CYCLE = 64 };

/* A context, and what works there. */
struct place {
	CUcontext ctx;
	CUfunction fill, slow_fill;
	CUstream streams[N_STREAMS];
	CUevent event;
};

/* The work of each block is in the order of its stream. */
struct block {
	CUdeviceptr ptr;
	size_t bytes;
	uint32_t value;
	struct place *place;
	CUstream stream;
	bool is_in_region, is_in_stream_order;
};

/* Sets the block to its value. It may take the value from memory that was freed while the graph was captured. */
struct graph {
	CUgraphExec exec;
	struct block *block;
	uint32_t value;
	bool reads_freed;
};

struct program {
	unsigned random;
	struct place *places;
	unsigned n_places;
	struct block blocks[N_BLOCKS];
	struct graph graphs[N_GRAPHS];
	uint64_t n_checks, n_wrong;
	bool is_alone;
};

static _Atomic uint64_t n_slept, n_busy, n_failed, n_steps;
static _Atomic bool is_over, is_lull;
static uint64_t n_cycles = 100;
static unsigned seed = 1;
static bool is_async_off; /* a sleep would not drop memory in stream order, which is the driver's then */

static unsigned below(struct program *program, unsigned n)
{
	return app_random(&program->random) % n;
}

static struct place make_place(CUcontext ctx)
{
	struct place place = {.ctx = ctx};
	CUmodule module;

	APP_MUST(cuCtxSetCurrent(ctx));
	APP_MUST(cuModuleLoadData(&module, kernels_ptx));
	APP_MUST(cuModuleGetFunction(&place.fill, module, "fill"));
	APP_MUST(cuModuleGetFunction(&place.slow_fill, module, "spin_fill"));
	for (int i = 1; i < N_STREAMS; i++)
		place.streams[i] = app_stream();
	APP_MUST(cuEventCreate(&place.event, CU_EVENT_DISABLE_TIMING));
	return place;
}

static void enter(const struct place *place)
{
	APP_MUST(cuCtxSetCurrent(place->ctx));
}

/* Many fills still run when the process is put to sleep. */
static void fill(struct program *program, struct block *block)
{
	uint64_t words = block->bytes / 4, ns = (1 + below(program, 1000)) * 1000;
	void *params[] = {&block->ptr, &words, &block->value, &ns};
	unsigned kind = below(program, 3);

	block->value = app_random(&program->random) + 1;
	if (kind == 0)
		APP_MUST(cuMemsetD32Async(block->ptr, block->value, words, block->stream));
	else
		APP_MUST(cuLaunchKernel(kind == 1 ? block->place->fill : block->place->slow_fill, 1, 1, 1, 1, 1, 1, 0,
			block->stream, params, NULL));
}

static void alloc(struct program *program, struct block *block)
{
	static const size_t units[] = {512, 2 * KIB, 4 * KIB, 16 * KIB};

	block->place = &program->places[below(program, program->n_places)];
	block->stream = block->place->streams[below(program, N_STREAMS)];
	block->bytes = units[below(program, LENGTH(units))] * (1 + below(program, 8));
	/* A large block has memory of its own, and is slow. */
	if (below(program, 32) == 0)
		block->bytes += MIB;
	block->is_in_region = below(program, 4) == 0;
	enter(block->place);
	if (block->is_in_region)
		(void)gpupool_region_begin("random");
	block->is_in_stream_order = below(program, 2) == 0 && !is_async_off;
	if (block->is_in_stream_order)
		APP_MUST(cuMemAllocAsync(&block->ptr, block->bytes, block->stream));
	else
		block->ptr = app_alloc(block->bytes);
	if (block->is_in_region)
		(void)gpupool_region_end();
	fill(program, block);
}

static void check(struct program *program, struct block *block)
{
	size_t wrong = app_count_wrong(block->stream, block->ptr, block->bytes, block->value);

	program->n_checks++;
	program->n_wrong += wrong != 0;
	if (wrong)
		fprintf(stderr, "seed %u: %zu wrong words of %zu, expected %u\n", seed, wrong, block->bytes / 4,
			block->value);
}

static void forget_graphs_of(struct program *program, const struct block *block)
{
	for (int i = 0; i < N_GRAPHS; i++) {
		struct graph *graph = &program->graphs[i];

		if (!graph->exec || graph->block != block)
			continue;
		APP_MUST(cuStreamSynchronize(block->stream));
		APP_MUST(cuGraphExecDestroy(graph->exec));
		graph->exec = NULL;
	}
}

static void release(struct program *program, struct block *block)
{
	forget_graphs_of(program, block);
	/* A cuMemFree of memory in stream order need not wait for its work. */
	if (block->is_in_stream_order || below(program, 2)) {
		APP_MUST(cuMemFreeAsync(block->ptr, block->stream));
	} else {
		/* The driver's own free waits for the block's work. */
		APP_MUST(cuMemFree_v2(block->ptr));
	}
	block->ptr = 0;
}

/* Copies one block over another, across streams, and devices if the blocks are on several. */
static void copy(struct program *program, struct block *to)
{
	struct block *from = &program->blocks[below(program, N_BLOCKS)];

	if (from == to || !from->ptr || from->bytes < to->bytes || from->place != to->place)
		return;
	APP_MUST(cuEventRecord(from->place->event, from->stream));
	APP_MUST(cuStreamWaitEvent(to->stream, from->place->event, 0));
	APP_MUST(cuMemcpyDtoDAsync_v2(to->ptr, from->ptr, to->bytes, to->stream));
	APP_MUST(cuEventRecord(to->place->event, to->stream));
	APP_MUST(cuStreamWaitEvent(from->stream, to->place->event, 0));
	to->value = from->value;
}

static int64_t count(int64_t result)
{
	if (result > 0)
		atomic_fetch_add(&n_slept, 1);
	else if (result == -EBUSY)
		atomic_fetch_add(&n_busy, 1);
	else if (result < 0)
		atomic_fetch_add(&n_failed, 1);
	return result;
}

/*
 * Captures a fill, or a copy of memory that the program frees meanwhile: the graph goes on using it, so its content
 * must be there after a sleep. That memory is large, since small free parts of a chunk are kept with the used ones.
 */
static void capture_work(struct program *program, struct graph *graph)
{
	struct block *block = graph->block, source = {.bytes = block->bytes + MIB, .value = graph->value};

	graph->reads_freed = below(program, 4) == 0;
	if (graph->reads_freed) {
		source.ptr = app_alloc(source.bytes);
		APP_MUST(cuMemsetD32Async(source.ptr, source.value, source.bytes / 4, block->stream));
		APP_MUST(cuStreamSynchronize(block->stream));
	}
	APP_MUST(cuStreamBeginCapture_v2(block->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	if (graph->reads_freed) {
		APP_MUST(cuMemcpyDtoDAsync_v2(block->ptr, source.ptr, block->bytes, block->stream));
		APP_MUST(cuMemFree_v2(source.ptr));
	} else {
		APP_MUST(cuMemsetD32Async(block->ptr, graph->value, block->bytes / 4, block->stream));
	}
}

/* A graph sets its block to one value each time. Now and then the process falls asleep before its instantiation. */
static void capture(struct program *program, struct block *block)
{
	struct graph *graph = &program->graphs[below(program, N_GRAPHS)];
	CUgraph captured;

	if (block->stream == NULL)
		return;
	if (graph->exec) {
		enter(graph->block->place);
		forget_graphs_of(program, graph->block);
		enter(block->place);
	}
	graph->block = block;
	graph->value = app_random(&program->random) + 1;
	capture_work(program, graph);
	APP_MUST(cuStreamEndCapture(block->stream, &captured));
	if (program->is_alone && below(program, 2))
		(void)count(gpupool_sleep(TIMEOUT_MS));
	APP_MUST(cuGraphInstantiateWithFlags(&graph->exec, captured, 0));
	APP_MUST(cuGraphDestroy(captured));
}

static void replay(struct program *program)
{
	struct graph *graph = &program->graphs[below(program, N_GRAPHS)];

	if (!graph->exec)
		return;
	enter(graph->block->place);
	APP_MUST(cuGraphLaunch(graph->exec, graph->block->stream));
	graph->block->value = graph->value;
}

static void query(struct program *program, struct block *block)
{
	CUdeviceptr base = 0;
	size_t bytes = 0, all;
	int type = 0;

	APP_MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block->ptr + 4));
	APP_MUST(cuMemGetAddressRange_v2(&base, &bytes, block->ptr + 4));
	program->n_wrong += type != CU_MEMORYTYPE_DEVICE || base != block->ptr || bytes != block->bytes;
	APP_MUST(cuMemGetInfo_v2(&bytes, &all));
}

static void step(struct program *program)
{
	struct block *block = &program->blocks[below(program, N_BLOCKS)];

	atomic_fetch_add(&n_steps, 1);
	if (!block->ptr) {
		alloc(program, block);
		return;
	}
	enter(block->place);
	switch (below(program, 12)) {
	case 0:
		release(program, block);
		break;
	case 1:
	case 2:
		check(program, block);
		break;
	case 3:
	case 4:
		copy(program, block);
		break;
	case 5:
		capture(program, block);
		break;
	case 6:
		replay(program);
		break;
	case 7:
		query(program, block);
		break;
	case 8:
		/* While another thread captures, the driver refuses to wait for the whole context. */
		APP_MUST(program->is_alone ? cuCtxSynchronize() : cuStreamSynchronize(block->stream));
		break;
	default:
		fill(program, block);
	}
}

static void check_all(struct program *program)
{
	for (int i = 0; i < N_BLOCKS; i++) {
		if (!program->blocks[i].ptr)
			continue;
		enter(program->blocks[i].place);
		check(program, &program->blocks[i]);
	}
}

/* Puts the process to sleep, and drops content now and then. */
static void fall_asleep(struct program *program)
{
	static const char *const names[] = {"random"};
	unsigned kind = below(program, 16);
	const struct gpupool_sleep_options options = {
		.timeout_ms = TIMEOUT_MS,
		.is_dropping_all = kind == 0,
		.drop = names,
		.n_drop = kind == 1,
	};

	int64_t result = count(gpupool_sleep_as(&options));

	/* The driver may have refused a call after some of the content was dropped: which is unknown. */
	if (kind > 1 || (result <= 0 && result != -EIO))
		return;
	for (int i = 0; i < N_BLOCKS; i++) {
		struct block *block = &program->blocks[i];

		if (!block->ptr || (kind == 1 && !block->is_in_region))
			continue;
		enter(block->place);
		block->value = 0;
		if (result < 0)
			fill(program, block);
	}
	for (int i = 0; i < N_GRAPHS; i++) {
		struct graph *graph = &program->graphs[i];

		if (!graph->exec || !graph->reads_freed || kind == 1)
			continue;
		graph->value = 0;
		enter(graph->block->place);
		if (result < 0)
			forget_graphs_of(program, graph->block);
	}
}

/* Makes one of the next calls of a sleep or a wake fail. */
static void break_something(struct program *program, bool (*inject)(const char *spec))
{
	static const char *const functions[] = {"cuMemHostRegister_v2", "cuMemcpyDtoHAsync_v2", "cuMemUnmap",
		"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemcpyHtoDAsync_v2", "cuEventRecord"};
	const char *function = functions[below(program, LENGTH(functions))];
	char spec[128];

	snprintf(spec, sizeof(spec), "%s:%u=%d", function, (unsigned)app_calls(function) + 1 + below(program, 4),
		below(program, 2) ? 2 : 999);
	(void)inject(spec);
}

/*
 * One thread. It falls asleep at any point, since all of its work ends. In every second program the driver refuses
 * calls while the process falls asleep and wakes.
 */
static void alone(struct program *program)
{
	bool (*inject)(const char *spec) = (bool (*)(const char *))dlsym(RTLD_DEFAULT, "simgpu_fault");
	bool has_faults = inject && seed % 2;

	while (atomic_load(&n_slept) < n_cycles && atomic_load(&n_steps) < n_cycles * STEPS_A_CYCLE) {
		for (unsigned n = below(program, 8); n; n--)
			step(program);
		if (has_faults && below(program, 8) == 0)
			break_something(program, inject);
		fall_asleep(program);
		if (has_faults || below(program, 8) == 0)
			(void)gpupool_wake(0);
		if (has_faults)
			(void)inject(NULL);
	}
	check_all(program);
}

/* In a lull, threads go on after a random time: most of them wake the process, or cancel its sleep. */
static void *work(void *arg)
{
	struct program *program = arg;

	while (!atomic_load(&is_over)) {
		step(program);
		while (atomic_load(&is_lull) && below(program, 256))
			(void)sched_yield();
	}
	check_all(program);
	return NULL;
}

static void start(struct program *program, struct place *places, unsigned n_places, unsigned number)
{
	*program = (struct program){.random = seed * 7919u + number * 104729u, .places = places, .n_places = n_places};
}

static struct place places[N_PLACES];
static unsigned n_places;

static void prepare(void)
{
	int n_devices = 1;
	CUcontext ctx;

	if (getenv("APP_SEED"))
		seed = (unsigned)atoi(getenv("APP_SEED"));
	is_async_off = getenv("GPUPOOL_ASYNC") && !strcmp(getenv("GPUPOOL_ASYNC"), "off");
	if (getenv("APP_CYCLES"))
		n_cycles = strtoull(getenv("APP_CYCLES"), NULL, 10);
	app_start();
	APP_MUST(cuDeviceGetCount(&n_devices));
	for (n_places = 0; n_places < (unsigned)n_devices && n_places < N_PLACES; n_places++) {
		APP_MUST(cuDevicePrimaryCtxRetain(&ctx, (int)n_places));
		places[n_places] = make_place(ctx);
	}
	/* A process without pooled memory cannot sleep, and a region without memory cannot be dropped. */
	(void)gpupool_region_begin("random");
	APP_MUST(cuMemFree_v2(app_alloc(512)));
	(void)gpupool_region_end();
}

static void report(const struct program *programs, unsigned n)
{
	uint64_t wrong = 0, checks = 0;

	for (unsigned i = 0; i < n; i++) {
		wrong += programs[i].n_wrong;
		checks += programs[i].n_checks;
	}
	app_say("wrong", "%llu", (unsigned long long)wrong);
	app_fact("checks", checks);
	app_fact("cycles", atomic_load(&n_slept));
	app_fact("busy", atomic_load(&n_busy));
	app_fact("failed", atomic_load(&n_failed));
	app_report_driver();
}

static void one_thread(void)
{
	struct program program;

	prepare();
	start(&program, places, n_places, 0);
	program.is_alone = true;
	alone(&program);
	report(&program, 1);
}

enum { N_THREADS = 3 };

/* Each thread has blocks and streams of its own. Another thread puts the process to sleep and wakes it meanwhile. */
static void threads(void)
{
	static struct place own[N_THREADS][N_PLACES];
	static struct program programs[N_THREADS];
	pthread_t workers[N_THREADS];
	unsigned random;

	prepare();
	random = seed;
	for (unsigned i = 0; i < N_THREADS; i++) {
		for (unsigned k = 0; k < n_places; k++) {
			own[i][k] = make_place(places[k].ctx);
			own[i][k].streams[0] = app_stream(); /* the legacy stream is shared */
		}
		start(&programs[i], own[i], n_places, i);
	}
	for (unsigned i = 0; i < N_THREADS; i++)
		(void)pthread_create(&workers[i], NULL, work, &programs[i]);
	/* The threads may cancel all sleeps for a long time. */
	while (!atomic_load(&n_slept) ||
		(atomic_load(&n_slept) < n_cycles && atomic_load(&n_steps) < n_cycles * STEPS_A_CYCLE * N_THREADS)) {
		atomic_store(&is_lull, true);
		for (unsigned n = app_random(&random) % 64; n; n--)
			(void)sched_yield();
		(void)count(gpupool_sleep(app_random(&random) % 5));
		atomic_store(&is_lull, false);
		if (app_random(&random) % 8 == 0)
			(void)gpupool_wake(0);
	}
	atomic_store(&is_over, true);
	for (unsigned i = 0; i < N_THREADS; i++)
		(void)pthread_join(workers[i], NULL);
	report(programs, N_THREADS);
}

const struct app_scenario app_scenarios[] = {
	{"one-thread", one_thread, 0},
	{"threads", threads, 0},
	{0},
};
