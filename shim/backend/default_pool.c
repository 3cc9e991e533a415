/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "default_pool.h"

#include "shim/driver/driver_table.h"

static _Atomic uint64_t n_questions;
static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static uint64_t newest[GP_DEVICES_MAX]; /* the question whose answer is noted */

/*
 * Asks the driver whether the program has replaced the device's current pool. Several threads may change it at a time.
 * The last question is asked after the last change, so its answer stays. Returns false if the driver does not answer.
 */
static bool ask_current(struct gp_device *device, CUmemoryPool pool)
{
	uint64_t question = atomic_fetch_add(&n_questions, 1) + 1;
	CUmemoryPool current = NULL;
	bool is_answered = !gp_real.cuDeviceGetMemPool(&current, device->index);
	bool is_replaced = !is_answered || current != pool;

	gp_mutex_lock(&lock);
	if (question > newest[device->index]) {
		newest[device->index] = question;
		atomic_store(&device->current_pool, current);
		atomic_store(&device->is_default_pool_replaced, is_replaced);
	}
	gp_mutex_unlock(&lock);
	return is_answered;
}

/* Asks the driver for the default pool and the current pool. Returns the default pool, or NULL if it has none. */
static CUmemoryPool learn(struct gp_device *device)
{
	CUmemoryPool pool = NULL;

	if (!gp_real.cuDeviceGetDefaultMemPool || !gp_real.cuDeviceGetMemPool ||
		gp_real.cuDeviceGetDefaultMemPool(&pool, device->index) || !pool || !ask_current(device, pool))
		return NULL;
	atomic_store_explicit(&device->default_pool, pool, memory_order_release);
	return pool;
}

static CUmemoryPool find(struct gp_device *device)
{
	CUmemoryPool pool = gp_default_pool(device);

	return gp_likely(pool != NULL) ? pool : learn(device);
}

enum gp_async_left gp_default_pool_why_left(struct gp_device *device, CUmemoryPool pool, bool is_current)
{
	CUmemoryPool known = find(device);

	if (gp_unlikely(!known))
		return GP_ASYNC_LEFT_NO_DEFAULT_POOL;
	if (!is_current && known != pool)
		return GP_ASYNC_LEFT_OTHER_POOL;
	if (is_current && atomic_load_explicit(&device->is_default_pool_replaced, memory_order_relaxed))
		return GP_ASYNC_LEFT_CURRENT_POOL;
	if (gp_unlikely(atomic_load_explicit(&device->is_default_pool_shared, memory_order_relaxed)))
		return GP_ASYNC_LEFT_POOL_ACCESS;
	return GP_ASYNC_LEFT_NONE;
}

struct gp_device *gp_default_pool_device(CUmemoryPool pool)
{
	for (int i = 0; pool && i < GP_DEVICES_MAX; i++) {
		struct gp_device *device = gp_device_if_used(i);

		if (device && find(device) == pool)
			return device;
	}
	return NULL;
}

void gp_default_pool_note_current(CUdevice index)
{
	struct gp_device *device = gp_device_get(index);

	if (device)
		(void)learn(device);
}

/* The default pool is current again where the destroyed one was. */
void gp_default_pool_note_destroyed(void)
{
	for (int i = 0; i < GP_DEVICES_MAX; i++) {
		struct gp_device *device = gp_device_if_used(i);

		if (device && atomic_load(&device->is_default_pool_replaced))
			(void)learn(device);
	}
}

/* Notes the access of one location to the owner's default pool. The owner itself always has access. */
static void note_access(struct gp_device *owner, const CUmemAccessDesc *access)
{
	bool is_open = access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
	bool is_device = access->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	CUdevice device = access->location.id;
	uint64_t bit;

	_Static_assert(GP_DEVICES_MAX <= 64, "one bit for each device");
	if (is_device && device == owner->index)
		return;
	if (is_open)
		atomic_store(&owner->is_default_pool_shared, true);
	if (!is_device || device < 0 || device >= GP_DEVICES_MAX)
		return;
	bit = UINT64_C(1) << device;
	if (is_open)
		atomic_fetch_or(&owner->default_pool_is_open_to, bit);
	else
		atomic_fetch_and(&owner->default_pool_is_open_to, ~bit);
}

struct gp_device *gp_default_pool_note_access(CUmemoryPool pool, const CUmemAccessDesc *access, size_t n)
{
	struct gp_device *found = NULL;
	int n_devices = 0;

	if (gp_real.cuDeviceGetCount(&n_devices))
		return NULL;
	for (int i = 0; i < n_devices && !found; i++) {
		struct gp_device *device = gp_device_get(i);

		found = device && find(device) == pool ? device : NULL;
		for (size_t k = 0; found && k < n; k++)
			note_access(device, &access[k]);
	}
	return found;
}
