/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "own_thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#include "common/compat.h"

static int start(void *(*body)(void *arg), void *arg, size_t stack_bytes)
{
	pthread_attr_t attr;
	pthread_t thread;
	int error = pthread_attr_init(&attr);

	if (error)
		return -error;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (stack_bytes)
		pthread_attr_setstacksize(&attr, stack_bytes);
	error = pthread_create(&thread, &attr, body, arg);
	pthread_attr_destroy(&attr);
	if (error != EINVAL || !stack_bytes)
		return -error;
	/* The program's thread-local data alone may be larger than that stack, so try the default size. */
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	error = pthread_create(&thread, &attr, body, arg);
	pthread_attr_destroy(&attr);
	return -error;
}

int gp_own_thread_start(void *(*body)(void *arg), void *arg, size_t stack_bytes)
{
	sigset_t all, before;
	int error;

	/*
	 * A new thread inherits the mask. sigprocmask() never blocks the two signals that glibc itself uses. The system
	 * call would block them too, and setuid() in another thread would then wait for the new thread forever.
	 */
	sigfillset(&all);
	if (sigprocmask(SIG_SETMASK, &all, &before))
		return -errno;
	error = start(body, arg, stack_bytes);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return error;
}
