/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Usage: pairs_counted_RUNTIME hit|miss|stream|blocking|legacy|pool PAIRS: makes that many pairs of cudaMalloc and
 * cudaFree for instructions.py, which counts the instructions of alloc_one (or alloc_from_pool) and free_one.
 *
 *   hit:  each allocation gets the block that was freed just before
 *   stream, blocking, legacy: the same with cudaMallocAsync and cudaFreeAsync on a stream of that kind
 *   pool: the same with cudaMallocFromPoolAsync, from the default pool, on a non-blocking stream
 *   miss: nothing is freed before the last allocation, so each needs new memory from the driver
 */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/apps/cudart_min.h"

/*
 * WARM_UP pairs come first: they create the thread's cache, and resolve the functions that the runtime calls. A block
 * of MISS_BYTES is a driver allocation of its own in every pool type.
 */
enum { WARM_UP = 16, PAIRS_MAX = 1000, HIT_BYTES = 64 << 10, MISS_BYTES = 64 << 20 };

static void *blocks[PAIRS_MAX];
static bool is_in_stream_order;
static cudaStream_t stream;
static cudaMemPool_t pool; /* that the program names; or NULL */

static void check(const char *call, cudaError_t error)
{
	if (!error)
		return;
	fprintf(stderr, "pairs_counted: %s failed with error %d\n", call, error);
	exit(1);
}

/* Not inlined, since callgrind switches its count at their names. */
__attribute__((noinline)) void alloc_one(void **ptr, size_t bytes);
__attribute__((noinline)) void alloc_from_pool(void **ptr, size_t bytes);
__attribute__((noinline)) void free_one(void *ptr);

void alloc_one(void **ptr, size_t bytes)
{
	check("cudaMalloc", is_in_stream_order ? cudaMallocAsync(ptr, bytes, stream) : cudaMalloc(ptr, bytes));
}

void alloc_from_pool(void **ptr, size_t bytes)
{
	check("cudaMallocFromPoolAsync", cudaMallocFromPoolAsync(ptr, bytes, pool, stream));
}

void free_one(void *ptr)
{
	check("cudaFree", is_in_stream_order ? cudaFreeAsync(ptr, stream) : cudaFree(ptr));
}

static cudaError_t warm_alloc(void **ptr, size_t bytes)
{
	if (pool)
		return cudaMallocFromPoolAsync(ptr, bytes, pool, stream);
	return is_in_stream_order ? cudaMallocAsync(ptr, bytes, stream) : cudaMalloc(ptr, bytes);
}

/* Its calls are not counted. */
static void warm_up(size_t bytes)
{
	/*
	 * The library registers the process for the kernel's barrier on a thread of its own. Until that is done, each
	 * lock of a thread cache costs some instructions more.
	 */
	const struct timespec registration = {.tv_nsec = 200000000};
	void *ptr;

	check("cudaSetDevice", cudaSetDevice(0));
	for (int i = 0; i < WARM_UP; i++) {
		check("cudaMalloc", warm_alloc(&ptr, bytes));
		check("cudaFree", is_in_stream_order ? cudaFreeAsync(ptr, stream) : cudaFree(ptr));
		if (i == 0)
			nanosleep(&registration, NULL);
	}
	/* The next request of the same size must not find the block. */
	if (bytes == MISS_BYTES)
		check("cudaMalloc", cudaMalloc(&ptr, bytes));
}

enum { STREAM_DEFAULT = 0 };

/* Makes the stream that the case names. Returns false if the case is none in stream order. */
static bool make_stream(const char *name)
{
	is_in_stream_order = true;
	if (!strcmp(name, "pool"))
		check("cudaDeviceGetDefaultMemPool", cudaDeviceGetDefaultMemPool(&pool, 0));
	if (!strcmp(name, "stream") || pool)
		check("cudaStreamCreate", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	else if (!strcmp(name, "blocking"))
		check("cudaStreamCreate", cudaStreamCreateWithFlags(&stream, STREAM_DEFAULT));
	else
		is_in_stream_order = !strcmp(name, "legacy");
	return is_in_stream_order;
}

int main(int argc, char **argv)
{
	unsigned long n_pairs = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
	bool is_miss = argc == 3 && !strcmp(argv[1], "miss");

	if (!n_pairs || n_pairs > PAIRS_MAX || (!is_miss && strcmp(argv[1], "hit") != 0 && !make_stream(argv[1]))) {
		fprintf(stderr, "usage: pairs_counted hit|miss|stream|blocking|legacy|pool PAIRS, at most %d pairs\n",
			PAIRS_MAX);
		return 2;
	}
	warm_up(is_miss ? MISS_BYTES : HIT_BYTES);
	for (unsigned long i = 0; i < n_pairs; i++) {
		(pool ? alloc_from_pool : alloc_one)(&blocks[i], is_miss ? MISS_BYTES : HIT_BYTES);
		if (!is_miss)
			free_one(blocks[i]);
	}
	for (unsigned long i = 0; is_miss && i < n_pairs; i++)
		free_one(blocks[i]);
	return 0;
}
