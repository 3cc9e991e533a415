/* SPDX-License-Identifier: MIT */
/* SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A program with the allocations of a solver on an adaptive grid, for the screens of pictures.py. Each step has
 * temporary arrays. Every fourth step keeps a checkpoint, so that a limit is reached at some time.
 *
 * Usage: solver STEPS [--slow] [--sync] [--wait]: with --slow a step takes 20 ms, with --sync it ends with a wait for
 * the GPU, with --wait the program ends when its standard input ends.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/apps/cudart_min.h"

#define MIB    ((size_t)1 << 20)
#define LEVELS 6

static void *alloc(size_t bytes)
{
	void *block;

	if (cudaMalloc(&block, bytes)) {
		fprintf(stderr, "solver: out of memory\n");
		exit(1);
	}
	cudaMemset(block, 0, bytes);
	return block;
}

static void make_grid(void *levels[LEVELS])
{
	for (int i = 0; i < LEVELS; i++)
		levels[i] = alloc((size_t)(96 >> i) * MIB);
}

static void *checkpoint(int step)
{
	return alloc((size_t)(6 + step % 5) * MIB);
}

static void advance(int step)
{
	void *flux[LEVELS];

	for (int i = 0; i < LEVELS; i++)
		flux[i] = alloc((size_t)(3 + (step * 7 + i * 3) % 11) * MIB);
	for (int i = 0; i < LEVELS; i++)
		cudaFree(flux[i]);
}

static int has_option(int argc, char **argv, const char *option)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], option) == 0)
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 100;
	int is_slow = has_option(argc, argv, "--slow"), has_sync = has_option(argc, argv, "--sync");
	void *grid[LEVELS];

	make_grid(grid);
	for (int step = 0; step < steps; step++) {
		advance(step);
		if (step % 4 == 0)
			checkpoint(step);
		if (has_sync)
			cudaDeviceSynchronize();
		if (is_slow)
			usleep(20000);
	}
	printf("%d steps\n", steps);
	fflush(stdout);
	if (has_option(argc, argv, "--wait"))
		while (getchar() != EOF)
			;
	return 0;
}
