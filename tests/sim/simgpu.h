/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What the simulated driver offers tests beyond CUDA. A program that also runs on a real GPU looks
 * these up with dlsym in a handle of libcuda.so.1 and does without where they are missing.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIMGPU_API __attribute__((visibility("default")))

/*
 * Calls so far of one exported driver function ("cuMemAlloc_v2"); 0 for a name that does not exist.
 */
SIMGPU_API uint64_t simgpu_calls(const char *name);

/*
 * What was seen so far: pairs of unordered accesses, waits that could never end, uses of freed
 * memory.
 */
SIMGPU_API uint64_t simgpu_races(void);
SIMGPU_API uint64_t simgpu_deadlocks(void);
SIMGPU_API uint64_t simgpu_invalid_uses(void);
SIMGPU_API uint64_t simgpu_faults_seen(void); /* ordered faults that were delivered */

/* So many races are what the test wants to see; at exit only another number is reported. */
SIMGPU_API void simgpu_expect_races(uint64_t n);

/* The virtual clock; to advance it is to let the GPU work while the host does something else. */
SIMGPU_API uint64_t simgpu_now_ns(void);
SIMGPU_API void simgpu_advance(uint64_t ns);

SIMGPU_API bool simgpu_idle(int device); /* nothing submitted is unfinished */
SIMGPU_API size_t simgpu_allocated_bytes(
	int device); /* physical memory in use, contexts included */

/*
 * Orders faults as SIMGPU_FAULT does, in addition; NULL withdraws all. False: the text is not
 * understood.
 */
SIMGPU_API bool simgpu_fault(const char *spec);

/*
 * From now on calls of this driver function stand still inside the driver while other threads go on: before they have
 * any effect, or at_end, when only their return is left. False: there is no such function. A call that is not released
 * within the time of SIMGPU_DEADLOCK_MS says so and goes on.
 */
SIMGPU_API bool simgpu_stop(const char *name, bool at_end);
SIMGPU_API unsigned simgpu_stopped(void); /* threads that stand still */
SIMGPU_API void simgpu_go(void);	  /* releases them; later calls pass where these stood */

/* The program's own CPU access to memory that the GPU also sees, for the race detector. */
SIMGPU_API void simgpu_host_access(const void *ptr, size_t bytes, bool is_write);
