/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Threads with small stacks, cancelled threads, and threads that end while they hold or have cached memory. */

#include <limits.h>
#include <pthread.h>
#include <unistd.h>

#include "guest.h"

enum { N_THREADS = 8 };

static void *use_memory(void *wrong)
{
	guest_join();
	*(size_t *)wrong = guest_count_wrong();
	return NULL;
}

/* Makes the first allocation of the process on the smallest possible stack. */
static void small_stacks(void)
{
	pthread_t threads[N_THREADS];
	size_t wrong[N_THREADS];
	pthread_attr_t attr;

	app_start();
	pthread_attr_init(&attr);
	app_result("stack size", pthread_attr_setstacksize(&attr, (size_t)sysconf(_SC_THREAD_STACK_MIN)));
	for (unsigned i = 0; i < N_THREADS; i++) {
		app_result("thread", pthread_create(&threads[i], &attr, use_memory, &wrong[i]));
		if (i == 0)
			pthread_join(threads[i], NULL);
	}
	for (unsigned i = 0; i < N_THREADS; i++) {
		if (i > 0)
			pthread_join(threads[i], NULL);
		printf("wrong words: %zu\n", wrong[i]);
	}
	pthread_attr_destroy(&attr);
}

/* Cancels a thread, which must end at its own cancellation point, not inside a call. */
static void *use_cancelled(void *wrong)
{
	guest_join();
	pthread_cancel(pthread_self());
	*(size_t *)wrong = cuMemFree_v2(app_alloc(MIB)) != 0;
	pthread_testcancel();
	*(size_t *)wrong = 100;
	return NULL;
}

static void cancelled(void)
{
	app_start();
	for (unsigned i = 0; i < N_THREADS; i++) {
		size_t wrong = 50;
		pthread_t thread;
		void *result;

		pthread_create(&thread, NULL, use_cancelled, &wrong);
		pthread_join(thread, &result);
		printf("cancelled %d, wrong %zu\n", result == PTHREAD_CANCELED, wrong);
	}
	guest_use("the others");
}

static pthread_key_t key;

static void free_held(void *ptr)
{
	app_result("freed at the end of a thread", cuMemFree_v2((CUdeviceptr)(uintptr_t)ptr));
}

static void *hold(void *unused)
{
	guest_join();
	pthread_setspecific(key, (void *)(uintptr_t)app_alloc(MIB));
	for (unsigned i = 0; i < 64; i++)
		APP_MUST(cuMemFree_v2(app_alloc((size_t)512 << i % 12)));
	return NULL;
}

/* Memory that threads hold or have cached when they end is not lost. */
static void ends(void)
{
	app_start();
	pthread_key_create(&key, free_held);
	for (unsigned i = 0; i < 64; i++) {
		pthread_t thread;

		pthread_create(&thread, NULL, hold, NULL);
		pthread_join(thread, NULL);
	}
	guest_use("the first");
	app_report_driver();
}

const struct app_scenario app_scenarios[] = {
	{"small-stacks", small_stacks},
	{"cancelled", cancelled},
	{"ends", ends},
	{0},
};
