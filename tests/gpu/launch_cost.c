/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The time that a launch takes, for the part `sleep`, which has programs without and with gpupool take turns.
 *
 *     launch_cost NS LAUNCHES
 *
 * For each line of its input it launches a kernel of NS nanoseconds that many times, and prints how many nanoseconds a
 * launch took. The line says how it launches: "back" one after the other, and waits once; "wait" waits after each one.
 * "direct back" and "direct wait" do the same by the driver's own functions, which gpupool's hooks do not see. The two
 * differ by the cost of the hooks alone: process, context, stream and kernel are the same.
 *
 * Its first line names the functions whose hooks it calls: "hooked cuLaunchKernel cuStreamSynchronize" under gpupool,
 * and "hooked none" without it, where "direct" changes nothing.
 *
 *     cc -D_GNU_SOURCE -O2 -fPIE -pie -iquote . tests/gpu/launch_cost.c -o launch_cost -lcuda
 *     (echo back; echo direct back; echo wait; echo direct wait) | ./launch_cost 3000 20000
 */

#include <string.h>

#include "tests/gpu/probe.h"
#include "tests/gpu/symbols.h"

#ifndef __PIE__
#error "compile with -fPIE -pie: elsewhere the address of a function is that of a stub in the program"
#endif

#define DRIVER "libcuda.so.1"

/* The functions by which the program launches and waits. */
struct entry {
	__typeof__(cuLaunchKernel) *launch;
	__typeof__(cuStreamSynchronize) *wait;
};

/* The functions that the program is linked to: gpupool's hooks under the preload, and the driver's otherwise. */
static const struct entry linked = {cuLaunchKernel, cuStreamSynchronize};

static struct entry find_direct(void)
{
	return (struct entry){
		(__typeof__(cuLaunchKernel) *)must_find(DRIVER, "cuLaunchKernel"),
		(__typeof__(cuStreamSynchronize) *)must_find(DRIVER, "cuStreamSynchronize"),
	};
}

static void print_hooked(const struct entry *direct)
{
	int is_launch = linked.launch != direct->launch, is_wait = linked.wait != direct->wait;

	printf("hooked%s%s%s\n", is_launch ? " cuLaunchKernel" : "", is_wait ? " cuStreamSynchronize" : "",
		is_launch || is_wait ? "" : " none");
	fflush(stdout);
}

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

/*
 * gpupool does not see direct launches: it would reuse memory, or put it to sleep, while their kernels run. This program
 * allows it: the kernels touch no memory, nothing is freed or put to sleep from here on, and each measurement ends with
 * a wait.
 */
static double measure(
	const struct entry *entry, CUfunction spin, CUstream stream, uint64_t ns, unsigned long n, int is_waiting)
{
	void *params[] = {&ns};
	double start = now();

	for (unsigned long i = 0; i < n; i++) {
		MUST(entry->launch(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
		if (is_waiting)
			MUST(entry->wait(stream));
	}
	MUST(entry->wait(stream));
	return (now() - start) * 1e9 / (double)n;
}

/* Reads how to launch. Returns false for a line that says something else. */
static int parse(const char *line, int *is_direct, int *is_waiting)
{
	*is_direct = strncmp(line, "direct ", 7) == 0;
	line += *is_direct ? 7 : 0;
	*is_waiting = strcmp(line, "wait\n") == 0;
	return *is_waiting || strcmp(line, "back\n") == 0;
}

int main(int argc, char **argv)
{
	uint64_t ns = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
	unsigned long n = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
	int is_direct, is_waiting;
	struct entry direct;
	CUfunction spin;
	CUstream stream;
	char line[64];

	if (!ns || !n) {
		fprintf(stderr, "usage: launch_cost NS LAUNCHES\n");
		return 1;
	}
	direct = find_direct();
	print_hooked(&direct);
	MUST(cuModuleGetFunction(&spin, start_driver(), "spin"));
	MUST(cuStreamCreate(&stream, 1));
	use_memory();
	(void)measure(&linked, spin, stream, ns, 100, 0);
	(void)measure(&direct, spin, stream, ns, 100, 0);
	while (fgets(line, sizeof(line), stdin)) {
		if (!parse(line, &is_direct, &is_waiting)) {
			fprintf(stderr, "error: not [direct] back or [direct] wait: %s", line);
			return 1;
		}
		printf("launch %.1f\n", measure(is_direct ? &direct : &linked, spin, stream, ns, n, is_waiting));
		fflush(stdout);
	}
	return n_failed != 0;
}
