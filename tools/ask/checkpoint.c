/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "common/compat.h"

#ifdef GP_GLIBC
__asm__(".symver dlsym,dlsym@" GP_GLIBC);
#endif

#define LIBRARY "libcuda.so.1"

/* The part of cuda.h that is used here. Arguments other than that of the lock are NULL. */
enum {
	SUCCESS = 0,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	OPERATING_SYSTEM = 304,
	ILLEGAL_STATE = 401,
	NOT_FOUND = 500,
	NOT_READY = 600,
	NOT_PERMITTED = 800,
	NOT_SUPPORTED = 801,
	OLDEST_VERSION = 12080
};

struct lock_args {
	unsigned timeout_ms, reserved0;
	uint64_t reserved1[7];
};

static struct {
	int (*init)(unsigned flags);
	int (*version)(int *version);
	int (*get_state)(int pid, int *state);
	int (*lock)(int pid, const struct lock_args *args);
	int (*take)(int pid, const void *args);
	int (*restore)(int pid, const void *args);
	int (*unlock)(int pid, const void *args);
} driver;

static bool fail(char why[static STAT_ERROR_MAX], const char *text)
{
	snprintf(why, STAT_ERROR_MAX, "%s", text);
	return false;
}

static bool find(void *library, const char *name, void *ret)
{
	void *function = dlsym(library, name);

	memcpy(ret, &function, sizeof(function));
	return function;
}

static bool find_all(void *library)
{
	return find(library, "cuInit", &driver.init) && find(library, "cuDriverGetVersion", &driver.version) &&
	       find(library, "cuCheckpointProcessGetState", &driver.get_state) &&
	       find(library, "cuCheckpointProcessLock", &driver.lock) &&
	       find(library, "cuCheckpointProcessCheckpoint", &driver.take) &&
	       find(library, "cuCheckpointProcessRestore", &driver.restore) &&
	       find(library, "cuCheckpointProcessUnlock", &driver.unlock);
}

bool checkpoint_open(char why[static STAT_ERROR_MAX])
{
	static const char too_old[] = "the driver is too old: it needs to be one for CUDA 12.8 or later (570)";
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	int version = 0, r;

	if (!library)
		return fail(why, LIBRARY " cannot be loaded here");
	if (!find_all(library) || driver.version(&version) || version < OLDEST_VERSION)
		return fail(why, too_old);
	r = driver.init(0);
	if (!r)
		return true;
	snprintf(why, STAT_ERROR_MAX, "the driver does not work here: cuInit returned error %d", r);
	return false;
}

static bool is_ok(int result, const char *call, char why[static STAT_ERROR_MAX])
{
	static const struct {
		int result;
		const char *text;
	} reasons[] = {
		{OUT_OF_MEMORY, "the driver was short of memory"},
		{NOT_INITIALIZED,
			"the driver finds no CUDA in the process: it has none, or is in another pid namespace than "
			"gpupool-stat"},
		{OPERATING_SYSTEM, "the driver did not reach the process: run gpupool-stat as its user or as root, in "
				   "its container "
				   "if it is in one"},
		{ILLEGAL_STATE, "another program locks or checkpoints the process"},
		{NOT_FOUND, "the driver is too old: it needs to be one for CUDA 12.8 or later (570)"},
		{NOT_READY, "a CUDA call of the process did not return in time; try again, or with a longer --timeout"},
		{NOT_PERMITTED, "the driver was not permitted to: run gpupool-stat as the user of the process or as "
				"root, with the "
				"right to trace it"},
		{NOT_SUPPORTED, "the driver does not support it for what the process uses, such as managed memory or "
				"memory that "
				"is shared between processes"},
	};

	for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++) {
		if (result != reasons[i].result)
			continue;
		snprintf(why, STAT_ERROR_MAX, "%s (%s returned error %d)", reasons[i].text, call, result);
		return false;
	}
	if (result)
		snprintf(why, STAT_ERROR_MAX, "%s returned error %d", call, result);
	return !result;
}

/* Some drivers report success for a process that they do not know, and no state. */
bool checkpoint_get(pid_t pid, enum checkpoint_state *ret_state, char why[static STAT_ERROR_MAX])
{
	int state = -1;

	if (!is_ok(driver.get_state(pid, &state), "cuCheckpointProcessGetState", why))
		return false;
	if (state < 0)
		return is_ok(NOT_INITIALIZED, "cuCheckpointProcessGetState", why);
	*ret_state = state > CHECKPOINT_FAILED ? CHECKPOINT_LOCKED : (enum checkpoint_state)state;
	return true;
}

bool checkpoint_lock(pid_t pid, int timeout_ms, char why[static STAT_ERROR_MAX])
{
	struct lock_args args = {.timeout_ms = timeout_ms > 0 ? (unsigned)timeout_ms : 1}; /* 0: forever */

	return is_ok(driver.lock(pid, &args), "cuCheckpointProcessLock", why);
}

bool checkpoint_take(pid_t pid, char why[static STAT_ERROR_MAX])
{
	return is_ok(driver.take(pid, NULL), "cuCheckpointProcessCheckpoint", why);
}

bool checkpoint_restore(pid_t pid, char why[static STAT_ERROR_MAX])
{
	return is_ok(driver.restore(pid, NULL), "cuCheckpointProcessRestore", why);
}

bool checkpoint_unlock(pid_t pid, char why[static STAT_ERROR_MAX])
{
	return is_ok(driver.unlock(pid, NULL), "cuCheckpointProcessUnlock", why);
}
