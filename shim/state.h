/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The state that the whole library shares: settings, address maps, budgets, devices. */

#include "pool/pool.h"
#include "common/config.h"

enum { GP_DEVICES_MAX = GP_LIMIT_DEVICES_MAX };

struct gp_device {
	int index;
	uint64_t total_bytes; /* as the driver reports */
	bool has_uuid;
	unsigned char uuid[16];
	_Atomic enum gp_config_backend backend; /* of the last context created on it */
	_Atomic uint64_t most_free_bytes; /* with managed memory: the most free bytes that cuMemGetInfo has reported */
	_Atomic uint64_t n_yields, yielded_bytes; /* memory given back for other processes */
	struct gp_budget budget;
	_Atomic bool is_limit_ours;      /* the limit is gpupool's own, not the user's: it applies to pools only */
	_Atomic uint64_t unpooled_bytes; /* in allocations that are counted and passed through */
};

struct gp_state {
	struct gp_config config;
	struct gp_addrmap device_map, pinned_map;
	struct gp_budget pinned_budget;
	_Atomic bool needs_completion; /* work outside a context may be the first to touch a reused block of it */
	_Atomic bool needs_whole;      /* blocks are exported: each new one is a whole driver allocation */
	uint64_t start_ns;
};

extern struct gp_state gp_state;

extern _Atomic int gp_state_mode; /* 0: settings not read yet, 1: on, -1: off */
bool gp_state_read(void);

/* True if GPUPOOL is on. The first call reads the settings. */
static inline bool gp_state_is_enabled(void)
{
	int mode = atomic_load_explicit(&gp_state_mode, memory_order_acquire);

	return mode ? mode > 0 : gp_state_read();
}

/* False if GPUPOOL_REUSE=ordered: then memory is reused after a GPU wait, whatever else may touch it. */
static inline bool gp_state_heeds_completion(void)
{
	return gp_state.config.reuse != GP_CONFIG_REUSE_ORDERED;
}

extern _Atomic bool gp_state_is_started;
void gp_state_start_slow(void);

/* Registers the fork handler. Must be called before any lock of the library is taken. */
void gp_state_watch_forks(void);

/* Called at each allocation. The first call reports wrong settings and opens the control socket. */
static inline void gp_state_start(void)
{
	if (gp_unlikely(!atomic_load_explicit(&gp_state_is_started, memory_order_relaxed)))
		gp_state_start_slow();
}

/* Returns the device with that number, created at first use. NULL if there is none, or its size is unknown. */
struct gp_device *gp_state_device(int index);

/* Returns the device if it has been created, else NULL. */
struct gp_device *gp_state_device_if_used(int index);

enum gp_kind gp_state_kind(void);

/* Returns the host's memory. */
uint64_t gp_state_machine_bytes(void);

/* Returns the host's page size: the driver exports only whole pages as a dma-buf. */
uint64_t gp_state_page_bytes(void);

/*
 * From now on reuse needs completion in every context, unless GPUPOOL_REUSE=ordered. Waits once for earlier
 * reuse.
 */
void gp_state_need_completion(const char *why);

/* From now on every new block of device memory is a whole driver allocation, which can be exported. */
void gp_state_need_whole(const char *why);

/* Called when a capture has ended: catches up on a wait of gp_state_need_completion that the capture forbade. */
void gp_state_settle_completion(void);

/*
 * Sets the limits of the devices that the list names, or of all devices if it names none, also for devices that are not
 * in use yet.
 */
void gp_state_set_limits(const struct gp_limit_list *list);

/* Returns a device's limit in bytes; false if it is a share of a device of unknown size. */
bool gp_state_limit(int device, uint64_t *ret_bytes);

/* Returns the limit of pending bytes for pools with that total memory and that budget. */
uint64_t gp_state_pending_max(uint64_t total_bytes, const struct gp_budget *budget);

/* Sets the options that all pools of the process have in common. */
void gp_state_pool_options(struct gp_pool_options *options, uint64_t total_bytes, const struct gp_budget *budget);
