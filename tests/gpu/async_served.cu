/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Allocates in stream order through the runtime, with each kind of stream, and checks the content of each block. Prints
 * "allocations=N wrong=N", and waits for a line, so that another process can ask how many the pool has served.
 */

#include "gpu.h"

enum { PAIRS = 100, BLOCKS = 4 };

static const size_t BYTES = 1 << 20;

typedef cudaError_t allocation(void **p, cudaStream_t stream);

static cudaError_t allocate(void **p, cudaStream_t stream)
{
	return cudaMallocAsync(p, BYTES, stream);
}

static cudaError_t allocate_from_pool(void **p, cudaStream_t stream)
{
	cudaMemPool_t pool;

	CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
	return cudaMallocFromPoolAsync(p, BYTES, pool, stream);
}

/* Each block has content of its own, and is free before the next round. Returns how many bytes were wrong. */
static size_t run(allocation *allocate_one, cudaStream_t stream)
{
	std::vector<unsigned char> seen(BLOCKS * BYTES);
	size_t n_wrong = 0;
	void *blocks[BLOCKS];

	for (int i = 0; i < PAIRS / BLOCKS; i++) {
		for (int nth = 0; nth < BLOCKS; nth++) {
			CHECK(allocate_one(&blocks[nth], stream));
			CHECK(cudaMemsetAsync(blocks[nth], i + nth, BYTES, stream));
		}
		for (int nth = 0; nth < BLOCKS; nth++) {
			CHECK(cudaMemcpyAsync(&seen[nth * BYTES], blocks[nth], BYTES, cudaMemcpyDeviceToHost, stream));
			CHECK(cudaFreeAsync(blocks[nth], stream));
		}
		CHECK(cudaStreamSynchronize(stream));
		for (int nth = 0; nth < BLOCKS; nth++)
			for (size_t at = 0; at < BYTES; at++)
				n_wrong += seen[nth * BYTES + at] != (unsigned char)(i + nth);
	}
	return n_wrong;
}

int main()
{
	cudaStream_t blocking, apart, streams[] = {NULL, cudaStreamLegacy, cudaStreamPerThread, NULL, NULL};
	int n = 0;
	size_t n_wrong = 0;

	CHECK(cudaStreamCreate(&blocking));
	CHECK(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
	streams[3] = blocking;
	streams[4] = apart;
	for (cudaStream_t stream : streams)
		for (allocation *one : {allocate, allocate_from_pool}) {
			n_wrong += run(one, stream);
			n += PAIRS;
		}
	printf("allocations=%d wrong=%zu\n", n, n_wrong);
	fflush(stdout);
	(void)getchar();
	return 0;
}
