/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What the whole library shares: settings, address maps, budgets. The only mutable globals beside the driver's. */

#include "../pool/pool.h"
#include "config.h"

enum { GP_DEVICES_MAX = GP_LIMIT_DEVICES_MAX };

struct gp_device {
	int index;
	uint64_t total_bytes; /* what the driver says the device has */
	bool has_uuid;
	unsigned char uuid[16];
	_Atomic enum gp_config_backend backend; /* of the last context that was made there */
	_Atomic uint64_t most_free_bytes; /* that cuMemGetInfo has seen in the driver, where memory is managed */
	_Atomic uint64_t n_yields, yielded_bytes; /* for other processes */
	struct gp_budget budget;
	_Atomic bool is_limit_ours; /* nobody asked for it: it is for what the pool holds alone */
	_Atomic uint64_t unpooled_bytes; /* in allocations that are counted and passed through */
};

struct gp_state {
	struct gp_config config;
	struct gp_addrmap device_map, pinned_map;
	struct gp_budget pinned_budget;
	_Atomic bool needs_completion; /* somebody outside a context may be first to touch its memory */
	_Atomic bool needs_whole;      /* blocks are exported: new ones are driver allocations of their own */
	uint64_t start_ns;
};

extern struct gp_state gp_state;

extern _Atomic int gp_state_mode; /* 0: settings not read yet, 1: on, -1: off */
bool gp_state_read(void);

/* Whether GPUPOOL is on. The first call reads the settings. */
static inline bool gp_state_is_enabled(void)
{
	int mode = atomic_load_explicit(&gp_state_mode, memory_order_acquire);

	return mode ? mode > 0 : gp_state_read();
}

extern _Atomic bool gp_state_is_started;
void gp_state_start_slow(void);

/* From now on a child of the process finds its way. Called before any lock of the library is taken. */
void gp_state_watch_forks(void);

/* At the first allocation: reports what is wrong with the settings and opens the socket. */
static inline void gp_state_start(void)
{
	if (gp_unlikely(!atomic_load_explicit(&gp_state_is_started, memory_order_relaxed)))
		gp_state_start_slow();
}

/* The device with that number; made when first asked for. NULL if there is none, or its size is unknown. */
struct gp_device *gp_state_device(int index);

/* The same, but only if it was made. */
struct gp_device *gp_state_device_if_used(int index);

enum gp_kind gp_state_kind(void);

/* The machine's memory. */
uint64_t gp_state_machine_bytes(void);

/* A page of the host: the driver exports as a dma-buf only what begins and ends at one. */
uint64_t gp_state_page_bytes(void);

/* From now on reuse needs completion in every context, unless GPUPOOL_REUSE says otherwise. Waits once. */
void gp_state_need_completion(const char *why);

/* From now on every new block of device memory is one that the driver can export. */
void gp_state_need_whole(const char *why);

/* A capture has ended: makes up for a wait that it forbade. */
void gp_state_settle_completion(void);

/*
 * Limits from now on, of the devices that the list names, or of all if it names none: also of those that are not in use
 * yet. The limit of a device in bytes; false if that is a share of a device of unknown size.
 */
void gp_state_set_limits(const struct gp_limit_list *list);
bool gp_state_limit(int device, uint64_t *ret_bytes);

/* What may be queued in pools of that much memory, with that limit. */
uint64_t gp_state_pending_max(uint64_t total_bytes, const struct gp_budget *budget);

/* The options that every pool of the process has in common. */
void gp_state_pool_options(struct gp_pool_options *options, uint64_t total_bytes, const struct gp_budget *budget);
