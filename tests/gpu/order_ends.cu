/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Ends serial mode. At first all work is in order on a default stream: a kernel writes a block late, and the block is
 * freed and allocated again. Then the new block is written out of that order, in a way that the argument chooses:
 *
 *   order_ends stream   by a kernel on a stream that is created only then
 *   order_ends used     by a kernel on a stream that was created before, but never used
 *   order_ends memset, copy, graph   by that kind of work on such a stream
 *   order_ends thread   by a kernel on the default stream of a second thread
 *   order_ends early    by a kernel that may begin before the previous kernel is done (programmatic launch)
 *   order_ends legacy   by a kernel of a second thread on the legacy stream, which keeps the order
 *   order_ends none     by a kernel on the same stream, which keeps the order
 *
 * Prints whether the old kernel was still running at the launch of the new one (busy), whether the block was used again
 * (same), and the number of wrong bytes (wrong).
 */

#include "gpu.h"

#include <cstring>
#include <thread>

static const size_t BYTES = 4 << 20;
static const unsigned long long LATE_NS = 20000000;

__global__ void write_late(char *p, size_t bytes, char value, unsigned long long ns)
{
#if __CUDA_ARCH__ >= 900
	cudaTriggerProgrammaticLaunchCompletion();
#endif
	gpu_delay(ns);
	for (size_t i = threadIdx.x; i < bytes; i += blockDim.x)
		p[i] = value;
}

static void launch(cudaStream_t stream, char *p, char value, unsigned long long ns, bool may_begin_early)
{
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};

	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = dim3(1);
	config.blockDim = dim3(256);
	config.stream = stream;
	config.attrs = &attribute;
	config.numAttrs = may_begin_early;
	CHECK(cudaLaunchKernelEx(&config, write_late, p, BYTES, value, ns));
}

static cudaStream_t unused; /* created but not used */
static char *source;        /* the bytes that the new block gets */
static cudaGraphExec_t fills;

static void make_stream(cudaStream_t *stream)
{
	CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
}

static void prepare()
{
	make_stream(&unused);
	CHECK(cudaMalloc(&source, BYTES));
	CHECK(cudaMemset(source, 2, BYTES));
}

static void write_new(const char *way, char *p)
{
	cudaStream_t stream = cudaStreamPerThread;

	if (!strcmp(way, "stream"))
		make_stream(&stream);
	else if (!strcmp(way, "used"))
		stream = unused;
	else if (!strcmp(way, "legacy"))
		stream = cudaStreamLegacy;
	if (!strcmp(way, "memset"))
		CHECK(cudaMemsetAsync(p, 2, BYTES, unused));
	else if (!strcmp(way, "copy"))
		CHECK(cudaMemcpyAsync(p, source, BYTES, cudaMemcpyDeviceToDevice, unused));
	else if (!strcmp(way, "graph"))
		CHECK(cudaGraphLaunch(fills, unused));
	else
		launch(stream, p, 2, 0, !strcmp(way, "early"));
}

int main(int argc, char **argv)
{
	const char *way = argc == 2 ? argv[1] : "none";
	std::vector<char> bytes(BYTES);
	cudaEvent_t late;
	char *old, *p;
	bool is_busy;

	gpu_require();
	prepare();
	CHECK(cudaEventCreate(&late));
	CHECK(cudaMalloc(&old, BYTES));
	launch(cudaStreamPerThread, old, 1, 0, false); /* the first launch loaded the code */
	CHECK(cudaDeviceSynchronize());
	launch(cudaStreamPerThread, old, 1, LATE_NS, false);
	CHECK(cudaEventRecord(late, cudaStreamPerThread));
	CHECK(cudaFree(old));
	CHECK(cudaMalloc(&p, BYTES));
	if (!strcmp(way, "graph"))
		fills = gpu_fill_graph(p, 2, BYTES); /* needs the new address */
	is_busy = cudaEventQuery(late) == cudaErrorNotReady;
	if (!strcmp(way, "thread") || !strcmp(way, "legacy"))
		std::thread(write_new, way, p).join();
	else
		write_new(way, p);
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemcpy(bytes.data(), p, BYTES, cudaMemcpyDeviceToHost));
	printf("order_ends way=%s busy=%d same=%d wrong=%zu\n", way, is_busy, p == old,
		BYTES - (size_t)std::count(bytes.begin(), bytes.end(), 2));
	return 0;
}
