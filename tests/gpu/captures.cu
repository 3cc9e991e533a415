/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Allocations and frees while a stream is being captured, in the form of semantics.cu: the codes
 * that they return, whether the capture survives, and whether the graph then does what it should.
 */

#include "gpu.h"

#include <cstring>
#include <string>
#include <thread>

static const size_t MIB = 1 << 20;

__global__ void add_one(int *p)
{
	*p += 1;
}

static const char *name_of(cudaError_t error)
{
	cudaGetLastError();
	return cudaGetErrorName(error);
}

struct capture {
	cudaStream_t stream;
	int *counter;
	std::string result; /* what the calls made inside have returned */
	std::vector<void *> kept;
};

static void add(struct capture *capture, const char *name, cudaError_t error)
{
	capture->result += std::string(" ") + name + "=" + name_of(error);
}

enum { MANY = 64 };

/*
 * Sees to it that a cache, if there is one, has blocks of this size and knows that the GPU is done
 * with them: it may not have asked before the next allocation, which is therefore made and kept.
 */
static void warm_up(struct capture *capture, size_t bytes)
{
	void *p[MANY];

	for (void *&q : p)
		CHECK(cudaMalloc(&q, bytes));
	for (void *q : p)
		CHECK(cudaFree(q));
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMalloc(&p[0], bytes));
	capture->kept.push_back(p[0]);
}

static void malloc_and_free(struct capture *capture, size_t bytes)
{
	void *p = nullptr;
	cudaError_t error = cudaMalloc(&p, bytes);

	add(capture, "malloc", error);
	if (!error)
		add(capture, "free", cudaFree(p));
}

static void do_nothing(struct capture *)
{
}

static void do_hit(struct capture *capture)
{
	malloc_and_free(capture, MIB);
}

static void do_miss(struct capture *capture)
{
	malloc_and_free(capture, 768 * MIB);
}

static void do_many(struct capture *capture)
{
	cudaError_t error = cudaSuccess;
	void *p;

	for (int i = 0; i < MANY / 2 && !error; i++) {
		error = cudaMalloc(&p, 4096);
		if (!error)
			error = cudaFree(p);
	}
	add(capture, "many", error);
}

static void do_stream_ordered(struct capture *capture)
{
	void *p = nullptr;

	add(capture, "mallocasync", cudaMallocAsync(&p, MIB, capture->stream));
	add(capture, "freeasync", cudaFreeAsync(p, capture->stream));
}

static void do_elsewhere(struct capture *capture, void (*work)(struct capture *))
{
	std::thread(work, capture).join();
}

static void do_hit_elsewhere(struct capture *capture)
{
	do_elsewhere(capture, do_hit);
}

static void do_many_elsewhere(struct capture *capture)
{
	do_elsewhere(capture, do_many);
}

static const struct action {
	const char *name;
	void (*run)(struct capture *);
} actions[] = {
	{"nothing", do_nothing},
	{"hit", do_hit},
	{"miss", do_miss},
	{"many", do_many},
	{"stream_ordered", do_stream_ordered},
	{"hit_elsewhere", do_hit_elsewhere},
	{"many_elsewhere", do_many_elsewhere},
};

static const struct mode {
	const char *name;
	cudaStreamCaptureMode mode;
} modes[] = {
	{"global", cudaStreamCaptureModeGlobal},
	{"thread_local", cudaStreamCaptureModeThreadLocal},
	{"relaxed", cudaStreamCaptureModeRelaxed},
};

/* Three launches of a graph of two kernels, into a counter that began at 0. */
static void replay(struct capture *capture, cudaGraph_t graph)
{
	cudaGraphExec_t exec;
	int counter = -1;
	cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);

	add(capture, "instantiate", error);
	if (error)
		return;
	CHECK(cudaMemset(capture->counter, 0, sizeof(int)));
	CHECK(cudaDeviceSynchronize());
	for (int i = 0; i < 3; i++)
		CHECK(cudaGraphLaunch(exec, capture->stream));
	CHECK(cudaStreamSynchronize(capture->stream));
	CHECK(cudaMemcpy(&counter, capture->counter, sizeof(int), cudaMemcpyDeviceToHost));
	capture->result += " counter=" + std::to_string(counter);
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
}

static void run(struct capture *capture, const struct mode *mode, const struct action *action)
{
	cudaGraph_t graph = nullptr;
	cudaError_t error;
	void *p;

	capture->result.clear();
	CHECK(cudaStreamCreateWithFlags(&capture->stream, cudaStreamNonBlocking));
	warm_up(capture, MIB);
	warm_up(capture, 4096);
	CHECK(cudaStreamBeginCapture(capture->stream, mode->mode));
	add_one<<<1, 1, 0, capture->stream>>>(capture->counter);
	action->run(capture);
	add_one<<<1, 1, 0, capture->stream>>>(capture->counter);
	cudaGetLastError();
	error = cudaStreamEndCapture(capture->stream, &graph);
	add(capture, "end", error);
	if (!error)
		replay(capture, graph);
	/* Life goes on after a capture, however it ended. */
	error = cudaMalloc(&p, MIB);
	add(capture, "after", error);
	if (!error)
		add(capture, "after_free", cudaFree(p));
	add(capture, "sync", cudaDeviceSynchronize());
	for (void *q : capture->kept)
		add(capture, "kept", cudaFree(q));
	capture->kept.clear();
	CHECK(cudaStreamDestroy(capture->stream));
	printf("capture.%s.%s:%s\n", mode->name, action->name, capture->result.c_str());
	fflush(stdout);
}

/* Blocks freed while a capture was on come back to use after it. */
static void reuse_after_capture(struct capture *capture)
{
	cudaGraph_t graph;
	void *p, *q;
	size_t before, after;

	CHECK(cudaStreamCreateWithFlags(&capture->stream, cudaStreamNonBlocking));
	CHECK(cudaMalloc(&p, 512 * MIB));
	CHECK(cudaMemGetInfo(&before, nullptr));
	CHECK(cudaStreamBeginCapture(capture->stream, cudaStreamCaptureModeRelaxed));
	add_one<<<1, 1, 0, capture->stream>>>(capture->counter);
	CHECK(cudaFree(p));
	CHECK(cudaStreamEndCapture(capture->stream, &graph));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMalloc(&q, 512 * MIB));
	CHECK(cudaMemGetInfo(&after, nullptr));
	CHECK(cudaFree(q));
	CHECK(cudaStreamDestroy(capture->stream));
	printf("capture.reuse_after: same_free=%d\n",
		(before > after ? before - after : after - before) <= 4 * MIB);
}

int main()
{
	struct capture capture = {};

	gpu_require();
	CHECK(cudaMalloc(&capture.counter, sizeof(int)));
	add_one<<<1, 1>>>(capture.counter);
	CHECK(cudaDeviceSynchronize());
	for (const struct mode &mode : modes)
		for (const struct action &action : actions)
			run(&capture, &mode, &action);
	reuse_after_capture(&capture);
	return 0;
}
