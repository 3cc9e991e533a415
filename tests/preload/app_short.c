/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Programs that run out of memory, each for a different reason. Each allocates until a request is refused, or
 * until it has finished. Its facts are whether an allocation was "refused", how many were "served", and the
 * most bytes that were "live".
 */

#include "app_driver.h"

#include "api/gpupool.h"

enum { MANY = 60000 };

static struct block {
	CUdeviceptr ptr;
	size_t bytes;
} blocks[MANY];

static uint64_t n_served, live_bytes, peak_bytes;
static bool is_over; /* an allocation was refused */

/* Allocates, unless an allocation was refused before. */
static void take(struct block *block, size_t bytes)
{
	*block = (struct block){0};
	if (is_over)
		return;
	if (cuMemAlloc_v2(&block->ptr, bytes)) {
		is_over = true;
		block->ptr = 0;
		return;
	}
	block->bytes = bytes;
	n_served++;
	live_bytes += bytes;
	peak_bytes = peak_bytes > live_bytes ? peak_bytes : live_bytes;
}

static void drop(struct block *block)
{
	if (block->ptr)
		APP_MUST(cuMemFree_v2(block->ptr));
	live_bytes -= block->bytes;
	*block = (struct block){0};
}

static void finish(void)
{
	app_fact("refused", is_over);
	app_fact("served", n_served);
	app_fact("live", peak_bytes);
	app_pause("short");
	printf("done\n");
}

/* Allocates n blocks of a size and keeps them. */
static void fill(size_t n, size_t bytes)
{
	for (size_t i = 0; i < n; i++)
		take(&blocks[i], bytes);
}

static void drop_every(size_t n, size_t nth)
{
	for (size_t i = 0; i < n; i++)
		if (i % nth == 0)
			drop(&blocks[i]);
}

static size_t between(unsigned *seed, size_t least, size_t most)
{
	uint64_t number = (uint64_t)app_random(seed) << 16 | app_random(seed);

	return least + number % (most - least);
}

/* Never frees anything. */
static void leak(void)
{
	app_start();
	for (size_t i = 0; i < 400; i++)
		take(&blocks[i], 3 * MIB + 4096);
	finish();
}

/* Leaks blocks beside a working set that is allocated and freed. */
static void leak_beside_work(void)
{
	struct block work[4];

	app_start();
	for (size_t i = 0; i < 4000 && !is_over; i++) {
		for (size_t k = 0; k < 4; k++)
			take(&work[k], (k + 1) * MIB / 2);
		take(&blocks[i], 300 * KIB);
		for (size_t k = 0; k < 4; k++)
			drop(&work[k]);
	}
	finish();
}

/* Leaks small blocks only. */
static void leak_small(void)
{
	unsigned seed = 7;

	app_start();
	for (size_t i = 0; i < 40000; i++)
		take(&blocks[i], between(&seed, 1, 20000));
	finish();
}

/* Half of the memory is held, and more than half is requested. */
static void too_large(void)
{
	app_start();
	fill(30, 4 * MIB);
	take(&blocks[30], 150 * MIB);
	finish();
}

/* Frees every other block of one size and then requests larger ones. */
static void sieve(void)
{
	app_start();
	fill(46, 4 * MIB);
	drop_every(46, 2);
	for (size_t i = 0; i < 4; i++)
		take(&blocks[50 + i], 20 * MIB);
	finish();
}

/* Like sieve, with sizes that are not multiples of any granularity. */
static void sieve_odd(void)
{
	unsigned seed = 3;

	app_start();
	for (size_t i = 0; i < 40; i++)
		take(&blocks[i], between(&seed, 3 * MIB, 5 * MIB));
	drop_every(40, 2);
	for (size_t i = 0; i < 4; i++)
		take(&blocks[50 + i], 20 * MIB);
	finish();
}

/* One block stays in each slab of small blocks, so no slab becomes free. */
static void small_survivors(void)
{
	app_start();
	for (size_t i = 0; i < 2900; i++)
		take(&blocks[i], 60 * KIB);
	for (size_t i = 0; i < 2900; i++)
		if (i % 30)
			drop(&blocks[i]);
	for (size_t i = 0; i < 10; i++)
		take(&blocks[3000 + i], 12 * MIB);
	finish();
}

/* Each step allocates activations and frees them, and keeps two smaller blocks. */
static void training(void)
{
	unsigned seed = 11;
	size_t n_kept = 0;

	app_start();
	for (size_t step = 0; step < 400 && !is_over; step++) {
		struct block layers[12];

		for (size_t k = 0; k < LENGTH(layers); k++) {
			take(&layers[k], between(&seed, 512 * KIB, 6 * MIB));
			if (k % 6 == 2)
				take(&blocks[n_kept++], between(&seed, 100 * KIB, 800 * KIB));
		}
		for (size_t k = 0; k < LENGTH(layers); k++)
			drop(&layers[k]);
	}
	finish();
}

/* The inputs of each step are slightly larger than those before. */
static void growing_inputs(void)
{
	app_start();
	for (size_t step = 0; step < 300 && !is_over; step++) {
		struct block layers[6];

		for (size_t k = 0; k < LENGTH(layers); k++)
			take(&layers[k], (4 + k) * MIB + step * 96 * KIB);
		for (size_t k = 0; k < LENGTH(layers); k++)
			drop(&layers[k]);
	}
	finish();
}

/* Copies an array into one of one and a half times its size, repeatedly. */
static void doubling(void)
{
	struct block array = {0}, larger;
	size_t bytes = 3 * MIB;

	app_start();
	take(&array, bytes);
	fill(8, 5 * MIB);
	while (!is_over && bytes < 400 * MIB) {
		bytes += bytes / 2;
		take(&larger, bytes);
		drop(&array);
		array = larger;
	}
	finish();
}

/* Sizes over three orders of magnitude, lives of all lengths, and more memory held over time. */
static void mixed(void)
{
	unsigned seed = 5;

	app_start();
	for (size_t i = 0; i < 20000 && !is_over; i++) {
		size_t at = app_random(&seed) % 200, shift = app_random(&seed) % 9;

		drop(&blocks[at]);
		take(&blocks[at], between(&seed, 64 * KIB << shift, 128 * KIB << shift));
	}
	finish();
}

/* Every third block of many sizes stays. */
static void mixed_survivors(void)
{
	unsigned seed = 9;
	size_t n = 0, sum = 0;

	app_start();
	while (sum < 150 * MIB) {
		size_t bytes = (700 * KIB << app_random(&seed) % 4) + between(&seed, 0, 500 * KIB);

		take(&blocks[n++], bytes);
		sum += bytes;
	}
	for (size_t i = 0; i < n; i++)
		if (i % 3)
			drop(&blocks[i]);
	for (size_t i = 0; i < 20; i++)
		take(&blocks[n + i], 11 * MIB);
	finish();
}

/* Sizes just above the end of a size class. */
static void above_classes(void)
{
	app_start();
	for (size_t i = 0; i < 400; i++)
		take(&blocks[i], 2 * MIB + 64 * KIB);
	finish();
}

/* Managed memory, which the pool does not manage, takes most of the device. */
static void managed(void)
{
	CUdeviceptr ptr;

	app_start();
	fill(4, 4 * MIB);
	APP_MUST(cuMemAllocManaged(&ptr, 160 * MIB, 1));
	take(&blocks[10], 60 * MIB);
	finish();
}

/* A region keeps parts of the memory that is missing elsewhere. */
static void region(void)
{
	app_start();
	(void)gpupool_region_begin("mine");
	fill(18, 10 * MIB);
	(void)gpupool_region_end();
	drop_every(18, 2);
	for (size_t i = 0; i < 4; i++)
		take(&blocks[20 + i], 60 * MIB);
	finish();
}

/* Another context holds most of the memory. */
static void other_context(void)
{
	CUcontext other;

	app_start();
	APP_MUST(cuCtxCreate_v2(&other, 0, 0));
	fill(40, 4 * MIB);
	APP_MUST(cuCtxSetCurrent(app_ctx));
	take(&blocks[50], 100 * MIB);
	finish();
}

const struct app_scenario app_scenarios[] = {
	{"leak", leak},
	{"leak-beside-work", leak_beside_work},
	{"leak-small", leak_small},
	{"too-large", too_large},
	{"sieve", sieve},
	{"sieve-odd", sieve_odd},
	{"small-survivors", small_survivors},
	{"training", training},
	{"growing-inputs", growing_inputs},
	{"doubling", doubling},
	{"mixed", mixed},
	{"mixed-survivors", mixed_survivors},
	{"above-classes", above_classes},
	{"managed", managed},
	{"region", region},
	{"other-context", other_context},
	{0},
};
