/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Code that the two demo programs share: options, clock and the final report. C and CUDA C++. */

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct demo_options {
	unsigned steps, size, device;
	bool wait, info;
};

/* The program's own measurements, and a checksum of its results. */
struct demo_measurements {
	uint64_t start_ns, alloc_ns, mallocs, frees, checksum;
};

static inline uint64_t demo_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void demo_measurements_start(struct demo_measurements *measured)
{
	memset(measured, 0, sizeof(*measured));
	measured->checksum = 0xcbf29ce484222325u;
	measured->start_ns = demo_now_ns();
}

/* Adds results to the checksum: the 64-bit hash of Fowler, Noll and Vo, a word at a time. */
static inline void demo_measurements_add(struct demo_measurements *measured, const uint32_t *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		measured->checksum = (measured->checksum ^ words[i]) * 0x100000001b3u;
}

static inline void demo_measurements_print(const struct demo_measurements *measured, unsigned steps)
{
	double seconds = (double)(demo_now_ns() - measured->start_ns) / 1e9;

	printf("steps          %u\n", steps);
	printf("seconds        %.6f\n", seconds);
	printf("alloc_seconds  %.6f\n", (double)measured->alloc_ns / 1e9);
	printf("mallocs        %llu\n", (unsigned long long)measured->mallocs);
	printf("frees          %llu\n", (unsigned long long)measured->frees);
	printf("checksum       %016llx\n", (unsigned long long)measured->checksum);
	fflush(stdout);
}

/* Waits for a line, or the end, of standard input, with all memory still allocated. */
static inline void demo_wait(const struct demo_options *options)
{
	int c;

	if (!options->wait)
		return;
	do
		c = getchar();
	while (c != '\n' && c != EOF);
}

static inline unsigned demo_number(const char *name, const char *text, unsigned min, unsigned max)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = text ? strtoul(text, &end, 10) : 0;
	if (text && !errno && end != text && !*end && *text != '-' && n >= min && n <= max)
		return (unsigned)n;
	fprintf(stderr, "demo: %s needs a number from %u to %u\n", name, min, max);
	exit(2);
}

static inline void demo_usage(FILE *out, const char *size_help)
{
	fprintf(out,
		"Usage: demo [options]\n"
		"  --steps N   number of time steps\n"
		"  --size N    %s\n"
		"  --device N  number of the GPU to use (default: 0)\n"
		"  --wait      after the last step, wait for a line on standard input before freeing memory\n"
		"  --info      print the name of the GPU, and exit\n"
		"  --help      print this help\n",
		size_help);
}

/* Parses the command line into options, which have the defaults before. Exits with 2 if it is wrong. */
static inline void demo_options_read(struct demo_options *options, int argc, char **argv, unsigned size_min,
	unsigned size_max, const char *size_help)
{
	for (int i = 1; i < argc; i++) {
		const char *name = argv[i], *value = argv[i + 1];

		if (!strcmp(name, "--steps")) {
			options->steps = demo_number(name, value, 1, 100000000);
			i++;
		} else if (!strcmp(name, "--size")) {
			options->size = demo_number(name, value, size_min, size_max);
			i++;
		} else if (!strcmp(name, "--device")) {
			options->device = demo_number(name, value, 0, 63);
			i++;
		} else if (!strcmp(name, "--wait")) {
			options->wait = true;
		} else if (!strcmp(name, "--info")) {
			options->info = true;
		} else if (!strcmp(name, "--help")) {
			demo_usage(stdout, size_help);
			exit(0);
		} else {
			fprintf(stderr, "demo: unknown option '%s'\n", name);
			demo_usage(stderr, size_help);
			exit(2);
		}
	}
}
