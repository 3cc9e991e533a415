/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The prologue and epilogue of every driver function, and helpers that the whole simulator shares. */

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint.h"
#include "ctx.h"

struct sim sim = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Returns true unless the function also works before cuInit. */
static bool needs_init(enum sim_fn fn)
{
	return fn != FN_cuInit && fn != FN_cuDriverGetVersion && fn != FN_cuGetErrorName && fn != FN_cuGetErrorString &&
	       fn != FN_cuGetProcAddress && fn != FN_cuGetProcAddress_v2 && fn != FN_cuGetExportTable;
}

static CUresult fault_if_sticky(CUresult code)
{
	struct sim_ctx *ctx;

	if (sim_is_sticky(code) && sim_ctx_current(&ctx) == CUDA_SUCCESS)
		sim_ctx_fault(ctx, code);
	return code;
}

CUresult sim_call_enter(struct sim_call *call, enum sim_fn fn)
{
	struct sim_thread *self = sim_thread_self();
	CUresult fault;

	if (sim.forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (self->in_host_func)
		return CUDA_ERROR_NOT_PERMITTED;
	call->fn = fn;
	call->prev = self->call;
	self->call = call;
	call->entered = true;
	if (call->prev)
		return CUDA_SUCCESS;
	/* A thread that was cancelled in a wait would keep the lock forever. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &call->cancel_state);
	call->is_counted = sim_checkpoint_enter(fn);
	pthread_mutex_lock(&sim.lock);
	sim_config_load();
	sim_delay_randomly(fn);
	sim_stop_here(fn, SIM_AT_START);
	sim.calls[fn]++;
	if (sim.deinitialised)
		return CUDA_ERROR_DEINITIALIZED;
	if (!sim.initialised && needs_init(fn))
		return CUDA_ERROR_NOT_INITIALIZED;
	sim_call_spend(sim.config.cost_ns[fn]);
	sim_timeline_pass(sim.config.cost_ns[fn]);
	fault = sim_fault_due(fn, sim.calls[fn]);
	if (fault) {
		sim.faults_seen++;
		return fault_if_sticky(fault);
	}
	return sim.config.hidden[fn] ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

/* Keeps the processor busy for the time that the call took on the virtual clock. */
static void burn(uint64_t ns)
{
	struct timespec begin, now;
	uint64_t passed;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		clock_gettime(CLOCK_MONOTONIC, &now);
		passed = (uint64_t)(now.tv_sec - begin.tv_sec) * 1000000000u + (uint64_t)now.tv_nsec -
			 (uint64_t)begin.tv_nsec;
	} while (passed < ns);
}

void sim_call_leave(struct sim_call *call)
{
	bool realtime;

	if (!call->entered)
		return;
	sim_thread_self()->call = call->prev;
	if (call->prev)
		return;
	realtime = sim.config.realtime;
	sim_stop_here(call->fn, SIM_AT_END);
	sim_delay_randomly(call->fn);
	pthread_mutex_unlock(&sim.lock);
	if (call->is_counted)
		sim_checkpoint_leave();
	if (realtime)
		burn(call->spent_ns);
	pthread_setcancelstate(call->cancel_state, NULL);
}

const char *sim_call_name(void)
{
	const struct sim_call *call = sim_thread_self()->call;

	return call ? sim_fns[call->fn].name : "the host";
}

void sim_call_spend(uint64_t ns)
{
	struct sim_call *call = sim_thread_self()->call;

	if (call)
		call->spent_ns += ns;
}

void sim_call_charge_bytes(size_t bytes, uint64_t ns_per_mib)
{
	const struct sim_call *call = sim_thread_self()->call;
	uint64_t ns = bytes / SIM_MIB * ns_per_mib;

	if (!call || sim.config.cost_given[call->fn])
		return;
	sim_call_spend(ns);
	sim_timeline_pass(ns);
}

bool sim_is_sticky(CUresult code)
{
	return code == CUDA_ERROR_ILLEGAL_ADDRESS || code == CUDA_ERROR_LAUNCH_TIMEOUT ||
	       (code >= CUDA_ERROR_HARDWARE_STACK_ERROR && code <= CUDA_ERROR_LAUNCH_FAILED);
}

void sim_print(const char *fmt, ...)
{
	char line[640] = "simgpu: ";
	size_t n = strlen(line);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
	va_end(ap);
	strcat(line, "\n");
	n = strlen(line);
	if (write(STDERR_FILENO, line, n) < 0)
		return; /* stderr is closed */
}

static void *or_abort(void *p)
{
	if (!p) {
		sim_print("the host has no memory left");
		abort();
	}
	return p;
}

void *sim_alloc(size_t bytes)
{
	return or_abort(malloc(bytes));
}

void *sim_alloc_zeroed(size_t n, size_t size)
{
	return or_abort(calloc(n, size));
}

void sim_grow(void *array, unsigned *capacity, unsigned need, size_t size)
{
	void *old, *grown;

	if (need <= *capacity)
		return;
	*capacity = need > 2 * *capacity ? need : 2 * *capacity;
	memcpy(&old, array, sizeof(old));
	grown = or_abort(realloc(old, *capacity * size));
	memcpy(array, &grown, sizeof(grown));
}
