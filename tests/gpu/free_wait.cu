/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Measures how long a free takes while a kernel that uses the block still runs for 100 ms on a created stream.
 */

#include "gpu.h"

static const unsigned long long KERNEL_NS = 100000000;

__global__ void write_late(char *p, unsigned long long ns)
{
	gpu_delay(ns);
	*p = 1;
}

static const struct row {
	const char *name;
	size_t bytes;
	bool is_pinned;
} rows[] = {
	{"device", 512, false},
	{"device", 1 << 20, false},
	{"device", 64 << 20, false},
	{"device", 1 << 30, false},
	{"pinned", 1 << 20, true},
};

static void *alloc_row(const struct row *row)
{
	void *p;

	CHECK(row->is_pinned ? cudaMallocHost(&p, row->bytes) : cudaMalloc(&p, row->bytes));
	return p;
}

static void free_row(const struct row *row, void *p)
{
	CHECK(row->is_pinned ? cudaFreeHost(p) : cudaFree(p));
}

static void measure(const struct row *row, cudaStream_t stream)
{
	void *p = alloc_row(row);
	double start, free_ms, malloc_ms;
	bool is_busy_after_free, is_busy_after_malloc;

	write_late<<<1, 32, 0, stream>>>((char *)p, 0);
	CHECK(cudaDeviceSynchronize());
	write_late<<<1, 32, 0, stream>>>((char *)p, KERNEL_NS);
	start = now_ns();
	free_row(row, p);
	free_ms = (now_ns() - start) / 1e6;
	is_busy_after_free = cudaStreamQuery(stream) == cudaErrorNotReady;
	start = now_ns();
	p = alloc_row(row);
	malloc_ms = (now_ns() - start) / 1e6;
	is_busy_after_malloc = cudaStreamQuery(stream) == cudaErrorNotReady;
	printf("free_wait kind=%s bytes=%zu free_ms=%.4f busy_after_free=%d malloc_ms=%.4f "
	       "busy_after_malloc=%d\n",
		row->name, row->bytes, free_ms, is_busy_after_free, malloc_ms, is_busy_after_malloc);
	CHECK(cudaDeviceSynchronize());
	free_row(row, p);
}

int main()
{
	cudaStream_t stream;

	gpu_require();
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (const struct row &row : rows) {
		/* A first round, not measured: it initialises the driver and the pool. */
		free_row(&row, alloc_row(&row));
		measure(&row, stream);
	}
	return 0;
}
