/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The handles of the contexts that the program can work in. There are few, so a lookup compares all of them. */

#include "context_seen.h"

#include <stdlib.h>

#include "context.h"
#include "green.h"
#include "shim/base/slow_path.h"
#include "shim/driver/driver_table.h"

static struct gp_rwlock lock;
static struct {
	CUcontext handle;
	unsigned n_attached; /* number of detaches that the context survives */
} * seen;
static unsigned n_seen, n_seen_max;
static bool is_incomplete; /* a context found no room. For good, since its end would not be noticed */
static _Atomic(CUcontext) last_seen;
_Atomic bool gp_contexts_have_ended;
static _Atomic(CUcontext) primaries[GP_DEVICES_MAX]; /* that are known; a reset keeps the handle */

/* Returns n_seen if the handle is unknown. */
static unsigned find_locked(CUcontext handle)
{
	unsigned i = 0;

	while (i < n_seen && seen[i].handle != handle)
		i++;
	return i;
}

static bool has_room_locked(void)
{
	unsigned n_max = n_seen_max ? n_seen_max * 2 : 16;
	void *larger;

	if (n_seen < n_seen_max)
		return true;
	larger = realloc(seen, n_max * sizeof(*seen));
	if (!larger)
		return false;
	seen = larger;
	n_seen_max = n_max;
	return true;
}

/* Adds a handle. Returns the number of handles. */
static unsigned note(CUcontext handle)
{
	bool is_new;
	unsigned n;

	gp_rwlock_lock(&lock);
	is_new = find_locked(handle) == n_seen;
	if (is_new && has_room_locked()) {
		seen[n_seen].handle = handle;
		seen[n_seen++].n_attached = 0;
	} else if (is_new) {
		is_incomplete = true;
	}
	n = n_seen + is_incomplete;
	gp_rwlock_unlock(&lock);
	return n;
}

void gp_context_seen(CUcontext handle)
{
	CUcontext primary;
	unsigned n;

	if (!handle || atomic_load_explicit(&last_seen, memory_order_relaxed) == handle)
		return;
	/* Work in a green context counts as work of its primary context. */
	primary = gp_green_primary(handle);
	primary = primary ? primary : handle;
	n = note(primary);
	atomic_store_explicit(&last_seen, handle, memory_order_relaxed);
	if (n > 1) {
		gp_slow_path_add(GP_SLOW_PATH_CURRENT);
		gp_context_are_several();
	}
}

void gp_context_seen_primary(CUcontext handle, CUdevice device)
{
	if (device >= 0 && device < GP_DEVICES_MAX)
		atomic_store(&primaries[device], handle);
	gp_context_seen(handle);
}

void gp_context_forget(CUcontext handle)
{
	unsigned i;

	gp_rwlock_lock(&lock);
	i = find_locked(handle);
	if (i < n_seen)
		seen[i] = seen[--n_seen];
	atomic_store(&last_seen, NULL);
	gp_rwlock_unlock(&lock);
	atomic_store(&gp_contexts_have_ended, true);
}

unsigned gp_context_seen_all(CUcontext ret_handles[static GP_CONTEXTS_SEEN_MAX])
{
	unsigned n;

	gp_rwlock_lock_shared(&lock);
	n = is_incomplete || n_seen > GP_CONTEXTS_SEEN_MAX ? 0 : n_seen;
	for (unsigned i = 0; i < n; i++)
		ret_handles[i] = seen[i].handle;
	gp_rwlock_unlock_shared(&lock);
	return n;
}

bool gp_context_is_seen(CUcontext handle)
{
	bool is_seen;

	gp_rwlock_lock_shared(&lock);
	is_seen = find_locked(handle) < n_seen;
	gp_rwlock_unlock_shared(&lock);
	return is_seen;
}

bool gp_context_were_any(void)
{
	return atomic_load(&last_seen) || n_seen || atomic_load(&gp_contexts_have_ended);
}

void gp_context_seen_reset(void)
{
	atomic_store(&lock.holders, 0);
}

CUcontext gp_context_seen_as_primary(CUdevice device)
{
	return device >= 0 && device < GP_DEVICES_MAX ? atomic_load(&primaries[device]) : NULL;
}

/*
 * The primary context is the one that cuDevicePrimaryCtxRetain returns. If the program obtained it past the hooks,
 * gpupool retains and releases it itself, as a last resort. It does so only while the primary context is active: a
 * retain would create an inactive one, and the release would disturb an end in another thread.
 */
CUcontext gp_context_primary(CUdevice device)
{
	CUcontext primary = gp_context_seen_as_primary(device);
	unsigned flags;
	int active = 0;

	if (gp_likely(primary != NULL))
		return primary;
	if (gp_real.cuDevicePrimaryCtxGetState(device, &flags, &active) || !active)
		return NULL;
	if (gp_real.cuDevicePrimaryCtxRetain(&primary, device))
		return NULL;
	(void)gp_real.cuDevicePrimaryCtxRelease(device);
	if (device >= 0 && device < GP_DEVICES_MAX)
		atomic_store(&primaries[device], primary);
	return primary;
}

bool gp_context_is_seen_primary(CUcontext handle)
{
	for (CUdevice device = 0; device < GP_DEVICES_MAX; device++)
		if (gp_context_seen_as_primary(device) == handle)
			return true;
	return false;
}

void gp_context_attach(CUcontext handle)
{
	unsigned i;

	(void)note(handle);
	gp_rwlock_lock(&lock);
	i = find_locked(handle);
	if (i < n_seen)
		seen[i].n_attached++;
	gp_rwlock_unlock(&lock);
}

bool gp_context_is_attached(CUcontext handle)
{
	bool is_attached;
	unsigned i;

	gp_rwlock_lock_shared(&lock);
	i = find_locked(handle);
	is_attached = i < n_seen && seen[i].n_attached;
	gp_rwlock_unlock_shared(&lock);
	return is_attached;
}

void gp_context_detach(CUcontext handle)
{
	unsigned i;

	gp_rwlock_lock(&lock);
	i = find_locked(handle);
	if (i < n_seen && seen[i].n_attached)
		seen[i].n_attached--;
	gp_rwlock_unlock(&lock);
}
