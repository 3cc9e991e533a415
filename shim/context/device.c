/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "device.h"

#include <string.h>

#include "group.h"
#include "shim/base/fork.h"
#include "shim/driver/driver_table.h"

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_limit_list limits; /* under the lock; initially those of the settings */
static struct gp_device devices[GP_DEVICES_MAX];
static _Atomic bool is_device_used[GP_DEVICES_MAX];

static _Atomic uint64_t own_peaks[GP_DEVICE_PEAKS];
static _Atomic(_Atomic uint64_t *) peaks = own_peaks;
static void (*on_first_growth)(int device);

static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
	for (int i = 0; i < GP_DEVICE_PEAKS; i++)
		atomic_store(&own_peaks[i], 0);
	atomic_store(&peaks, own_peaks);
}

void gp_devices_on_first_growth(void (*fn)(int device))
{
	on_first_growth = fn;
}

/* Returns true if the peak was 0 and is not any more. */
static bool raise_peak(_Atomic uint64_t *peak, uint64_t bytes)
{
	uint64_t highest = atomic_load_explicit(peak, memory_order_relaxed);

	while (bytes > highest)
		if (atomic_compare_exchange_weak(peak, &highest, bytes))
			return !highest;
	return false;
}

/* If the peaks move meanwhile, the move may have missed this one, so it is noted again. */
void gp_device_note_growth(const struct gp_device *device)
{
	const struct gp_budget *budget = device ? &device->budget : &gp_state.pinned_budget;
	uint64_t charged = atomic_load_explicit(&budget->charged_bytes, memory_order_relaxed);
	int nth = device ? device->index + 1 : 0;
	bool is_first = false;
	_Atomic uint64_t *to;

	do {
		to = atomic_load(&peaks);
		is_first |= raise_peak(&to[nth], charged);
	} while (gp_unlikely(to != atomic_load(&peaks)));
	if (gp_unlikely(is_first && device))
		on_first_growth(device->index);
}

void gp_device_show(const struct gp_device *device)
{
	on_first_growth(device->index);
}

void gp_devices_move_peaks(_Atomic uint64_t to[static GP_DEVICE_PEAKS])
{
	const _Atomic uint64_t *from = atomic_exchange(&peaks, to);

	for (int i = 0; i < GP_DEVICE_PEAKS; i++)
		(void)raise_peak(&to[i], atomic_load(&from[i]));
}

void gp_devices_start(void)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};

	gp_fork_on_child(&child);
	gp_mutex_lock(&lock);
	limits = gp_state.config.limit;
	gp_mutex_unlock(&lock);
}

static void raise_high(_Atomic uint64_t *high, uint64_t bytes)
{
	uint64_t before = atomic_load(high);

	while (before < bytes && !atomic_compare_exchange_weak(high, &before, bytes))
		;
}

void gp_device_raise_highs(struct gp_device *device, uint64_t used_bytes, uint64_t reserved_bytes)
{
	raise_high(&device->ended_used_high, used_bytes);
	raise_high(&device->ended_reserved_high, reserved_bytes);
}

struct gp_device *gp_device_if_used(int index)
{
	if (index < 0 || index >= GP_DEVICES_MAX || !atomic_load_explicit(&is_device_used[index], memory_order_acquire))
		return NULL;
	return &devices[index];
}

enum gp_kind gp_device_first_kind(void)
{
	for (int i = 0; i < GP_DEVICES_MAX; i++)
		if (gp_device_if_used(i))
			return atomic_load(&gp_device_if_used(i)->kind);
	return gp_state_kind();
}

/*
 * Managed memory that does not fit on the device is in host memory. Unless the user sets a limit, it may use at most
 * half of the host memory: without a limit, a program that allocates until it is refused would bring the machine down.
 */
static void limit_managed_locked(int index, uint64_t total_bytes)
{
	const struct gp_config *config = &gp_state.config;

	if (config->backend != GP_CONFIG_BACKEND_MANAGED || config->source[GP_OPTION_LIMIT] != GP_CONFIG_DEFAULT ||
		config->group.is_on || limits.named >> index & 1)
		return;
	limits.device[index] = (struct gp_limit){GP_LIMIT_BYTES, .bytes = total_bytes + gp_state_machine_bytes() / 2};
	limits.named |= UINT64_C(1) << index;
	atomic_store(&devices[index].is_limit_ours, true);
}

static uint64_t limit_locked(int index, uint64_t total_bytes)
{
	return gp_limit_bytes(gp_limit_list_find(&limits, index), total_bytes);
}

struct gp_device *gp_device_get(int index)
{
	struct gp_device *device = gp_device_if_used(index);
	unsigned char uuid[sizeof(device->uuid)] = {0};
	size_t total = 0;
	bool has_uuid;

	if (device || index < 0 || index >= GP_DEVICES_MAX)
		return device;
	if (gp_real.cuDeviceTotalMem_v2(&total, index))
		return NULL;
	has_uuid = gp_real.cuDeviceGetUuid_v2 && !gp_real.cuDeviceGetUuid_v2(uuid, index);
	gp_mutex_lock(&lock);
	device = &devices[index];
	if (!atomic_load(&is_device_used[index])) {
		device->index = index;
		device->total_bytes = total;
		atomic_store(&device->kind, gp_state_kind());
		device->has_uuid = has_uuid;
		memcpy(device->uuid, uuid, sizeof(uuid));
		limit_managed_locked(index, total);
		gp_budget_init(&device->budget, limit_locked(index, total));
		gp_group_attach(device);
		atomic_store_explicit(&is_device_used[index], true, memory_order_release);
	}
	gp_mutex_unlock(&lock);
	return device;
}

void gp_device_set_limits(const struct gp_limit_list *list)
{
	gp_mutex_lock(&lock);
	for (int i = 0; i < GP_DEVICES_MAX; i++) {
		bool is_named = list->named >> i & 1;

		if (!is_named && list->named && list->rest.kind == GP_LIMIT_NONE)
			continue;
		limits.device[i] = *gp_limit_list_find(list, i);
		limits.named |= UINT64_C(1) << i;
		atomic_store(&devices[i].is_limit_ours, false);
		if (atomic_load(&is_device_used[i]))
			atomic_store(&devices[i].budget.limit_bytes, limit_locked(i, devices[i].total_bytes));
	}
	gp_mutex_unlock(&lock);
}

bool gp_device_limit(int device, uint64_t *ret_bytes)
{
	struct gp_device *used = gp_real_ready() ? gp_device_get(device) : NULL;
	struct gp_limit limit;

	gp_mutex_lock(&lock);
	limit = *gp_limit_list_find(&limits, device);
	gp_mutex_unlock(&lock);
	if (!used && limit.kind == GP_LIMIT_SHARE)
		return false;
	*ret_bytes = used ? atomic_load(&used->budget.limit_bytes) : gp_limit_bytes(&limit, 0);
	return true;
}
