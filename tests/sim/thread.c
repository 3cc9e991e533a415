/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <stdlib.h>

#include "ctx.h"

static __thread struct sim_thread self;
static pthread_key_t at_thread_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The default streams of a thread end with it. */
static void end_thread(void *arg)
{
	struct sim_thread *thread = arg;

	if (!sim.forked) {
		pthread_mutex_lock(&sim.lock);
		while (thread->defaults)
			sim_stream_free(thread->defaults);
		pthread_mutex_unlock(&sim.lock);
	}
	free(thread->stack);
	*thread = (struct sim_thread){0};
}

static void in_child(void)
{
	sim.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	sim.forked = sim.initialised;
}

static void prepare(void)
{
	pthread_key_create(&at_thread_end, end_thread);
	pthread_atfork(NULL, NULL, in_child);
}

struct sim_thread *sim_thread_self(void)
{
	static uint64_t ids;

	if (!self.id) {
		pthread_once(&once, prepare);
		self.id = __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED);
		pthread_setspecific(at_thread_end, &self);
	}
	return &self;
}
