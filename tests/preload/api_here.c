/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A program of two source files that uses the public header only: as C99, C11 or C++, linked statically or not. */

#include <stdio.h>

#include "api_here.h"

static int wait_for_more(void *arg, int device, uint64_t bytes)
{
	(void)arg;
	(void)device;
	(void)bytes;
	return 0;
}

/* Calls every function, so that each is compiled. Returns how many of them answer -ENOSYS. */
static int count_refusals(void)
{
	struct gpupool_sleep_options options = {0, 0, NULL, 0};
	struct gpupool_status status;
	uint64_t bytes;

	return (gpupool_get_status(0, &status) == -ENOSYS) + (gpupool_reclaim(GPUPOOL_ALL_DEVICES) == -ENOSYS) +
	       (gpupool_free_now(GPUPOOL_PINNED) == -ENOSYS) + (gpupool_get_limit(0, &bytes) == -ENOSYS) +
	       (gpupool_set_limit(0, GPUPOOL_NO_LIMIT) == -ENOSYS) + (gpupool_set_limit_percent(0, 100) == -ENOSYS) +
	       (gpupool_defer_begin() == -ENOSYS) + (gpupool_defer_end() == -ENOSYS) +
	       (gpupool_no_cache_begin() == -ENOSYS) + (gpupool_no_cache_end() == -ENOSYS) +
	       (gpupool_set_oom_hook(wait_for_more, NULL) == -ENOSYS) + (gpupool_region_begin("mine") == -ENOSYS) +
	       (gpupool_region_end() == -ENOSYS) + (gpupool_region_invalidate("mine") == -ENOSYS) +
	       (gpupool_sleep(1) == -ENOSYS) + (gpupool_sleep_as(&options) == -ENOSYS) + (gpupool_wake(1) == -ENOSYS);
}

int main(void)
{
	printf("here %d there %d refusals %d\n", gpupool_version() != NULL, ask_there() != NULL, count_refusals());
	return 0;
}
