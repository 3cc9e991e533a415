/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A program with a static CUDA runtime that knows nothing of sleep. As work_sleep.py, it prints a line after every ten
 * steps and waits for one. The last line has a digest of all of its memory.
 */

#include <cstdint>

#include "gpu.h"

static const int STEPS = 60, STEPS_A_PAUSE = 10, N_BLOCKS = 8;
static const size_t BLOCK_BYTES = (size_t)64 << 20, N_WORDS = BLOCK_BYTES / 4;

__global__ void mix(uint32_t *to, const uint32_t *from, size_t n, uint32_t step)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
		to[i] = to[i] * 1664525u + from[(i * 7 + step) % n] + 1013904223u;
}

static void must(cudaError_t error, const char *what)
{
	if (!error)
		return;
	fprintf(stderr, "sleep_steps: %s: %s\n", what, cudaGetErrorString(error));
	exit(1);
}

int main(void)
{
	uint32_t *blocks[N_BLOCKS], *words = (uint32_t *)malloc(BLOCK_BYTES);
	uint64_t digest = 14695981039346656037u;
	char line[64];

	for (int i = 0; i < N_BLOCKS; i++) {
		must(cudaMalloc(&blocks[i], BLOCK_BYTES), "cudaMalloc");
		must(cudaMemset(blocks[i], i, BLOCK_BYTES), "cudaMemset");
	}
	for (int step = 1; step <= STEPS; step++) {
		mix<<<1024, 256>>>(blocks[step % N_BLOCKS], blocks[(step + 3) % N_BLOCKS], N_WORDS, (uint32_t)step);
		if (step % STEPS_A_PAUSE)
			continue;
		must(cudaDeviceSynchronize(), "a step");
		printf("step %d\n", step);
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin))
			break;
	}
	for (int i = 0; i < N_BLOCKS; i++) {
		must(cudaMemcpy(words, blocks[i], BLOCK_BYTES, cudaMemcpyDeviceToHost), "cudaMemcpy");
		for (size_t k = 0; k < N_WORDS; k++)
			digest = (digest ^ words[k]) * 1099511628211u;
	}
	printf("digest %016llx\n", (unsigned long long)digest);
	return 0;
}
