/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "made_pool.h"

#include <stdlib.h>

#include "shim/base/fork.h"
#include "shim/base/state.h"
#include "shim/driver/driver_table.h"
#include "unpooled_alloc.h"

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct entry {
	struct gp_made_pool made;
	uint64_t open_to;  /* a bit for each other device that the program has given access */
	bool is_destroyed; /* it keeps its account until its memory has been freed */
	bool is_ending;    /* destroyed, unless the driver refuses */
} * entries;
static _Atomic unsigned n_entries; /* written with the lock */
static unsigned n_room;

static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}

/*
 * True if the usage makes no difference on the device. RMM may ask for memory that a decompression engine can read, as
 * it cannot read memory of cuMemAlloc. To a device without such an engine that means nothing.
 */
static bool can_ignore_usage(unsigned usage, CUdevice device)
{
	int attribute = CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, algorithms = 0;

	if (usage & ~(unsigned)CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS || !gp_real.cuDeviceGetAttribute)
		return false;
	return !usage || (!gp_real.cuDeviceGetAttribute(&algorithms, attribute, device) && !algorithms);
}

static bool can_serve(const CUmemPoolProps *properties)
{
	return gp_state.config.is_async_pooled && properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
	       properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !properties->handleTypes &&
	       !properties->win32SecurityAttributes && !properties->maxSize &&
	       can_ignore_usage(properties->usage, properties->location.id);
}

static int device_of(const CUmemPoolProps *properties)
{
	if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		return properties->location.id;
	return properties->location.type == CU_MEM_LOCATION_TYPE_INVALID ? GP_UNPOOLED_CURRENT : GP_UNPOOLED_HOST;
}

static struct gp_account *account_of(const struct gp_made_pool *made)
{
	struct gp_device *device = made->account ? gp_device_if_used(made->device) : NULL;

	return device ? gp_account(&device->accounts, made->account) : NULL;
}

/* Updates the devices that have access to memory of any pool of the device. */
static void note_open_locked(int index)
{
	struct gp_device *device = gp_device_if_used(index);
	uint64_t devices = 0;

	for (unsigned i = 0; i < n_entries; i++)
		if (entries[i].made.device == index && entries[i].made.is_served)
			devices |= entries[i].open_to;
	if (device)
		atomic_store(&device->made_pools_are_open_to, devices);
}

/* Forgets destroyed pools whose memory has all been freed. */
static void forget_unused_locked(void)
{
	for (unsigned i = n_entries; i-- > 0;) {
		const struct gp_account *account = account_of(&entries[i].made);
		int device = entries[i].made.device;

		if (!entries[i].is_destroyed || entries[i].is_ending || (account && atomic_load(&account->used_bytes)))
			continue;
		entries[i] = entries[--n_entries];
		note_open_locked(device);
	}
}

static struct entry *find_locked(CUmemoryPool handle)
{
	for (unsigned i = 0; i < n_entries; i++)
		if (entries[i].made.handle == handle && !entries[i].is_destroyed)
			return &entries[i];
	return NULL;
}

/* Opens the first account of the device that no pool has. Returns its number, or GP_ACCOUNT_NONE. */
static unsigned open_account_locked(struct gp_device *device)
{
	unsigned taken = 0, number = 1;

	for (unsigned i = 0; i < n_entries; i++)
		if (entries[i].made.device == device->index)
			taken |= 1u << entries[i].made.account;
	while (number <= GP_ACCOUNTS && taken >> number & 1)
		number++;
	if (number > GP_ACCOUNTS)
		return GP_ACCOUNT_NONE;
	gp_account_restart_high(gp_account(&device->accounts, number));
	return number;
}

static bool has_room_locked(void)
{
	unsigned room = n_room ? n_room * 2 : 16;
	struct entry *more;

	if (n_entries < n_room)
		return true;
	more = realloc(entries, room * sizeof(*more));
	if (!more)
		return false;
	entries = more;
	n_room = room;
	return true;
}

void gp_made_pool_add(CUmemoryPool handle, const CUmemPoolProps *properties)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};
	struct gp_device *device = can_serve(properties) ? gp_device_get(properties->location.id) : NULL;
	struct gp_made_pool made = {.handle = handle, .device = device_of(properties)};
	struct entry *former;

	gp_fork_on_child(&child);
	gp_mutex_lock(&lock);
	former = find_locked(handle);
	if (former)
		former->is_destroyed = true; /* past the hooks, or with its context */
	forget_unused_locked();
	if (has_room_locked()) {
		made.account = device ? open_account_locked(device) : GP_ACCOUNT_NONE;
		made.left = made.account ? GP_ASYNC_LEFT_NONE : GP_ASYNC_LEFT_OTHER_POOL;
		entries[n_entries++] = (struct entry){.made = made};
	}
	gp_mutex_unlock(&lock);
}

bool gp_made_pool_begin_remove(CUmemoryPool handle)
{
	struct entry *entry;

	if (!atomic_load(&n_entries))
		return false;
	gp_mutex_lock(&lock);
	entry = find_locked(handle);
	if (entry)
		entry->is_destroyed = entry->is_ending = true;
	gp_mutex_unlock(&lock);
	return entry != NULL;
}

void gp_made_pool_end_remove(CUmemoryPool handle, bool is_removed)
{
	gp_mutex_lock(&lock);
	for (unsigned i = 0; i < n_entries; i++) {
		if (entries[i].made.handle != handle || !entries[i].is_ending)
			continue;
		entries[i].is_ending = false;
		entries[i].is_destroyed = is_removed;
	}
	forget_unused_locked();
	gp_mutex_unlock(&lock);
}

bool gp_made_pool_find(CUmemoryPool handle, struct gp_made_pool *ret_made)
{
	const struct entry *entry;

	if (!atomic_load_explicit(&n_entries, memory_order_relaxed))
		return false;
	gp_mutex_lock(&lock);
	entry = find_locked(handle);
	if (entry)
		*ret_made = entry->made;
	gp_mutex_unlock(&lock);
	return entry != NULL;
}

bool gp_made_pool_serve(struct gp_made_pool *made)
{
	struct entry *entry;

	if (gp_likely(made->is_served))
		return true;
	gp_mutex_lock(&lock);
	entry = find_locked(made->handle);
	made->is_served = entry && !entry->made.left;
	if (made->is_served)
		entry->made.is_served = true;
	gp_mutex_unlock(&lock);
	return made->is_served;
}

CUmemoryPool gp_made_pool_of(int device, unsigned account)
{
	CUmemoryPool handle = NULL;

	gp_mutex_lock(&lock);
	for (unsigned i = 0; i < n_entries; i++) {
		const struct entry *entry = &entries[i];

		if (entry->made.device == device && entry->made.account == account &&
			(!entry->is_destroyed || !find_locked(entry->made.handle)))
			handle = entry->made.handle;
	}
	gp_mutex_unlock(&lock);
	return handle;
}

/* Notes the access of one location. The pool's own device always has access. */
static void note_access_locked(struct entry *entry, const CUmemAccessDesc *access)
{
	bool is_open = access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
	bool is_device = access->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	CUdevice device = access->location.id;

	if (is_device && device == entry->made.device)
		return;
	if (is_open)
		entry->made.left = GP_ASYNC_LEFT_POOL_ACCESS;
	if (!is_device || device < 0 || device >= GP_DEVICES_MAX)
		return;
	if (is_open)
		entry->open_to |= UINT64_C(1) << device;
	else
		entry->open_to &= ~(UINT64_C(1) << device);
}

struct gp_device *gp_made_pool_note_access(CUmemoryPool handle, const CUmemAccessDesc *access, size_t n)
{
	struct gp_made_pool made = {0};
	struct entry *entry;

	if (!atomic_load(&n_entries))
		return NULL;
	gp_mutex_lock(&lock);
	entry = find_locked(handle);
	if (entry && entry->made.account) {
		for (size_t i = 0; i < n; i++)
			note_access_locked(entry, &access[i]);
		note_open_locked(entry->made.device);
		made = entry->made;
	}
	gp_mutex_unlock(&lock);
	return made.is_served ? gp_device_if_used(made.device) : NULL;
}
