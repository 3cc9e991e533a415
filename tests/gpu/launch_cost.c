/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The time that a launch takes, for the part `sleep`, which has programs without and with gpupool take turns.
 *
 *     launch_cost NS LAUNCHES
 *
 * For each line of its input it launches a kernel of NS nanoseconds that many times, and prints how many nanoseconds a
 * launch took. The line says how it launches: "back" one after the other, and waits once; "wait" waits after each one.
 *
 *     cc -O2 -iquote . tests/gpu/launch_cost.c -o launch_cost -lcuda
 *     (echo back; echo wait) | ./launch_cost 3000 20000
 */

#include <string.h>

#include "tests/gpu/probe.h"

/* The program has pooled memory, and has freed some, as any other one. */
static void use_memory(void)
{
	CUdeviceptr ptr[2];

	for (int i = 0; i < 2; i++) {
		MUST(cuMemAlloc_v2(&ptr[i], 16 * MIB));
		fill_words(NULL, ptr[i], 16 * MIB, 1);
	}
	MUST(cuCtxSynchronize());
	MUST(cuMemFree_v2(ptr[1]));
	check(wrong_words(ptr[0], 16 * MIB, 1) == 0, "content");
}

static double measure(CUfunction spin, CUstream stream, uint64_t ns, unsigned long n, int is_waiting)
{
	void *params[] = {&ns};
	double start = now();

	for (unsigned long i = 0; i < n; i++) {
		MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
		if (is_waiting)
			MUST(cuStreamSynchronize(stream));
	}
	MUST(cuStreamSynchronize(stream));
	return (now() - start) * 1e9 / (double)n;
}

int main(int argc, char **argv)
{
	uint64_t ns = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
	unsigned long n = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
	CUfunction spin;
	CUstream stream;
	char line[64];

	if (!ns || !n) {
		fprintf(stderr, "usage: launch_cost NS LAUNCHES\n");
		return 1;
	}
	MUST(cuModuleGetFunction(&spin, start_driver(), "spin"));
	MUST(cuStreamCreate(&stream, 1));
	use_memory();
	(void)measure(spin, stream, ns, 100, 0);
	while (fgets(line, sizeof(line), stdin)) {
		printf("launch %.1f\n", measure(spin, stream, ns, n, strncmp(line, "wait", 4) == 0));
		fflush(stdout);
	}
	return n_failed != 0;
}
