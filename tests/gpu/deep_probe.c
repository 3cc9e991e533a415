/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A program that another one has put to sleep and taken out of the device (gpupool-stat sleep --deep). It holds memory
 * of the pool and of the driver, and does what the lines of its input say:
 *
 *     call     threads make calls that wait until the process is awake: also those in which the driver would end it
 *     join     waits for these threads, and says how many there were
 *     check    counts the words that are wrong, in both kinds of memory
 *
 *     cc -O2 -iquote . tests/gpu/deep_probe.c -o deep_probe -lcuda -lpthread
 *     GPUPOOL_POOL=vmm LD_PRELOAD=.../libgpupool.so ./deep_probe MIB
 */

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/gpu/probe.h"

enum { OWN_MIB = 64 };

static CUcontext context;
static CUdeviceptr pooled, own;
static _Atomic unsigned n_returned;

static void *wait_for_context(void *unused)
{
	MUST(cuCtxSetCurrent(context));
	MUST(cuCtxSynchronize());
	atomic_fetch_add(&n_returned, 1);
	return NULL;
}

static void *wait_for_stream(void *unused)
{
	MUST(cuCtxSetCurrent(context));
	MUST(cuStreamSynchronize(NULL));
	atomic_fetch_add(&n_returned, 1);
	return NULL;
}

static void *submit(void *unused)
{
	MUST(cuCtxSetCurrent(context));
	MUST(cuMemsetD32_v2(counter, 0, 2));
	atomic_fetch_add(&n_returned, 1);
	return NULL;
}

static void *(*const calls[])(void *) = {wait_for_context, wait_for_stream, submit};
enum { N_CALLS = sizeof(calls) / sizeof(*calls) };

int main(int argc, char **argv)
{
	size_t bytes = (argc > 1 ? strtoul(argv[1], NULL, 0) : 1024) * MIB;
	pthread_t threads[N_CALLS];
	double begun = now();
	char line[64];

	(void)start_driver();
	MUST(cuCtxGetCurrent(&context));
	MUST(cuMemAlloc_v2(&pooled, bytes));
	MUST(cuMemAllocAsync(&own, OWN_MIB * MIB, NULL));
	fill_words(NULL, pooled, bytes, 3);
	fill_words(NULL, own, OWN_MIB * MIB, 4);
	MUST(cuCtxSynchronize());
	printf("ready after %.1f s\n", now() - begun);
	while (!fflush(stdout) && fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (strcmp(line, "call") == 0) {
			atomic_store(&n_returned, 0);
			for (int i = 0; i < N_CALLS; i++)
				(void)pthread_create(&threads[i], NULL, calls[i], NULL);
			puts("called");
		} else if (strcmp(line, "join") == 0) {
			for (int i = 0; i < N_CALLS; i++)
				(void)pthread_join(threads[i], NULL);
			printf("joined %u\n", atomic_load(&n_returned));
		} else {
			uint64_t wrong = wrong_words(pooled, bytes, 3) + wrong_words(own, OWN_MIB * MIB, 4);

			check(!wrong, "content");
			printf("returned %u wrong %llu\n", atomic_load(&n_returned), (unsigned long long)wrong);
		}
	}
	return 0;
}
