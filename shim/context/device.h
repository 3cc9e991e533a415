/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The devices that the process uses, with the limit of each. */

#include "pool/account.h"
#include "shim/base/state.h"
#include "shim/driver/cuda_abi.h"

enum { GP_DEVICES_MAX = GP_LIMIT_DEVICES_MAX };

struct gp_device {
	int index;
	uint64_t total_bytes; /* as the driver reports */
	bool has_uuid;
	unsigned char uuid[16];
	_Atomic enum gp_config_backend backend; /* that of the last context created on the device */
	_Atomic enum gp_kind kind;      /* that of the last context created on the device; before, the wanted one */
	_Atomic(const char *) why_kind; /* why it is not the wanted one, or NULL */
	_Atomic int export_error; /* with which the driver refused to export mapped memory for other processes, or 0 */
	_Atomic uint64_t most_free_bytes; /* with managed memory: the most free bytes that cuMemGetInfo has reported */
	_Atomic uint64_t n_yields, yielded_bytes; /* requests of other processes that it met, and the bytes */
	_Atomic uint64_t wanted_until_ns; /* until then another process lacks memory of the device (reclaim.h) */
	struct gp_budget budget;
	_Atomic bool is_limit_ours;           /* gpupool has set the limit, not the user: it applies to pools only */
	_Atomic uint64_t unpooled_bytes;      /* bytes of memory that is counted and passed through */
	_Atomic uint64_t survivor_used_bytes; /* of survivors (survivor.h) that count for no account */
	_Atomic uint64_t survivor_bytes; /* bytes that stay charged for memory that outlives its context (survivor.h) */
	_Atomic uint64_t ended_used_high, ended_reserved_high; /* high-water marks of the pools of its ended contexts */
	_Atomic uint64_t kept_bytes, n_kept_reuses; /* of kept mappings (kept.h): unused, and handed out again */
	_Atomic bool is_kept_pressed;       /* the last look found less than GPUPOOL_RESERVE free: none stays unused */
	_Atomic(CUmemoryPool) default_pool; /* the driver's, once it was asked for (backend/default_pool.c) */
	_Atomic(CUmemoryPool) current_pool; /* set with the next: from which cuMemAllocAsync allocates */
	_Atomic bool is_default_pool_replaced, is_default_pool_shared;
	_Atomic uint64_t default_pool_is_open_to; /* a bit for each device that has access to the default pool */
	_Atomic uint64_t made_pools_are_open_to;  /* likewise, to memory of a pool that the program has made */
	struct gp_accounts accounts;              /* of such pools (hooks/made_pool.h) */
};

/* Takes the limits from the settings. To be called once the settings have been read. */
void gp_devices_start(void);

/* Returns the device with that number, created at first use. NULL if there is none, or its size is unknown. */
struct gp_device *gp_device_get(int index);

/* Returns the device if it has been created, else NULL. */
struct gp_device *gp_device_if_used(int index);

/* Returns the kind of pool in use on the first device that the process uses. */
enum gp_kind gp_device_first_kind(void);

/* Raises the high-water marks of the device's ended contexts to at least these bytes. */
void gp_device_raise_highs(struct gp_device *device, uint64_t used_bytes, uint64_t reserved_bytes);

/* Returns the bytes that are charged and not those of pools. */
static inline uint64_t gp_device_unpooled_bytes(const struct gp_device *device)
{
	return atomic_load(&device->unpooled_bytes) + atomic_load(&device->survivor_bytes);
}

/*
 * Sets the limits of the devices that the list names, or of all devices if it names none, also for devices that are not
 * in use yet.
 */
void gp_device_set_limits(const struct gp_limit_list *list);

/* The peaks of charged memory: of pinned memory, then of each device by its number. */
enum { GP_DEVICE_PEAKS = 1 + GP_DEVICES_MAX };

/*
 * To be called when memory has been taken from the driver and charged to the budget of the device, or of pinned memory
 * (NULL). Raises the peak. The function that gp_devices_on_first_growth() sets is called for the first memory of each
 * device, and may be called for it again.
 */
void gp_device_note_growth(const struct gp_device *device);
void gp_devices_on_first_growth(void (*fn)(int device));

/* Calls that function, for a device of which the process may have no memory yet. */
void gp_device_show(const struct gp_device *device);

/* From now on the peaks are kept there. A value that is there already stays if it is higher. */
void gp_devices_move_peaks(_Atomic uint64_t to[static GP_DEVICE_PEAKS]);

/* Returns a device's limit in bytes; false if it is a share of a device of unknown size. */
bool gp_device_limit(int device, uint64_t *ret_bytes);
