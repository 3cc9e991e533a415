/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A kernel that writes one byte past the end of a block, to memory without another block, for a sanitizer to find
 * (T10.1). With "within" it stays inside its block.
 */

#include "gpu.h"

#include <cstring>

static const size_t BYTES = 1024; /* a multiple of every pool's granularity */

__global__ void write_at(char *p, size_t i)
{
	p[i] = 1;
}

int main(int argc, char **argv)
{
	bool is_within = argc == 2 && !strcmp(argv[1], "within");
	char *p, byte = 0;

	gpu_require();
	CHECK(cudaMalloc(&p, BYTES));
	write_at<<<1, 1>>>(p, BYTES - is_within);
	if (is_within) {
		CHECK(cudaDeviceSynchronize());
		CHECK(cudaMemcpy(&byte, p + BYTES - 1, 1, cudaMemcpyDeviceToHost));
	} else {
		(void)cudaDeviceSynchronize();
	}
	printf("beyond within=%d byte=%d\n", is_within, byte);
	(void)cudaFree(p);
	return 0;
}
