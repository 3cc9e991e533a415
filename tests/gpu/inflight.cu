/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Frees memory while the call that launches work on it has not returned. A thread launches work that sets a flag on the
 * host when it runs, and then writes to a block for a while. Another thread frees the block as soon as it reads the
 * flag, and allocates again. The real cudaFree waits for the work.
 *
 *   inflight graph BYTES ROUNDS    a graph whose first node is a host function, with many nodes behind it
 *   inflight kernel BYTES ROUNDS   one kernel; with CUDA_LAUNCH_BLOCKING=1 its launch returns when the kernel is done
 *
 * Prints the number of rounds in which
 * - the launch had not returned when the block was freed (inside);
 * - an allocation returned the same address (same);
 * - the new owner found wrong bytes (wrong).
 */

#include "gpu.h"

#include <atomic>
#include <cstring>
#include <thread>

static const unsigned long long WORK_NS = 50000000;
static const int GRAPH_NODES = 3000;
static const size_t TOUCHED_MAX = 1 << 20, LARGE = 64 << 20;
/* Limits on new owners: enough to reach the block among the cached blocks of a thread. */
static const size_t OWNERS_BYTES = 256 << 20, OWNERS_MAX = 128;

static volatile int *running_round; /* the round that the GPU works on, stored by the GPU */
static cudaStream_t launching, other;

__global__ void set_flag_and_write(volatile int *flag, int round, char *p, size_t bytes, unsigned long long ns)
{
	if (!threadIdx.x && flag) {
		*flag = round;
		__threadfence_system();
	}
	gpu_delay(ns);
	for (size_t i = threadIdx.x; i < bytes; i += blockDim.x)
		p[i] = 1;
}

__global__ void count_other_than(const char *p, size_t bytes, char value, unsigned *count)
{
	unsigned n_wrong = 0;

	for (size_t i = threadIdx.x; i < bytes; i += blockDim.x)
		n_wrong += p[i] != value;
	atomicAdd(count, n_wrong);
}

__global__ void do_nothing()
{
}

static void CUDART_CB store_round(void *round)
{
	*running_round = (int)(intptr_t)round;
	std::atomic_thread_fence(std::memory_order_seq_cst);
}

static cudaGraphExec_t make_graph(int round, char *p, size_t bytes)
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	CHECK(cudaStreamBeginCapture(launching, cudaStreamCaptureModeRelaxed));
	CHECK(cudaLaunchHostFunc(launching, store_round, (void *)(intptr_t)round));
	for (int i = 0; i < GRAPH_NODES; i++)
		do_nothing<<<1, 1, 0, launching>>>();
	set_flag_and_write<<<1, 256, 0, launching>>>(nullptr, 0, p, bytes, WORK_NS);
	CHECK(cudaStreamEndCapture(launching, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphDestroy(graph));
	return exec;
}

/* The runtime loads a module at its first use, and waits for the GPU then: load all now. */
static void use_all_kernels(char *p, unsigned *count)
{
	set_flag_and_write<<<1, 256, 0, launching>>>(nullptr, 0, p, 0, 1);
	do_nothing<<<1, 1, 0, launching>>>();
	count_other_than<<<1, 256, 0, other>>>(p, 0, 0, count);
	CHECK(cudaDeviceSynchronize());
}

/*
 * Makes the pool record fences after which this thread submits nothing, by freeing more memory than a thread cache
 * keeps. Then allocates the memory again, so that only the block of the round is free.
 */
static void record_fences(void *taken[2])
{
	for (int i = 0; i < 2; i++)
		CHECK(cudaMalloc(&taken[i], LARGE));
	for (int i = 0; i < 2; i++) {
		CHECK(cudaFree(taken[i]));
		CHECK(cudaDeviceSynchronize());
	}
	for (int i = 0; i < 2; i++)
		CHECK(cudaMalloc(&taken[i], LARGE));
}

static unsigned count_wrong(char *p, size_t bytes, unsigned *count)
{
	unsigned n;

	CHECK(cudaMemsetAsync(count, 0, sizeof(*count), other));
	count_other_than<<<1, 256, 0, other>>>(p, bytes, 2, count);
	CHECK(cudaMemcpyAsync(&n, count, sizeof(n), cudaMemcpyDeviceToHost, other));
	CHECK(cudaStreamSynchronize(other));
	return n;
}

struct round_result {
	bool is_inside, is_same, is_wrong;
};

/* Frees the block and allocates new blocks, to which work is submitted at once. */
static std::vector<char *> pass_on(char *old, size_t bytes, size_t touched)
{
	std::vector<char *> owners(std::min(OWNERS_BYTES / bytes, OWNERS_MAX));

	CHECK(cudaFree(old));
	for (char *&owner : owners) {
		CHECK(cudaMalloc(&owner, bytes));
		CHECK(cudaMemsetAsync(owner, 2, touched, other));
	}
	CHECK(cudaStreamSynchronize(other));
	return owners;
}

static round_result run_round(int round, bool is_graph, size_t bytes, unsigned *count)
{
	size_t touched = std::min(bytes, TOUCHED_MAX);
	std::atomic<bool> has_returned{false};
	cudaGraphExec_t exec = nullptr;
	std::vector<char *> owners;
	round_result result = {};
	void *taken[2];
	char *old;

	CHECK(cudaMalloc(&old, bytes));
	if (is_graph)
		exec = make_graph(round, old, touched);
	record_fences(taken);
	std::thread launcher([&] {
		CHECK(cudaSetDevice(0));
		if (is_graph)
			CHECK(cudaGraphLaunch(exec, launching));
		else
			set_flag_and_write<<<1, 256, 0, launching>>>(running_round, round, old, touched, WORK_NS);
		CHECK(cudaGetLastError());
		has_returned = true;
	});
	while (*running_round != round)
		;
	result.is_inside = !has_returned;
	owners = pass_on(old, bytes, touched);
	launcher.join();
	CHECK(cudaDeviceSynchronize());
	for (char *owner : owners) {
		result.is_same |= owner == old;
		result.is_wrong |= count_wrong(owner, touched, count) != 0;
		CHECK(cudaFree(owner));
	}
	for (void *p : taken)
		CHECK(cudaFree(p));
	if (exec)
		CHECK(cudaGraphExecDestroy(exec));
	return result;
}

int main(int argc, char **argv)
{
	int n_rounds = argc == 4 ? atoi(argv[3]) : 0, n_inside = 0, n_same = 0, n_wrong = 0;
	bool is_graph = argc == 4 && !strcmp(argv[1], "graph");
	size_t bytes = argc == 4 ? strtoull(argv[2], nullptr, 0) : 0;
	unsigned *count;

	if (!n_rounds || !bytes || (!is_graph && strcmp(argv[1], "kernel") != 0)) {
		fprintf(stderr, "usage: %s graph|kernel BYTES ROUNDS\n", argv[0]);
		return 64;
	}
	gpu_require();
	CHECK(cudaSetDevice(0));
	CHECK(cudaHostAlloc((void **)&running_round, sizeof(*running_round), cudaHostAllocMapped));
	*running_round = 0;
	CHECK(cudaStreamCreateWithFlags(&launching, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	CHECK(cudaMalloc(&count, sizeof(*count)));
	use_all_kernels((char *)count, count);
	for (int round = 1; round <= n_rounds; round++) {
		round_result result = run_round(round, is_graph, bytes, count);

		n_inside += result.is_inside;
		n_same += result.is_same;
		n_wrong += result.is_wrong;
	}
	printf("inflight mode=%s bytes=%zu rounds=%d inside=%d same=%d wrong=%d\n", argv[1], bytes, n_rounds, n_inside,
		n_same, n_wrong);
	return 0;
}
