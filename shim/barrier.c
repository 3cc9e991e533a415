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

/* Much longer than a processor keeps what it has stored to itself. */
enum { VISIBLE_NS = 1000000 };

enum { NOT_ASKED, THERE, NOT_THERE };
static _Atomic int state;

static void barrier(void)
{
	struct timespec pause = {.tv_nsec = VISIBLE_NS};
	int cancel_state;

	if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0) == 0)
		return;
	/* A filter of system calls may have come since. Who is cancelled here would take a pool's lock along. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	while (nanosleep(&pause, &pause) && errno == EINTR)
		;
	pthread_setcancelstate(cancel_state, NULL);
}

gp_barrier_fn *gp_barrier_find(void)
{
	/* Two threads may come here, and ask twice. */
	if (atomic_load(&state) == NOT_ASKED) {
		long r = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0);

		atomic_store(&state, r ? NOT_THERE : THERE);
	}
	return atomic_load(&state) == THERE ? barrier : NULL;
}
