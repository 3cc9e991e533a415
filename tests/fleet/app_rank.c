/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Usage: app_rank SEED STEPS LIVE-MIB LARGEST-MIB [PHASE]
 *
 * A rank of a job: allocates and frees blocks of random sizes in a random order, and holds at most LIVE-MIB at a time.
 * With PHASE, a number of steps, it holds at most an eighth of that in every second phase. Ranks with even and with odd
 * seeds do so in turn.
 * It prints "ready", and begins at a line on the standard input. It then prints "failures=N peak=BYTES ns=N": requests
 * that failed, the most bytes that it held, and the time that the steps took. It keeps what it holds until
 * the standard input ends.
 */

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int cudaMalloc(void **ptr, size_t bytes);
int cudaFree(void *ptr);

enum { BLOCKS = 256, OUT_OF_MEMORY = 2 };

static struct {
	void *ptr;
	uint64_t bytes;
} blocks[BLOCKS];

static uint64_t state, live, live_max, largest, peak, n_failures;

static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Most blocks are small, and the sizes are spread over powers of two. */
static uint64_t draw_bytes(void)
{
	uint64_t bytes = largest >> draw() % 12;

	return bytes / 2 + draw() % (bytes / 2) + 1;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void must(int result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "app_rank: %s: error %d\n", what, result);
	exit(3);
}

static void free_block(unsigned i)
{
	must(cudaFree(blocks[i].ptr), "cudaFree");
	live -= blocks[i].bytes;
	blocks[i].bytes = 0;
}

static void allocate(unsigned i, uint64_t bytes)
{
	int result = cudaMalloc(&blocks[i].ptr, bytes);

	n_failures += result == OUT_OF_MEMORY;
	if (result == OUT_OF_MEMORY)
		return;
	must(result, "cudaMalloc");
	blocks[i].bytes = bytes;
	live += bytes;
	peak = live > peak ? live : peak;
}

/* A block that exceeds what the rank may hold is not allocated; another one is freed instead. */
static void step(uint64_t most)
{
	unsigned i = (unsigned)(draw() % BLOCKS);
	uint64_t bytes = draw_bytes();

	if (!blocks[i].bytes && live + bytes <= most) {
		allocate(i, bytes);
		return;
	}
	for (unsigned n = 0; n < BLOCKS && !blocks[i].bytes; n++)
		i = (i + 1) % BLOCKS;
	if (blocks[i].bytes)
		free_block(i);
}

int main(int argc, char **argv)
{
	uint64_t seed, steps, phase, start_ns;
	char line[16];

	if (argc != 5 && argc != 6)
		return 2;
	seed = strtoull(argv[1], NULL, 10);
	phase = argc == 6 ? strtoull(argv[5], NULL, 10) : 0;
	state = seed * 0x9e3779b97f4a7c15ull + 1;
	steps = strtoull(argv[2], NULL, 10);
	live_max = strtoull(argv[3], NULL, 10) << 20;
	largest = strtoull(argv[4], NULL, 10) << 20;
	must(cudaMalloc(&blocks[0].ptr, 1), "cudaMalloc");
	must(cudaFree(blocks[0].ptr), "cudaFree");
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 0;
	start_ns = now_ns();
	for (uint64_t n = 0; n < steps; n++)
		step(phase && (n / phase + seed) % 2 ? live_max / 8 : live_max);
	printf("failures=%" PRIu64 " peak=%" PRIu64 " ns=%" PRIu64 "\n", n_failures, peak, now_ns() - start_ns);
	fflush(stdout);
	(void)!fgets(line, sizeof(line), stdin);
	return 0;
}
