/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Calls that stand still inside the driver while other threads go on. A test stops a function at one place and decides
 * what happens meanwhile; SIMGPU_JITTER holds up calls that it chooses at random, for a random time.
 */

#include <errno.h>
#include <string.h>
#include <time.h>

#include "ctx.h"

enum { NAP_MAX_NS = 300000 };

static struct {
	bool is_stopped;
	unsigned n_standing;
} places[SIM_N_FNS][SIM_N_PLACES];
static unsigned n_standing; /* in all of them */
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

/* Called with sim.lock, which others can take meanwhile. */
void sim_stop_here(enum sim_fn fn, enum sim_place place)
{
	uint64_t release = n_releases;
	struct timespec until;
	int r = 0;

	if (!places[fn][place].is_stopped)
		return;
	until = deadline(sim.config.deadlock_ms);
	places[fn][place].n_standing++;
	n_standing++;
	while (release == n_releases && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&released, &sim.lock, &until);
	n_standing--;
	places[fn][place].n_standing--;
	if (r == ETIMEDOUT)
		sim_say("%s was stopped and never released", sim_fns[fn].name);
}

/* 0: this call is not held up. */
static long choose_nap_ns(unsigned one_in)
{
	struct sim_thread *self = sim_thread_self();

	if (!one_in)
		return 0;
	self->jitter = (self->jitter + self->id) * 6364136223846793005u + 1442695040888963407u;
	return (self->jitter >> 40) % one_in ? 0 : (long)((self->jitter >> 20) % NAP_MAX_NS);
}

void sim_nap(enum sim_fn fn)
{
	struct timespec nap = {.tv_nsec = choose_nap_ns(sim.config.jitter[fn])};

	if (!nap.tv_nsec)
		return;
	pthread_mutex_unlock(&sim.lock);
	nanosleep(&nap, NULL);
	pthread_mutex_lock(&sim.lock);
}

bool simgpu_stop(const char *name, bool at_end)
{
	enum sim_fn fn = sim_fn_find(name, strlen(name));

	if (fn == SIM_N_FNS)
		return false;
	pthread_mutex_lock(&sim.lock);
	places[fn][at_end ? SIM_AT_END : SIM_AT_START].is_stopped = true;
	pthread_mutex_unlock(&sim.lock);
	return true;
}

unsigned simgpu_stopped(void)
{
	unsigned n;

	pthread_mutex_lock(&sim.lock);
	n = n_standing;
	pthread_mutex_unlock(&sim.lock);
	return n;
}

void simgpu_go(void)
{
	pthread_mutex_lock(&sim.lock);
	for (int fn = 0; fn < SIM_N_FNS; fn++)
		for (int place = 0; place < SIM_N_PLACES; place++)
			places[fn][place].is_stopped &= !places[fn][place].n_standing;
	n_releases++;
	pthread_cond_broadcast(&released);
	pthread_mutex_unlock(&sim.lock);
}
