/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Queries for tests, and the summary at exit. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctx.h"
#include "race.h"

static void lock(void)
{
	pthread_mutex_lock(&sim.lock);
	sim_config_load();
}

static uint64_t read_counter(const uint64_t *counter)
{
	uint64_t value;

	lock();
	value = *counter;
	pthread_mutex_unlock(&sim.lock);
	return value;
}

static uint64_t all_calls(void)
{
	uint64_t n = 0;

	lock();
	for (int fn = 0; fn < SIM_N_FNS; fn++)
		n += sim.calls[fn];
	pthread_mutex_unlock(&sim.lock);
	return n;
}

uint64_t simgpu_calls(const char *name)
{
	enum sim_fn fn;

	if (!name)
		return all_calls();
	fn = sim_fn_find(name, strlen(name));
	return fn < SIM_N_FNS ? read_counter(&sim.calls[fn]) : 0;
}

uint64_t simgpu_races(void)
{
	return read_counter(&sim.races);
}

uint64_t simgpu_deadlocks(void)
{
	return read_counter(&sim.deadlocks);
}

uint64_t simgpu_invalid_uses(void)
{
	return read_counter(&sim.invalid_uses);
}

uint64_t simgpu_faults_seen(void)
{
	return read_counter(&sim.faults_seen);
}

void simgpu_expect_races(uint64_t n)
{
	lock();
	sim.expected_races = n;
	pthread_mutex_unlock(&sim.lock);
}

uint64_t simgpu_now_ns(void)
{
	uint64_t now;

	lock();
	now = sim_now();
	pthread_mutex_unlock(&sim.lock);
	return now;
}

void simgpu_advance(uint64_t ns)
{
	lock();
	sim_timeline_pass(ns);
	pthread_mutex_unlock(&sim.lock);
}

bool simgpu_idle(int device)
{
	bool idle = true;

	lock();
	sim_timeline_pass(0);
	for (const struct sim_ctx *ctx = sim_contexts; ctx; ctx = ctx->next)
		if (ctx->device->ordinal == device && ctx->works)
			idle = false;
	pthread_mutex_unlock(&sim.lock);
	return idle;
}

bool simgpu_is_of_host(uint64_t addr)
{
	const struct sim_block *block;
	bool is_of_host;

	lock();
	block = sim_block_at(addr);
	is_of_host = block && block->kind == SIM_MAPPED && !sim_physical_device(block->physical);
	pthread_mutex_unlock(&sim.lock);
	return is_of_host;
}

size_t simgpu_allocated_bytes(int device)
{
	size_t bytes = 0;

	lock();
	if (device >= 0 && device < SIM_MAX_DEVICES)
		bytes = sim_devices[device].used;
	pthread_mutex_unlock(&sim.lock);
	return bytes;
}

void simgpu_host_access(const void *ptr, size_t bytes, bool is_write)
{
	uint64_t lo = (uint64_t)(uintptr_t)ptr;

	lock();
	sim_race_host_access(lo, lo + bytes, is_write);
	pthread_mutex_unlock(&sim.lock);
}

/*
 * Prints the summary, without the lock: a thread that is still inside a call must not block the end of
 * the process, and no thread changes the counters any more.
 */
__attribute__((destructor)) static void print_summary(void)
{
	uint64_t races = __atomic_load_n(&sim.races, __ATOMIC_RELAXED);

	if (sim.forked || (races == sim.expected_races && !sim.deadlocks && !sim.invalid_uses))
		return;
	sim_print("%llu races (%llu expected), %llu deadlocks, %llu invalid uses", (unsigned long long)races,
		(unsigned long long)sim.expected_races, (unsigned long long)sim.deadlocks,
		(unsigned long long)sim.invalid_uses);
	if (sim.config.strict) {
		fflush(NULL);
		_exit(99);
	}
}
