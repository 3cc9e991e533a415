/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Host functions run on a separate thread, without the simulator's lock. The timeline waits for each
 * up to GRACE_NS of real time, so that a short one ends at a definite virtual time. A host function
 * that takes longer, because it waits for the program, ends when it returns.
 */

#include <time.h>

#include "capture.h"

#define GRACE_NS  20000000
#define RETURN_NS 1000 /* from the return of the function until the stream continues */

static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER;
static struct sim_work *queue_head, **queue_tail = &queue_head;
static bool running;

static struct sim_work *take(void)
{
	struct sim_work *work;

	while (!queue_head)
		pthread_cond_wait(&wanted, &sim.lock);
	work = queue_head;
	queue_head = work->next_polling;
	if (!queue_head)
		queue_tail = &queue_head;
	return work;
}

static void *serve(void *arg)
{
	sim_thread_self()->in_host_func = true;
	pthread_mutex_lock(&sim.lock);
	for (;;) {
		struct sim_work *work = take();

		pthread_mutex_unlock(&sim.lock);
		work->op.fn(work->op.user_data);
		pthread_mutex_lock(&sim.lock);
		work->called = true;
		if (work->state == SIM_RUNNING)
			sim_timeline_add(work, sim_now() + RETURN_NS);
		sim_timeline_progress();
		sim_work_unref(work);
	}
	return NULL;
}

static void start_thread(void)
{
	pthread_t thread;

	if (running)
		return;
	running = !pthread_create(&thread, NULL, serve, NULL);
	if (running)
		pthread_detach(thread);
}

void sim_host_func_run(struct sim_work *work)
{
	struct timespec until;

	start_thread();
	*queue_tail = sim_work_ref(work);
	work->next_polling = NULL;
	queue_tail = &work->next_polling;
	pthread_cond_signal(&wanted);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += GRACE_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	sim.waiters++;
	while (!work->called && !pthread_cond_timedwait(&sim.changed, &sim.lock, &until))
		;
	sim.waiters--;
}

static CUresult launch(CUstream handle, CUhostFn fn, void *user_data, bool per_thread)
{
	struct sim_op op = {.kind = SIM_HOST_FUNC, .name = "host function", .fn = fn, .user_data = user_data};
	struct sim_stream *stream;

	if (!fn)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_of(handle, per_thread, &stream));
	return sim_stream_submit(stream, &op);
}

SIM_STREAM_PAIR(cuLaunchHostFunc, _ptsz, (CUstream stream, CUhostFn fn, void *user_data),
	launch(stream, fn, user_data, per_thread))
