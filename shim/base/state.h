/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The state that the whole library shares: the settings, the address maps, and the budget of pinned memory. */

#include "common/config.h"
#include "pool/pool.h"

struct gp_state {
	struct gp_config config;
	struct gp_addrmap device_map, pinned_map;
	struct gp_budget pinned_budget;
	_Atomic bool
		needs_completion; /* reuse waits for completion: the next work on a block may be another context's */
	_Atomic bool needs_whole; /* each new block is a whole driver allocation, since blocks are exported */
	uint64_t start_ns;
	bool has_wrong_settings; /* process.c reports them */
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

/* False if GPUPOOL_REUSE=ordered: then a GPU wait is enough for reuse, even if other contexts use the memory. */
static inline bool gp_state_heeds_completion(void)
{
	return gp_state.config.reuse != GP_CONFIG_REUSE_ORDERED;
}

/* Returns the kind of the pools of device memory: the configured one, or split if the backend does not allow vmm. */
enum gp_kind gp_state_kind(void);

/* Returns the bytes of host memory of the machine; 0 if unknown. */
uint64_t gp_state_machine_bytes(void);

/* Returns the host's page size: the driver exports only whole pages as a dma-buf. */
uint64_t gp_state_page_bytes(void);

/* Returns the limit of pending bytes for pools with that total memory and that budget. */
uint64_t gp_state_pending_max(uint64_t total_bytes, const struct gp_budget *budget);
