/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "peer_access.h"

enum { EDGES_MAX = 4096 }; /* more than the ordered pairs of the primary contexts of GP_DEVICES_MAX devices */

/* The device can access the owner's memory until the owner ends. */
static struct edge {
	CUcontext accessor, owner; /* accessor NULL: whatever the device's context */
	CUdevice device;
	bool is_enabled, is_open; /* for the accessor: by the program; by gpupool */
} edges[EDGES_MAX];
static unsigned n_edges;
static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);

static void remove_locked(unsigned i)
{
	edges[i] = edges[--n_edges];
}

/* Returns the index of the edge, or n_edges if there is none. */
static unsigned find_locked(CUcontext accessor, CUcontext owner)
{
	unsigned i = 0;

	while (i < n_edges && (edges[i].accessor != accessor || edges[i].owner != owner))
		i++;
	return i;
}

/* Returns the index of the edge that has no accessor, or n_edges if there is none. */
static unsigned find_copies_locked(CUdevice device, CUcontext owner)
{
	unsigned i = 0;

	while (i < n_edges && (edges[i].accessor || edges[i].device != device || edges[i].owner != owner))
		i++;
	return i;
}

/* Returns the edge, which is added if there is none; NULL: there is no room. */
static struct edge *ensure_locked(CUcontext accessor, CUdevice device, CUcontext owner)
{
	unsigned i = find_locked(accessor, owner);

	if (i == n_edges && n_edges < EDGES_MAX && device >= 0 && device < GP_DEVICES_MAX)
		edges[n_edges++] = (struct edge){accessor, owner, device, false, false};
	return i < n_edges ? &edges[i] : NULL;
}

void gp_peer_access_enabled(CUcontext accessor, CUdevice device, CUcontext owner)
{
	struct edge *edge;

	gp_mutex_lock(&lock);
	edge = ensure_locked(accessor, device, owner);
	if (edge)
		edge->is_enabled = true;
	gp_mutex_unlock(&lock);
}

void gp_peer_access_opened(CUcontext accessor, CUdevice device, CUcontext owner)
{
	struct edge *edge;

	gp_mutex_lock(&lock);
	edge = ensure_locked(accessor, device, owner);
	if (edge)
		edge->is_open = true;
	gp_mutex_unlock(&lock);
}

void gp_peer_access_set_copies(CUdevice device, CUcontext owner, bool are_open)
{
	unsigned i;

	gp_mutex_lock(&lock);
	i = find_copies_locked(device, owner);
	if (i < n_edges && !are_open)
		remove_locked(i);
	else if (i == n_edges && n_edges < EDGES_MAX && are_open)
		edges[n_edges++] = (struct edge){.owner = owner, .device = device};
	gp_mutex_unlock(&lock);
}

/* Returns a copy of the edge, or one that is neither enabled nor open. */
static struct edge look_up(CUcontext accessor, CUcontext owner)
{
	struct edge edge = {0};
	unsigned i;

	gp_mutex_lock(&lock);
	i = find_locked(accessor, owner);
	if (i < n_edges)
		edge = edges[i];
	gp_mutex_unlock(&lock);
	return edge;
}

bool gp_peer_access_is_open(CUcontext accessor, CUcontext owner)
{
	return look_up(accessor, owner).is_open;
}

bool gp_peer_access_is_enabled(CUcontext accessor, CUcontext owner)
{
	return look_up(accessor, owner).is_enabled;
}

void gp_peer_access_disabled(CUcontext accessor, CUcontext owner)
{
	unsigned i;

	gp_mutex_lock(&lock);
	i = find_locked(accessor, owner);
	if (i < n_edges)
		edges[i].is_enabled = false;
	gp_mutex_unlock(&lock);
}

/* Memory stays open to the devices of contexts that end. */
static void forget_context(CUcontext handle, struct gp_context *context)
{
	gp_mutex_lock(&lock);
	for (unsigned i = n_edges; i-- > 0;) {
		struct edge *edge = &edges[i];
		bool is_accessor = edge->accessor == handle;

		if (edge->owner == handle || (is_accessor && find_copies_locked(edge->device, edge->owner) < n_edges))
			remove_locked(i);
		else if (is_accessor)
			*edge = (struct edge){.owner = edge->owner, .device = edge->device};
	}
	gp_mutex_unlock(&lock);
}

void gp_peer_access_start(void)
{
	static struct gp_context_watcher watcher = {.ended = forget_context};

	gp_context_watch(&watcher);
}

uint64_t gp_peer_access_devices(CUcontext owner)
{
	uint64_t devices = 0;

	_Static_assert(GP_DEVICES_MAX <= 64, "one bit of the result for each device");
	gp_mutex_lock(&lock);
	for (unsigned i = 0; i < n_edges; i++)
		if (edges[i].owner == owner)
			devices |= UINT64_C(1) << edges[i].device;
	gp_mutex_unlock(&lock);
	return devices;
}
