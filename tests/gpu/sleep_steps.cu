/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A program with a static CUDA runtime that knows nothing of sleep. As work_sleep.py, it prints a line after some steps
 * and waits for one. The last line has a digest of all of its memory.
 *
 *     sleep_steps                     kernels; a line after every ten of 60 steps
 *     sleep_steps conditional ROUNDS  graphs with conditional nodes (CUDA 12.4); a line before each replay. Now and then
 *                                     a graph is built, or instantiated, right after a line instead: while the memory
 *                                     may be away
 *
 * It exits with 77 if the runtime or the driver has no conditional nodes.
 */

#include <cstdint>
#include <cstring>

#include "gpu.h"

static const int STEPS = 60, STEPS_A_PAUSE = 10;
static const size_t BLOCK_BYTES = (size_t)64 << 20, SMALL_BYTES = (size_t)4 << 20;
enum { N_BLOCKS = 8 };

static uint32_t *blocks[N_BLOCKS];

__global__ void mix(uint32_t *to, const uint32_t *from, size_t n, uint32_t step)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
		to[i] = to[i] * 1664525u + from[(i * 7 + step) % n] + 1013904223u;
}

static void allocate(size_t bytes)
{
	for (int i = 0; i < N_BLOCKS; i++) {
		CHECK(cudaMalloc(&blocks[i], bytes));
		CHECK(cudaMemset(blocks[i], i, bytes));
	}
}

/* Prints a line, and waits for one. Meanwhile the process may be put to sleep. */
static bool pause_at(int step)
{
	char line[64];

	CHECK(cudaDeviceSynchronize());
	printf("step %d\n", step);
	fflush(stdout);
	return fgets(line, sizeof(line), stdin) != NULL;
}

static void print_digest(size_t bytes)
{
	uint32_t *words = (uint32_t *)malloc(bytes);
	uint64_t digest = 14695981039346656037u;

	for (int i = 0; i < N_BLOCKS; i++) {
		CHECK(cudaMemcpy(words, blocks[i], bytes, cudaMemcpyDeviceToHost));
		for (size_t k = 0; k < bytes / 4; k++)
			digest = (digest ^ words[k]) * 1099511628211u;
	}
	printf("digest %016llx\n", (unsigned long long)digest);
	free(words);
}

static void run_steps(void)
{
	allocate(BLOCK_BYTES);
	for (int step = 1; step <= STEPS; step++) {
		mix<<<1024, 256>>>(
			blocks[step % N_BLOCKS], blocks[(step + 3) % N_BLOCKS], BLOCK_BYTES / 4, (uint32_t)step);
		CHECK(cudaGetLastError());
		if (step % STEPS_A_PAUSE == 0 && !pause_at(step))
			break;
	}
	print_digest(BLOCK_BYTES);
}

#if CUDART_VERSION >= 12040

/* Decides by the memory: the IF node runs if the word is odd, and the WHILE node three to six times. */
__global__ void decide(cudaGraphConditionalHandle if_handle, const uint32_t *words, uint32_t *count)
{
	cudaGraphSetConditional(if_handle, words[1] & 1);
	*count = 3 + words[2] % 4;
}

__global__ void count_down(cudaGraphConditionalHandle while_handle, uint32_t *count)
{
	cudaGraphSetConditional(while_handle, --*count != 0);
}

static cudaGraphNode_t add_kernel(
	cudaGraph_t graph, const cudaGraphNode_t *after, void *function, unsigned grid, void **args)
{
	cudaKernelNodeParams params = {};
	cudaGraphNode_t node;

	params.func = function;
	params.gridDim = dim3(grid);
	params.blockDim = dim3(grid > 1 ? 256 : 1);
	params.kernelParams = args;
	CHECK(cudaGraphAddKernelNode(&node, graph, after, after ? 1 : 0, &params));
	return node;
}

static cudaGraphNode_t add_mix(cudaGraph_t graph, const cudaGraphNode_t *after, int to, int from, uint32_t step)
{
	size_t n = SMALL_BYTES / 4;
	void *args[] = {&blocks[to], &blocks[from], &n, &step};

	return add_kernel(graph, after, (void *)mix, 256, args);
}

/* Adds a conditional node. Its body is an empty graph, which is returned. */
static cudaGraph_t add_conditional(cudaGraph_t graph, cudaGraphNode_t *node, const cudaGraphNode_t *after,
	cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type)
{
	cudaGraphNodeParams params = {};

	params.type = cudaGraphNodeTypeConditional;
	params.conditional.handle = handle;
	params.conditional.type = type;
	params.conditional.size = 1;
#if CUDART_VERSION >= 13000
	CHECK(cudaGraphAddNode(node, graph, after, NULL, 1, &params));
#else
	CHECK(cudaGraphAddNode(node, graph, after, 1, &params));
#endif
	return params.conditional.phGraph_out[0];
}

/*
 * mix; decide; IF: copy a block and mix; WHILE: mix, fill the beginning of a block, and count down. count is a word of
 * its own in device memory.
 */
static cudaGraph_t build(uint32_t *count)
{
	cudaGraphConditionalHandle if_handle, while_handle;
	cudaMemsetParams fill = {};
	cudaGraphNode_t node, next, inner, filled;
	cudaGraph_t graph, body;

	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphConditionalHandleCreate(&if_handle, graph, 0, cudaGraphCondAssignDefault));
	CHECK(cudaGraphConditionalHandleCreate(&while_handle, graph, 1, cudaGraphCondAssignDefault));
	node = add_mix(graph, NULL, 0, 1, 11);
	void *deciding[] = {&if_handle, &blocks[0], &count};
	void *counting[] = {&while_handle, &count};
	node = add_kernel(graph, &node, (void *)decide, 1, deciding);

	body = add_conditional(graph, &next, &node, if_handle, cudaGraphCondTypeIf);
	CHECK(cudaGraphAddMemcpyNode1D(
		&inner, body, NULL, 0, blocks[2], blocks[0], SMALL_BYTES / 2, cudaMemcpyDeviceToDevice));
	(void)add_mix(body, &inner, 3, 2, 12);

	body = add_conditional(graph, &node, &next, while_handle, cudaGraphCondTypeWhile);
	inner = add_mix(body, NULL, 4, 5, 13);
	fill.dst = blocks[6];
	fill.elementSize = 4;
	fill.value = 77;
	fill.width = 1024;
	fill.height = 1;
	CHECK(cudaGraphAddMemsetNode(&filled, body, &inner, 1, &fill));
	inner = add_mix(body, &filled, 6, 4, 14);
	(void)add_kernel(body, &inner, (void *)count_down, 1, counting);
	return graph;
}

static void instantiate(cudaGraph_t graph, cudaGraphExec_t *exec)
{
	if (*exec)
		CHECK(cudaGraphExecDestroy(*exec));
	CHECK(cudaGraphInstantiateWithFlags(exec, graph, 0));
}

/* Every fifth round instantiates the graph after the line, and every tenth one builds it. */
static void run_conditional(int n_rounds)
{
	cudaGraphExec_t exec = NULL;
	cudaGraph_t graph;
	cudaStream_t stream;
	uint32_t *count;

	allocate(SMALL_BYTES);
	CHECK(cudaMalloc(&count, sizeof(*count)));
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	graph = build(count);
	instantiate(graph, &exec);
	for (int round = 1; round <= n_rounds; round++) {
		if (!pause_at(round))
			break;
		if (round % 10 == 0) {
			CHECK(cudaGraphDestroy(graph));
			graph = build(count);
		}
		if (round % 5 == 0)
			instantiate(graph, &exec);
		CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaStreamSynchronize(stream));
	}
	print_digest(SMALL_BYTES);
}

static bool has_conditional(void)
{
	int version;

	CHECK(cudaDriverGetVersion(&version));
	return version >= 12040;
}

#else

static void run_conditional(int n_rounds)
{
	(void)n_rounds;
}

static bool has_conditional(void)
{
	return false;
}

#endif

int main(int argc, char **argv)
{
	if (argc == 1) {
		run_steps();
		return 0;
	}
	if (argc != 3 || strcmp(argv[1], "conditional") != 0 || atoi(argv[2]) < 1) {
		fprintf(stderr, "usage: sleep_steps [conditional ROUNDS]\n");
		return 1;
	}
	if (!has_conditional()) {
		printf("skip: conditional nodes need CUDA 12.4\n");
		return 77;
	}
	run_conditional(atoi(argv[2]));
	return 0;
}
