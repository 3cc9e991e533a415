/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Functions that the simulated driver offers to tests beyond CUDA. A program that also runs on a real
 * GPU looks them up with dlsym in a handle of libcuda.so.1, and does without them if they are missing.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIMGPU_API __attribute__((visibility("default")))

/*
 * Returns the number of calls so far of an exported driver function ("cuMemAlloc_v2"), or 0 for an unknown name. NULL
 * stands for all of them.
 */
SIMGPU_API uint64_t simgpu_calls(const char *name);

/* Numbers so far: pairs of unordered accesses, waits that could never end, uses of freed memory. */
SIMGPU_API uint64_t simgpu_races(void);
SIMGPU_API uint64_t simgpu_deadlocks(void);
SIMGPU_API uint64_t simgpu_invalid_uses(void);
SIMGPU_API uint64_t simgpu_faults_seen(void); /* injected faults that calls have returned */

/* Announces that the test causes n races. At exit the simulator reports races only if there was another number. */
SIMGPU_API void simgpu_expect_races(uint64_t n);

/* The virtual clock. simgpu_advance lets the GPU work while the host does something else. */
SIMGPU_API uint64_t simgpu_now_ns(void);
SIMGPU_API void simgpu_advance(uint64_t ns);

SIMGPU_API bool simgpu_idle(int device);              /* all submitted work is finished */
SIMGPU_API size_t simgpu_allocated_bytes(int device); /* physical memory in use, contexts included */
SIMGPU_API bool simgpu_is_of_host(uint64_t addr);     /* memory of the host is mapped at this address */

/*
 * Injects faults as SIMGPU_FAULT does, in addition to earlier ones. NULL removes all. Returns false if
 * the text is not valid.
 */
SIMGPU_API bool simgpu_fault(const char *spec);

/*
 * Stops later calls of this driver function inside the driver while other threads continue: before they have any
 * effect, or with at_end just before they return. Returns false if there is no such function. A call that is not
 * released within SIMGPU_DEADLOCK_MS prints a message and continues.
 */
SIMGPU_API bool simgpu_stop(const char *name, bool at_end);
SIMGPU_API unsigned simgpu_stopped(void); /* threads in stopped calls */
SIMGPU_API void simgpu_go(void);          /* releases them; later calls of these functions pass */

/* The same, but the calls before the nth one pass. */
SIMGPU_API bool simgpu_stop_nth(const char *name, bool at_end, unsigned nth);

/* Reports an access of the CPU to memory that the GPU also uses, for the race detector. */
SIMGPU_API void simgpu_host_access(const void *ptr, size_t bytes, bool is_write);
