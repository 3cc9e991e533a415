/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "state.h"

#include <unistd.h>

#include "clock.h"
#include "common/file.h"
#include "fork.h"
#include "libc.h"
#include "log.h"

#define DEFAULT_PAGE (4 * GP_KIB)

struct gp_state gp_state;
_Atomic int gp_state_mode;

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);

uint64_t gp_state_machine_bytes(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

uint64_t gp_state_page_bytes(void)
{
	long page = sysconf(_SC_PAGESIZE);

	return page > 0 ? (uint64_t)page : DEFAULT_PAGE;
}

/* Only notes wrong settings: a process that never allocates must not print messages. process.c reports them later. */
static void note_problem(void *unused, const struct gp_config_report *problem)
{
	gp_state.has_wrong_settings = true;
}

static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}

bool gp_state_read(void)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};

	gp_fork_on_child(&child);
	gp_mutex_lock(&lock);
	if (!atomic_load(&gp_state_mode)) {
		struct gp_config *config = &gp_state.config;
		bool is_enabled;

		(void)gp_config_load(config, gp_config_environ(), note_problem, NULL);
		gp_addrmap_init(&gp_state.device_map);
		gp_addrmap_init(&gp_state.pinned_map);
		gp_budget_init(
			&gp_state.pinned_budget, gp_limit_bytes(&config->pinned_limit, gp_state_machine_bytes()));
		atomic_init(&gp_state.needs_completion, config->reuse == GP_CONFIG_REUSE_COMPLETED);
		gp_state.start_ns = gp_clock_now_ns(NULL);
		gp_file_read_names(gp_config_environ());
		is_enabled = config->is_enabled && gp_libc_is_glibc();
		if (is_enabled)
			gp_log_note_stderr();
		atomic_store_explicit(&gp_state_mode, is_enabled ? 1 : -1, memory_order_release);
	}
	gp_mutex_unlock(&lock);
	return atomic_load(&gp_state_mode) > 0;
}

enum gp_kind gp_state_kind(void)
{
	static const enum gp_kind kinds[] = {
		[GP_CONFIG_POOL_NONE] = GP_KIND_NONE,
		[GP_CONFIG_POOL_SIMPLE] = GP_KIND_SIMPLE,
		[GP_CONFIG_POOL_BINNED] = GP_KIND_BINNED,
		[GP_CONFIG_POOL_SPLIT] = GP_KIND_SPLIT,
		[GP_CONFIG_POOL_VMM] = GP_KIND_VMM,
		[GP_CONFIG_POOL_AUTO] = GP_KIND_VMM,
	};
	enum gp_kind kind = kinds[gp_state.config.pool];

	/* The kind vmm maps memory itself, which is possible only on the backend "device". */
	return kind == GP_KIND_VMM && gp_state.config.backend != GP_CONFIG_BACKEND_DEVICE ? GP_KIND_SPLIT : kind;
}

uint64_t gp_state_pending_max(uint64_t total_bytes, const struct gp_budget *budget)
{
	uint64_t limit = atomic_load(&budget->limit_bytes);

	return (uint64_t)(gp_state.config.pending_ratio * (double)gp_min(total_bytes, limit));
}
