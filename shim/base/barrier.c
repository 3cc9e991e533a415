/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "barrier.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "own_thread.h"

/* Much longer than it takes until the stores of a processor are visible to all other processors. */
enum { VISIBLE_NS = 1000000 };

gp_barrier_source gp_barrier;

static void barrier(void)
{
	struct timespec pause = {.tv_nsec = VISIBLE_NS};
	int cancel_state;

	if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0) == 0)
		return;
	/*
	 * A system call filter may refuse the call, if it was installed after the registration. The caller holds a
	 * pool's lock, so it must not be cancelled here.
	 */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	while (nanosleep(&pause, &pause) && errno == EINTR)
		;
	pthread_setcancelstate(cancel_state, NULL);
}

void gp_barrier_register(void)
{
	int kept = errno;

	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0) == 0)
		atomic_store(&gp_barrier, barrier);
	errno = kept;
}

static void *register_once(void *unused)
{
	gp_barrier_register();
	return NULL;
}

void gp_barrier_start(void)
{
	(void)gp_own_thread_start(register_once, NULL, GP_STACK_SMALL);
}
