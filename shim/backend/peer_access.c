/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "peer_access.h"

enum { OWNERS_MAX = 256 }; /* more than there are contexts with memory (context.c): some may have none yet */

static struct {
	CUcontext owner;
	uint64_t devices; /* a bit for each that can access the owner's memory */
} owners[OWNERS_MAX];
static unsigned n_owners;
static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);

/* Returns n_owners if no device has access. */
static unsigned find_locked(CUcontext owner)
{
	unsigned i = 0;

	while (i < n_owners && owners[i].owner != owner)
		i++;
	return i;
}

static uint64_t bit_of(CUdevice device)
{
	_Static_assert(GP_DEVICES_MAX <= 64, "one bit for each device");
	return device >= 0 && device < GP_DEVICES_MAX ? UINT64_C(1) << device : 0;
}

void gp_peer_access_add(CUdevice device, CUcontext owner)
{
	unsigned i;

	gp_mutex_lock(&lock);
	i = find_locked(owner);
	if (i == n_owners && n_owners < OWNERS_MAX) {
		owners[n_owners].owner = owner;
		owners[n_owners++].devices = 0;
	}
	if (i < n_owners)
		owners[i].devices |= bit_of(device);
	gp_mutex_unlock(&lock);
}

void gp_peer_access_remove(CUdevice device, CUcontext owner)
{
	unsigned i;

	gp_mutex_lock(&lock);
	i = find_locked(owner);
	if (i < n_owners)
		owners[i].devices &= ~bit_of(device);
	gp_mutex_unlock(&lock);
}

uint64_t gp_peer_access_devices(CUcontext owner)
{
	uint64_t devices = 0;
	unsigned i;

	gp_mutex_lock(&lock);
	i = find_locked(owner);
	if (i < n_owners)
		devices = owners[i].devices;
	gp_mutex_unlock(&lock);
	return devices;
}

static void forget_context(CUcontext handle, struct gp_context *context)
{
	unsigned i;

	gp_mutex_lock(&lock);
	i = find_locked(handle);
	if (i < n_owners)
		owners[i] = owners[--n_owners];
	gp_mutex_unlock(&lock);
}

void gp_peer_access_start(void)
{
	static struct gp_context_watcher watcher = {.ended = forget_context};

	gp_context_watch(&watcher);
}
