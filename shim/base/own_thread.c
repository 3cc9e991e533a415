/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "own_thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#include "common/compat.h"

enum { THREADS_MAX = 64 };

static int start_as(int detach_state, size_t stack_bytes, void *(*body)(void *arg), void *arg, pthread_t *ret_thread)
{
	pthread_attr_t attr;
	int error = pthread_attr_init(&attr);

	if (error)
		return error;
	pthread_attr_setdetachstate(&attr, detach_state);
	if (stack_bytes)
		pthread_attr_setstacksize(&attr, stack_bytes);
	error = pthread_create(ret_thread, &attr, body, arg);
	pthread_attr_destroy(&attr);
	return error;
}

/* The program's thread-local data alone may be larger than the stack, so the default size is tried, too. */
static int start(int detach_state, size_t stack_bytes, void *(*body)(void *arg), void *arg, pthread_t *ret_thread)
{
	int error = start_as(detach_state, stack_bytes, body, arg, ret_thread);

	if (error == EINVAL && stack_bytes)
		error = start_as(detach_state, 0, body, arg, ret_thread);
	return -error;
}

int gp_own_thread_start(void *(*body)(void *arg), void *arg, size_t stack_bytes)
{
	sigset_t all, before;
	pthread_t thread;
	int error;

	/*
	 * A new thread inherits the mask. sigprocmask() never blocks the two signals that glibc itself uses. The system
	 * call would block them too, and setuid() in another thread would then wait for the new thread forever.
	 */
	sigfillset(&all);
	if (sigprocmask(SIG_SETMASK, &all, &before))
		return -errno;
	error = start(PTHREAD_CREATE_DETACHED, stack_bytes, body, arg, &thread);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return error;
}

unsigned gp_own_threads_run(void *(*body)(void *arg), void *arg, unsigned n)
{
	pthread_t threads[THREADS_MAX];
	unsigned n_started = 0;
	sigset_t all, before;
	int cancel_state;

	sigfillset(&all);
	if (sigprocmask(SIG_SETMASK, &all, &before))
		return 0;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	while (n_started + 1 < n && n_started < THREADS_MAX &&
		!start(PTHREAD_CREATE_JOINABLE, GP_STACK_SMALL, body, arg, &threads[n_started]))
		n_started++;
	(void)body(arg);
	for (unsigned i = 0; i < n_started; i++)
		pthread_join(threads[i], NULL);
	pthread_setcancelstate(cancel_state, NULL);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return n_started + 1;
}
