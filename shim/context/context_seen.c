/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The handles of the contexts that the program can work in. The table is short, so a lookup compares all handles. */

#include "context_seen.h"

#include "context.h"
#include "green.h"
#include "shim/base/slow_path.h"
#include "shim/driver/driver_table.h"

static struct gp_rwlock lock;
static struct {
	CUcontext handle;
	unsigned n_attached; /* number of detaches that the context survives */
} seen[GP_CONTEXTS_SEEN_MAX];
static unsigned n_seen;
static _Atomic(CUcontext) last_seen;
_Atomic bool gp_contexts_have_ended, gp_contexts_are_created;
static _Atomic(CUcontext) primaries[GP_DEVICES_MAX]; /* that are known; a reset keeps the handle */
static struct {
	CUcontext handle;
	bool is_asked_for;       /* the driver was asked whether the context is primary after all */
} created[GP_CONTEXTS_SEEN_MAX]; /* contexts that count as created, under the lock */
static unsigned n_created;
static bool are_more_created; /* than the table holds */

/* Returns n_seen if the handle is unknown. */
static unsigned find_locked(CUcontext handle)
{
	unsigned i = 0;

	while (i < n_seen && seen[i].handle != handle)
		i++;
	return i;
}

/* Adds a handle. Returns the number of handles. */
static unsigned note(CUcontext handle)
{
	unsigned n;

	gp_rwlock_lock(&lock);
	if (find_locked(handle) == n_seen && n_seen < GP_CONTEXTS_SEEN_MAX) {
		seen[n_seen].handle = handle;
		seen[n_seen++].n_attached = 0;
	}
	n = n_seen;
	gp_rwlock_unlock(&lock);
	return n;
}

static unsigned find_created_locked(CUcontext handle)
{
	unsigned i = 0;

	while (i < n_created && created[i].handle != handle)
		i++;
	return i;
}

static void count_created(CUcontext handle)
{
	gp_rwlock_lock(&lock);
	if (find_created_locked(handle) == n_created) {
		are_more_created |= n_created == GP_CONTEXTS_SEEN_MAX;
		if (n_created < GP_CONTEXTS_SEEN_MAX)
			created[n_created++] = (__typeof__(*created)){handle, false};
	}
	atomic_store(&gp_contexts_are_created, true);
	gp_rwlock_unlock(&lock);
}

void gp_context_turned_out_primary(CUcontext handle)
{
	unsigned i;

	if (gp_likely(!atomic_load_explicit(&gp_contexts_are_created, memory_order_relaxed)))
		return;
	gp_rwlock_lock(&lock);
	i = find_created_locked(handle);
	if (i < n_created)
		created[i] = created[--n_created];
	atomic_store(&gp_contexts_are_created, n_created || are_more_created);
	gp_rwlock_unlock(&lock);
}

/* Finds a context that counts as created, and about which the driver was not asked. */
static bool find_unasked(CUcontext *ret_handle)
{
	bool is_found = false;

	gp_rwlock_lock(&lock);
	for (unsigned i = 0; i < n_created && !is_found; i++) {
		is_found = !created[i].is_asked_for;
		created[i].is_asked_for = true;
		*ret_handle = created[i].handle;
	}
	gp_rwlock_unlock(&lock);
	return is_found;
}

bool gp_context_settle_created(void)
{
	bool is_any_asked = false;
	CUcontext handle;
	int n = 0;

	if (gp_real.cuDeviceGetCount(&n))
		return false;
	while (find_unasked(&handle)) {
		is_any_asked = true;
		for (CUdevice device = 0; device < n && device < GP_DEVICES_MAX; device++)
			if (gp_context_primary(device) == handle)
				gp_context_turned_out_primary(handle);
	}
	return is_any_asked;
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
	if (!gp_context_is_seen_primary(primary))
		count_created(primary);
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
	gp_context_turned_out_primary(handle);
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
	n = n_seen;
	for (unsigned i = 0; i < n; i++)
		ret_handles[i] = seen[i].handle;
	gp_rwlock_unlock_shared(&lock);
	return n < GP_CONTEXTS_SEEN_MAX ? n : 0;
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
	gp_context_turned_out_primary(primary);
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
