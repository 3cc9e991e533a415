/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Calls that stop inside the driver while other threads continue. A test stops a function at its start or its end, and
 * decides what happens meanwhile. SIMGPU_JITTER delays randomly chosen calls for a random time.
 */

#include <errno.h>
#include <string.h>
#include <time.h>

#include "ctx.h"

enum { DELAY_MAX_NS = 300000 };

static struct {
	bool is_stopped;
	unsigned n_stopped;
	unsigned n_passing; /* calls that are not stopped before the first one that is */
} stop_points[SIM_N_FNS][SIM_N_STOP_POINTS];
static unsigned n_stopped; /* in all functions */
static uint64_t n_releases;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;

static struct timespec deadline(uint64_t ms)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += (time_t)(ms / 1000);
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

/* The caller holds sim.lock. Other threads can take it while the call is stopped. */
void sim_stop_here(enum sim_fn fn, enum sim_stop_point point)
{
	uint64_t release = n_releases;
	struct timespec until;
	int r = 0;

	if (!stop_points[fn][point].is_stopped)
		return;
	if (stop_points[fn][point].n_passing) {
		stop_points[fn][point].n_passing--;
		return;
	}
	until = deadline(sim.config.deadlock_ms);
	stop_points[fn][point].n_stopped++;
	n_stopped++;
	while (release == n_releases && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&released, &sim.lock, &until);
	n_stopped--;
	stop_points[fn][point].n_stopped--;
	if (r == ETIMEDOUT)
		sim_print("%s was stopped, and not released within SIMGPU_DEADLOCK_MS", sim_fns[fn].name);
}

/* Returns the delay of this call in ns, or 0. */
static long choose_delay_ns(unsigned one_in)
{
	struct sim_thread *self = sim_thread_self();

	if (!one_in)
		return 0;
	self->jitter = (self->jitter + self->id) * 6364136223846793005u + 1442695040888963407u;
	return (self->jitter >> 40) % one_in ? 0 : (long)((self->jitter >> 20) % DELAY_MAX_NS);
}

void sim_delay_randomly(enum sim_fn fn)
{
	struct timespec delay = {.tv_nsec = choose_delay_ns(sim.config.jitter[fn])};

	if (!delay.tv_nsec)
		return;
	pthread_mutex_unlock(&sim.lock);
	nanosleep(&delay, NULL);
	pthread_mutex_lock(&sim.lock);
}

bool simgpu_stop_nth(const char *name, bool at_end, unsigned nth)
{
	enum sim_stop_point point = at_end ? SIM_AT_END : SIM_AT_START;
	enum sim_fn fn = sim_fn_find(name, strlen(name));

	if (fn == SIM_N_FNS || !nth)
		return false;
	pthread_mutex_lock(&sim.lock);
	stop_points[fn][point].is_stopped = true;
	stop_points[fn][point].n_passing = nth - 1;
	pthread_mutex_unlock(&sim.lock);
	return true;
}

bool simgpu_stop(const char *name, bool at_end)
{
	return simgpu_stop_nth(name, at_end, 1);
}

unsigned simgpu_stopped(void)
{
	unsigned n;

	pthread_mutex_lock(&sim.lock);
	n = n_stopped;
	pthread_mutex_unlock(&sim.lock);
	return n;
}

void simgpu_go(void)
{
	pthread_mutex_lock(&sim.lock);
	for (int fn = 0; fn < SIM_N_FNS; fn++)
		for (int point = 0; point < SIM_N_STOP_POINTS; point++)
			stop_points[fn][point].is_stopped &= !stop_points[fn][point].n_stopped;
	n_releases++;
	pthread_cond_broadcast(&released);
	pthread_mutex_unlock(&sim.lock);
}
