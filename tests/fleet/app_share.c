/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Usage: app_share size PHASE_US HOLD_MS
 *        app_share contend N|SECONDSs LO_MIB HI_MIB HOLD_MS
 *
 * A CUDA program that shares a device with other processes, and knows nothing of gpupool.
 *
 * size: waits for PHASE_US, takes 90 % of the memory that cudaMemGetInfo reports as free, in 32 blocks, keeps it for
 * HOLD_MS and prints how many bytes it got.
 *
 * contend: N times, or for SECONDS, takes a block of a random size, keeps it for HOLD_MS and frees it. Prints the
 * number of requests, the number of those that failed, and the longest request in microseconds. After a failure it
 * pauses for 1 ms.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int cudaMalloc(void **ptr, size_t bytes);
int cudaFree(void *ptr);
int cudaMemset(void *ptr, int value, size_t bytes);
int cudaMemGetInfo(size_t *available, size_t *total);

enum { BLOCKS = 32, TOUCHED = 4096 };

#define MIB ((size_t)1 << 20)

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void sleep_us(long us)
{
	const struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

	nanosleep(&time, NULL);
}

static int size(char **words)
{
	size_t available, total, got = 0;
	void *ptr;

	sleep_us(atol(words[0]));
	if (cudaMemGetInfo(&available, &total))
		return 3;
	for (int i = 0; i < BLOCKS; i++) {
		size_t bytes = available / 10 * 9 / BLOCKS / MIB * MIB;

		if (!cudaMalloc(&ptr, bytes) && !cudaMemset(ptr, 1, TOUCHED))
			got += bytes;
	}
	sleep_us(atol(words[1]) * 1000);
	printf("%zu\n", got);
	return 0;
}

static int contend(char **words)
{
	uint64_t begin_us, longest_us = 0, count = strtoull(words[0], NULL, 10), n = 0, failed = 0;
	size_t lo = strtoul(words[1], NULL, 10), hi = strtoul(words[2], NULL, 10);
	int is_time = strchr(words[0], 's') != NULL;
	unsigned seed = (unsigned)getpid();

	/* The driver takes memory for the context, too. gpupool cannot make that wait, so it may fail. */
	while (cudaFree(NULL))
		sleep_us(1000);
	begin_us = now_us();
	while (is_time ? now_us() - begin_us < count * 1000000 : n < count) {
		size_t bytes = (lo + (size_t)rand_r(&seed) % (hi - lo + 1)) * MIB;
		uint64_t start_us = now_us(), us;
		void *ptr;
		int r = cudaMalloc(&ptr, bytes);

		us = now_us() - start_us;
		longest_us = us > longest_us ? us : longest_us;
		n++;
		if (r) {
			failed++;
			sleep_us(1000);
			continue;
		}
		if (cudaMemset(ptr, 1, TOUCHED))
			return 3;
		sleep_us(atol(words[3]) * 1000);
		if (cudaFree(ptr))
			return 3;
	}
	printf("%llu %llu %llu\n", (unsigned long long)n, (unsigned long long)failed, (unsigned long long)longest_us);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "size") == 0)
		return size(argv + 2);
	if (argc == 6 && strcmp(argv[1], "contend") == 0)
		return contend(argv + 2);
	fprintf(stderr, "app_share: unknown words\n");
	return 2;
}
