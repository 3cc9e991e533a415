/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "pool_options.h"

#include "pool/tcache.h"
#include "shim/base/barrier.h"
#include "shim/context/scope.h"

void gp_backend_pool_options(struct gp_pool_options *options, uint64_t total_bytes, const struct gp_budget *budget)
{
	const struct gp_config *config = &gp_state.config;
	uint64_t limit = atomic_load(&budget->limit_bytes);
	bool is_default = config->source[GP_OPTION_PENDING_COUNT] == GP_CONFIG_DEFAULT;

	options->capacity_bytes = total_bytes;
	options->pending_bytes_max = gp_state_pending_max(total_bytes, budget);
	options->n_defers = &gp_scope_defers;
	options->pending_count_max = config->pending_count;
	if (is_default && options->kind == GP_KIND_NONE)
		options->pending_count_max = 10; /* as in Numba */
	options->thread_cache_bytes = config->thread_cache_bytes;
	if (config->source[GP_OPTION_THREAD_CACHE] == GP_CONFIG_DEFAULT)
		options->thread_cache_bytes =
			gp_min(options->thread_cache_bytes, gp_min(total_bytes, limit) / GP_TCACHE_SHARE);
	options->barrier = &gp_barrier;
	options->spills = config->spill_bytes != 0;
	if (config->oom_wait_ms != GP_CONFIG_OOM_WAIT_AUTO)
		options->oom_wait_ns = config->oom_wait_ms * 1000000;
}
