/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A random program that captures work with memory that it allocates and frees before, during and after the captures,
 * also from other threads. It launches the graphs, and destroys graphs, clones and executables, also under their work.
 * The work of each graph passes a value through its memory to a block that the program checks.
 *
 *   APP_SEED=N    another program (1)
 *   APP_STEPS=N   steps of the program (200)
 */

#include <pthread.h>

#include "app_driver.h"
#include "tests/sim/abi.h"

enum { N_GRAPHS = 4, N_EXECS = 3, N_BLOCKS = 8, N_STREAMS = 3, N_TEMPS = 5, BODY_MAX = 14 };

#define TOUCHED (4 * KIB) /* bytes of a block that work touches */

struct block {
	CUdeviceptr ptr; /* 0: none */
	uint32_t value;
	CUstream stream; /* orders its work */
};

/* A captured graph. All of its launches are on one stream, since they use the same memory. */
struct captured {
	CUgraph graphs[2]; /* the graph and a clone; NULL: destroyed */
	CUgraphExec execs[N_EXECS];
	CUstream stream;
	CUdeviceptr out; /* 0: nothing is captured */
	uint32_t value;
	bool is_launched;
	CUdeviceptr left[N_TEMPS]; /* memory that the program frees some time after the capture */
};

static struct block blocks[N_BLOCKS];
static struct captured all[N_GRAPHS];
static CUstream streams[N_STREAMS], capturing, side;
static CUevent fork_event, join_event;
static unsigned state;
static bool is_capturing; /* then the driver refuses waits */
static uint32_t n_values = 100;
static uint64_t n_wrong, n_refused, n_captured;

static unsigned below(unsigned n)
{
	return app_random(&state) % n;
}

static bool one_in(unsigned n)
{
	return below(n) == 0;
}

static size_t some_bytes(void)
{
	static const size_t sizes[] = {4 * KIB, 20 * KIB, 64 * KIB, 300 * KIB, MIB, 2 * MIB, 5 * MIB};

	return sizes[below(LENGTH(sizes))];
}

static CUdeviceptr alloc(void)
{
	CUdeviceptr ptr = 0;

	n_refused += cuMemAlloc_v2(&ptr, some_bytes()) != CUDA_SUCCESS;
	return ptr;
}

static void drop(CUdeviceptr *ptr)
{
	if (*ptr)
		n_refused += cuMemFree_v2(*ptr) != CUDA_SUCCESS;
	*ptr = 0;
}

static void make_block(struct block *b)
{
	*b = (struct block){.ptr = alloc(), .value = ++n_values, .stream = streams[below(N_STREAMS)]};
	if (b->ptr)
		app_spin_fill(b->stream, b->ptr, TOUCHED, b->value, below(3) * 20000);
}

static void check_block(const struct block *b)
{
	n_wrong += app_count_wrong(b->stream, b->ptr, TOUCHED, b->value);
}

/*
 * Blocks are freed while their work may still run. None is allocated during a capture: it may have memory that the
 * captured work has used before, and uses again at each launch.
 */
static void use_block(void)
{
	struct block *b = &blocks[below(N_BLOCKS)];

	if (!b->ptr && is_capturing)
		return;
	if (!b->ptr)
		make_block(b);
	else if (one_in(3))
		drop(&b->ptr);
	else if (!is_capturing && one_in(2))
		check_block(b);
}

/* Another thread allocates, works and frees during the capture, on a stream that does not capture. */
static void *work_beside(void *arg)
{
	CUdeviceptr ptr[4] = {0};

	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned i = 0; i < LENGTH(ptr); i++) {
		n_refused += cuMemAlloc_v2(&ptr[i], (i + 1) * MIB) != CUDA_SUCCESS;
		if (ptr[i])
			app_fill(arg, ptr[i], TOUCHED, i);
		if (i % 2)
			drop(&ptr[i]);
	}
	for (unsigned i = 0; i < LENGTH(ptr); i++)
		drop(&ptr[i]);
	return NULL;
}

static void run_beside(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, work_beside, streams[below(N_STREAMS)]);
	pthread_join(thread, NULL);
}

/* Work of the capture beside that on its first stream, in memory of its own. */
static void fork_work(CUdeviceptr *temp)
{
	APP_MUST(cuEventRecord(fork_event, capturing));
	APP_MUST(cuStreamWaitEvent(side, fork_event, 0));
	*temp = alloc();
	if (*temp)
		app_spin_fill(side, *temp, TOUCHED, 1, 10000);
	if (one_in(2))
		drop(temp);
	APP_MUST(cuEventRecord(join_event, side));
	APP_MUST(cuStreamWaitEvent(capturing, join_event, 0));
}

/* Captures work that passes the value from block to block, and to `out` at last. False if memory is missing. */
static bool capture_body(struct captured *c, const CUdeviceptr *old)
{
	unsigned n = 2 + below(BODY_MAX - 2), last = 0;
	CUdeviceptr *temp = c->left;

	drop(&temp[0]);
	temp[0] = alloc();
	if (!temp[0])
		return false;
	app_fill(capturing, temp[0], TOUCHED, c->value);
	for (unsigned i = 0; i < n; i++) {
		unsigned next = (last + 1 + below(N_TEMPS - 1)) % N_TEMPS;

		if (!temp[next])
			temp[next] = alloc();
		if (!temp[next])
			return false;
		APP_MUST(cuMemcpyDtoDAsync_v2(temp[next], temp[last], TOUCHED, capturing));
		if (one_in(2))
			drop(&temp[last]);
		last = next;
		if (one_in(8))
			use_block();
		if (one_in(10))
			run_beside();
		if (one_in(12)) {
			unsigned free_place = (last + 1) % N_TEMPS;

			drop(&temp[free_place]);
			fork_work(&temp[free_place]);
		}
	}
	APP_MUST(cuMemcpyDtoDAsync_v2(c->out, temp[last], TOUCHED, capturing));
	for (unsigned i = 0; i < N_TEMPS; i++)
		if (temp[i] == old[i] || !one_in(4))
			drop(&temp[i]);
	return true;
}

/* Ends the capture without a graph: it is invalidated, or its stream is destroyed. */
static void abort_capture(void)
{
	CUgraph graph = NULL;

	if (one_in(3)) {
		APP_MUST(cuStreamDestroy_v2(capturing));
		capturing = app_stream();
		return;
	}
	if (!cuStreamSynchronize(capturing))
		app_say("synchronize", "succeeds in a capture");
	if (!cuStreamEndCapture(capturing, &graph))
		app_say("end", "succeeds after an invalid call");
	if (graph)
		APP_MUST(cuGraphDestroy(graph));
}

static void forget(struct captured *c)
{
	for (unsigned i = 0; i < N_TEMPS; i++)
		drop(&c->left[i]);
	drop(&c->out);
	*c = (struct captured){0};
}

static void capture(struct captured *c)
{
	CUdeviceptr old[N_TEMPS];
	bool is_complete;

	*c = (struct captured){.stream = streams[below(N_STREAMS)], .value = ++n_values, .out = alloc()};
	if (!c->out)
		return;
	/* Memory from before the capture. The program frees it in the capture, since a graph would use it later. */
	for (unsigned i = 0; i < N_TEMPS; i++)
		c->left[i] = old[i] = one_in(3) ? alloc() : 0;
	APP_MUST(cuStreamBeginCapture_v2(capturing, (int)below(3)));
	is_capturing = true;
	is_complete = capture_body(c, old);
	is_capturing = false;
	if (!is_complete || one_in(5)) {
		abort_capture();
		forget(c);
		return;
	}
	APP_MUST(cuStreamEndCapture(capturing, &c->graphs[0]));
	n_captured++;
	if (one_in(3))
		APP_MUST(cuGraphClone(&c->graphs[1], c->graphs[0]));
}

static bool has_graph(const struct captured *c)
{
	return c->graphs[0] || c->graphs[1];
}

static void instantiate(struct captured *c)
{
	CUgraph graph = c->graphs[below(2)];
	CUgraphExec *exec = &c->execs[below(N_EXECS)];

	if (graph && !*exec)
		APP_MUST(cuGraphInstantiateWithFlags(exec, graph, 0));
}

static void launch(struct captured *c)
{
	CUgraphExec exec = c->execs[below(N_EXECS)];

	if (!exec)
		return;
	APP_MUST(cuMemsetD32Async(c->out, 0, TOUCHED / 4, c->stream));
	APP_MUST(cuGraphLaunch(exec, c->stream));
	c->is_launched = true;
}

static void check(const struct captured *c)
{
	if (c->is_launched)
		n_wrong += app_count_wrong(c->stream, c->out, TOUCHED, c->value);
}

static void destroy_one(struct captured *c)
{
	unsigned i = below(N_EXECS), k = below(2);
	bool is_any = false;

	if (one_in(2) && c->execs[i]) {
		APP_MUST(cuGraphExecDestroy(c->execs[i]));
		c->execs[i] = NULL;
	} else if (c->graphs[k]) {
		APP_MUST(cuGraphDestroy(c->graphs[k]));
		c->graphs[k] = NULL;
	}
	for (i = 0; i < N_EXECS; i++)
		is_any |= c->execs[i] != NULL;
	if (!is_any && !has_graph(c)) {
		if (one_in(2))
			check(c);
		forget(c);
	}
}

static void step(void)
{
	struct captured *c = &all[below(N_GRAPHS)];

	use_block();
	if (!c->out) {
		capture(c);
		return;
	}
	switch (below(6)) {
	case 0:
	case 1:
		launch(c);
		break;
	case 2:
		check(c);
		break;
	case 3:
		drop(&c->left[below(N_TEMPS)]);
		break;
	case 4:
		instantiate(c);
		break;
	default:
		destroy_one(c);
	}
}

static unsigned number(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);

	return text ? (unsigned)atoi(text) : otherwise;
}

static void start(void)
{
	app_start();
	for (unsigned i = 0; i < N_STREAMS; i++)
		streams[i] = app_stream();
	capturing = app_stream();
	side = app_stream();
	APP_MUST(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
	APP_MUST(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
	state = number("APP_SEED", 1);
}

static void run(void)
{
	size_t (*allocated)(int) = (size_t(*)(int))app_simulator("simgpu_allocated_bytes");
	size_t before;

	start();
	before = allocated ? allocated(0) : 0;
	for (unsigned n = number("APP_STEPS", 200); n; n--)
		step();
	for (unsigned i = 0; i < N_GRAPHS; i++)
		while (all[i].out)
			destroy_one(&all[i]);
	for (unsigned i = 0; i < N_BLOCKS; i++)
		drop(&blocks[i].ptr);
	APP_MUST(cuCtxSynchronize());
	app_say("wrong words", "%llu", (unsigned long long)n_wrong);
	app_say("refused calls", "%llu", (unsigned long long)n_refused);
	app_pause("end");
	app_fact("captures", n_captured);
	app_fact("bytes that stay", allocated ? allocated(0) - before : 0);
	app_report_driver();
}

const struct app_scenario app_scenarios[] = {
	{"run", run},
	{0},
};
