/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "clock.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "pool/base.h"

enum { YIELDS = 64, PAUSE_STEP_NS = 1000, PAUSE_MAX_NS = 100000 };

uint64_t gp_clock_now_ns(void *unused)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void gp_clock_pause(void *unused, unsigned attempt)
{
	if (attempt < YIELDS)
		sched_yield();
	else
		gp_clock_sleep(gp_min((uint64_t)(attempt - YIELDS + 1) * PAUSE_STEP_NS, PAUSE_MAX_NS));
}

void gp_clock_sleep(uint64_t ns)
{
	struct timespec wait = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
	int cancel_state;

	/*
	 * The caller is in the middle of an operation that other threads wait for, so it must not be cancelled here.
	 */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	nanosleep(&wait, NULL);
	pthread_setcancelstate(cancel_state, NULL);
}
