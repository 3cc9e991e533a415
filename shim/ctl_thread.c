/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Since glibc 2.34 the thread functions are in libc under a new version, which an older glibc
 * lacks. Asked for under their first version they are found in both, in the older one if the
 * program has loaded libpthread; hence weak.
 */

#include "ctl_thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#if defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST_VERSION "GLIBC_2.17"
#else
#error "which version of glibc was the first on this machine?"
#endif

__typeof__(pthread_create) gp_first_pthread_create __attribute__((weak));
__typeof__(pthread_attr_setstacksize) gp_first_pthread_attr_setstacksize __attribute__((weak));
__asm__(".symver gp_first_pthread_create, pthread_create@" FIRST_VERSION);
__asm__(".symver gp_first_pthread_attr_setstacksize, pthread_attr_setstacksize@" FIRST_VERSION);

enum { STACK_BYTES = 256 << 10 };

static int start(void *(*body)(void *arg), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	int error = pthread_attr_init(&attr);

	if (error)
		return -error;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	gp_first_pthread_attr_setstacksize(&attr, STACK_BYTES);
	error = gp_first_pthread_create(&thread, &attr, body, arg);
	pthread_attr_destroy(&attr);
	if (error != EINVAL)
		return -error;
	/* A program whose thread-local data alone exceed that stack: take the usual size. */
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	error = gp_first_pthread_create(&thread, &attr, body, arg);
	pthread_attr_destroy(&attr);
	return -error;
}

int gp_ctl_thread_start(void *(*body)(void *arg), void *arg)
{
	sigset_t all, before;
	int error;

	if (!gp_first_pthread_create || !gp_first_pthread_attr_setstacksize)
		return -ENOSYS;
	/*
	 * A new thread inherits the mask. The C function leaves out the two signals that glibc uses
	 * itself, which the system call would not: setuid() of another thread would wait for this
	 * one for ever.
	 */
	sigfillset(&all);
	if (sigprocmask(SIG_SETMASK, &all, &before))
		return -errno;
	error = start(body, arg);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return error;
}
