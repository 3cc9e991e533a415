/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * State that the simulated driver shares: one lock, one virtual clock, the prologue of every call.
 *
 * sim.lock guards all state. A driver function begins with SIM_BEGIN, which takes the lock, counts the
 * call, advances the virtual clock by the call's host cost and may return an injected fault. The lock
 * is released when the function returns. Before that, only waits, host functions, stopped calls and
 * SIMGPU_JITTER release it.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "abi.h"
#include "simgpu.h"

#define SIM_MAX_DEVICES  8
#define SIM_N_ATTRIBUTES 256
#define SIM_MIB          ((size_t)1 << 20)
#define SIM_CHUNK        (2 * SIM_MIB) /* the granularity of physical memory */
#define SIM_NS_PER_MS    1000000ull

enum sim_fn {
#define SIM_FN(name, public, version, ns, params)                FN_##name,
#define SIM_STREAM_FN(name, suffix, public, version, ns, params) FN_##name, FN_##name##suffix,
#include "functions.def"
#undef SIM_FN
#undef SIM_STREAM_FN
	SIM_N_FNS
};

struct sim_fn_row {
	const char *name, *public_name;
	int version;
	bool per_thread; /* the twin for which NULL means the per-thread default stream */
	uint64_t cost_ns;
	void *address;
};
extern const struct sim_fn_row sim_fns[SIM_N_FNS];
enum sim_fn sim_fn_find(const char *name, size_t len); /* SIM_N_FNS if there is none */

struct sim_call {
	enum sim_fn fn;
	bool entered;
	bool is_counted;       /* sim_checkpoint_enter counted it */
	int cancel_state;      /* the thread's state outside of the driver */
	uint64_t spent_ns;     /* virtual time that this call has taken */
	struct sim_call *prev; /* calls of one thread nest when a driver function uses another */
};
CUresult sim_call_enter(struct sim_call *call, enum sim_fn fn);
void sim_call_leave(struct sim_call *call);
const char *sim_call_name(void); /* of the call that the thread is in */
void sim_call_spend(uint64_t ns);
void sim_call_charge_bytes(size_t bytes, uint64_t ns_per_mib); /* the cost that grows with the size */

/* The two points at which a test can stop a call: before it has any effect, and just before it returns. */
enum sim_stop_point { SIM_AT_START, SIM_AT_END, SIM_N_STOP_POINTS };
void sim_stop_here(enum sim_fn fn, enum sim_stop_point point);
void sim_delay_randomly(enum sim_fn fn); /* as SIMGPU_JITTER says */

#define SIM_TRY(expr)                         \
	do {                                  \
		CUresult sim_try_ = (expr);   \
		if (sim_try_ != CUDA_SUCCESS) \
			return sim_try_;      \
	} while (0)

#define SIM_BEGIN(fn_name)                                                        \
	struct sim_call sim_call_ __attribute__((cleanup(sim_call_leave))) = {0}; \
	SIM_TRY(sim_call_enter(&sim_call_, FN_##fn_name))

/* Defines both twins of a function that takes a stream. The expression `body` reads per_thread to tell them apart. */
#define SIM_STREAM_PAIR(name, suffix, params, body) \
	CUresult name params                        \
	{                                           \
		SIM_BEGIN(name);                    \
		const bool per_thread = false;      \
		return body;                        \
	}                                           \
	CUresult name##suffix params                \
	{                                           \
		SIM_BEGIN(name##suffix);            \
		const bool per_thread = true;       \
		return body;                        \
	}

bool sim_lacks(int attribute); /* driver.c: true if SIMGPU_LACKS makes the devices' attribute read 0 */

struct sim_config {
	size_t memory_bytes, context_bytes, granularity_bytes;
	size_t addresses; /* the first address of devices and reservations, or 0: the kernel chooses */
	unsigned devices, driver_version;
	uint64_t deadlock_ms;
	bool realtime, strict, deinit_at_exit, records_are_operations;
	const char *shared;                        /* name of a file, or NULL */
	unsigned char lacks[SIM_N_ATTRIBUTES / 8]; /* a bit for each attribute of devices that reads 0 */
	bool hidden[SIM_N_FNS], disagrees[SIM_N_FNS];
	uint64_t cost_ns[SIM_N_FNS];
	unsigned jitter[SIM_N_FNS]; /* N: one call in N is delayed; 0: no call */
	bool cost_given[SIM_N_FNS];
};

struct sim {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* work was submitted or completed, or a blocked call has ended */
	struct sim_config config;
	bool configured, initialised, forked, deinitialised;
	unsigned waiters;
	uint64_t calls[SIM_N_FNS];
	uint64_t races, expected_races, deadlocks, invalid_uses, faults_seen;
};
extern struct sim sim;

void sim_config_load(void);
bool sim_parse_size(const char *text, size_t *bytes);

/* Returns the injected fault for this call, or CUDA_SUCCESS. */
CUresult sim_fault_due(enum sim_fn fn, uint64_t nth);
bool sim_fault_parse(const char *spec);

bool sim_is_sticky(CUresult code);
void sim_print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void *sim_alloc(size_t bytes); /* ends the process if the host has no memory, as sim_alloc_zeroed() does */
void *sim_alloc_zeroed(size_t n, size_t size);
void sim_grow(void *array, unsigned *capacity, unsigned need, size_t size);
