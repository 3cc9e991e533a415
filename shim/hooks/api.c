/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The functions behind api/gpupool.h, in a table that programs find through an ELF note, so that no symbol is exported
 * for them. The loader maps the note with the library. It holds the distance from itself to the table, which needs no
 * relocation.
 */

#include "api/gpupool.h"

#include <string.h>

#include "pool/pool_control.h"
#include "pool/vmm/cold.h"
#include "shim/backend/deep.h"
#include "shim/backend/sleep.h"
#include "shim/backend/spill.h"
#include "shim/base/log.h"
#include "shim/base/slow_path.h"
#include "shim/context/context.h"
#include "shim/context/driver_call.h"
#include "shim/context/kept.h"
#include "shim/context/limit.h"
#include "shim/context/region.h"
#include "shim/context/scope.h"
#include "shim/driver/driver_table.h"
#include "shim/oom/oom_hook.h"
#include "shim/process.h"
#include "shim/record/record.h"
#include "shim/usage/totals.h"

_Static_assert(sizeof(GPUPOOL_NOTE_OWNER) == 8, "the note below states this size");
_Static_assert(GPUPOOL_PINNED == GP_OOM_HOOK_PINNED, "the hook gets the same number for pinned memory");

#define NS_PER_MS UINT64_C(1000000)

/* True if the library serves this process: not if it is off, in a forked child, or after the driver has shut down. */
static bool is_serving(void)
{
	int saved_errno = errno;
	bool is = gp_process_is_on() && !gp_slow_path_is_any(GP_SLOW_PATH_BYPASS);

	errno = saved_errno;
	return is;
}

/* True if a device may have that number. If the driver cannot report the number of devices, every number may be one. */
static bool is_device(int device)
{
	int count = GP_DEVICES_MAX, saved_errno = errno;

	if (gp_real_ready() && gp_real.cuDeviceGetCount && gp_real.cuDeviceGetCount(&count))
		count = GP_DEVICES_MAX;
	errno = saved_errno;
	return device >= 0 && device < count && device < GP_DEVICES_MAX;
}

static const char *api_version(void)
{
	return GPUPOOL_VERSION;
}

static void fill(struct gpupool_status *status, const struct gp_stats *stats)
{
	status->used_bytes = stats->used_bytes;
	status->requested_bytes = stats->requested_bytes;
	status->cached_bytes = stats->cached_bytes;
	status->pending_bytes = stats->pending_bytes;
	status->returning_bytes = stats->returning_bytes;
	status->total_bytes = stats->total_bytes;
	status->peak_used_bytes = stats->peak_used_bytes;
	status->peak_total_bytes = stats->peak_total_bytes;
	status->n_used_blocks = stats->n_used_blocks;
	status->n_cached_blocks = stats->n_cached_blocks;
	status->n_pending_blocks = stats->n_pending_blocks;
	status->hits = stats->hits;
	status->misses = stats->misses;
	status->ooms = stats->ooms;
}

/*
 * Returns the free memory of a device if the thread's current context is on it, and 0 otherwise. Serves the time before
 * the first allocation, when no pool has a context on the device.
 */
static uint64_t available_in_current_context(int index)
{
	size_t available = 0, total;
	struct gp_driver_scope scope;
	CUcontext current = NULL;
	CUdevice device;

	if (gp_real.cuCtxGetCurrent(&current) || !current || gp_driver_enter(&scope, current))
		return 0;
	if (gp_real.cuCtxGetDevice(&device) || device != index || gp_real.cuMemGetInfo_v2(&available, &total))
		available = 0;
	gp_driver_leave(&scope);
	return available;
}

static void fill_device(struct gpupool_status *status, int index)
{
	const struct gp_device *device = gp_real_ready() ? gp_device_get(index) : NULL;
	struct gp_totals totals;

	gp_totals_device(&totals, index, true);
	fill(status, &totals.stats);
	if (totals.available_bytes != UINT64_MAX)
		status->device_free_bytes = totals.available_bytes;
	status->limit_bytes = GPUPOOL_NO_LIMIT;
	(void)gp_device_limit(index, &status->limit_bytes);
	if (!device)
		return;
	status->unpooled_bytes = gp_device_unpooled_bytes(device);
	status->device_total_bytes = device->total_bytes;
	if (totals.available_bytes == UINT64_MAX && !gp_deep_is())
		status->device_free_bytes = available_in_current_context(index);
}

static void fill_pinned(struct gpupool_status *status)
{
	struct gp_totals totals;

	gp_totals_pinned(&totals);
	fill(status, &totals.stats);
	status->limit_bytes = atomic_load(&gp_state.pinned_budget.limit_bytes);
}

static int api_status(int device, struct gpupool_status *status, size_t bytes)
{
	struct gpupool_status now = {0};
	int saved_errno = errno;

	if (!is_serving())
		return -ENOSYS;
	if (device != GPUPOOL_PINNED && !is_device(device))
		return -ENODEV;
	if (device == GPUPOOL_PINNED)
		fill_pinned(&now);
	else
		fill_device(&now, device);
	/* A newer program's structure may have members at its end that this library does not know. They become 0. */
	memset(status, 0, bytes);
	memcpy(status, &now, gp_min(bytes, sizeof(now)));
	errno = saved_errno;
	return 0;
}

struct release {
	int device;
	bool waits;
	int error; /* of the last pool that failed; the other pools release their memory nevertheless */
	uint64_t released_bytes;
};

static void release_pool(void *arg, struct gp_pool *pool)
{
	struct release *release = arg;
	int r = 0;

	if (release->waits) {
		gp_record(pool, SYNC, 0);
		r = gp_pool_synchronize(pool);
	}
	/* A pool whose context has just ended has nothing to wait for. */
	if (r && r != -EAGAIN) {
		release->error = r == -EBUSY ? -EBUSY : -EIO;
		return;
	}
	gp_record(pool, RECLAIM, 0);
	release->released_bytes += gp_pool_reclaim(pool);
}

static void release_context(void *arg, struct gp_context *context)
{
	const struct release *release = arg;

	if (release->device == GPUPOOL_PINNED)
		gp_context_each_pinned(context, release_pool, arg);
	else if (release->device == GPUPOOL_ALL_DEVICES || release->device == context->device->index)
		gp_context_each_pool(context, release_pool, arg);
}

static int64_t release_cached(int device, bool waits)
{
	struct release release = {.device = device, .waits = waits};
	int saved_errno = errno;

	if (!is_serving())
		return -ENOSYS;
	if (device != GPUPOOL_ALL_DEVICES && device != GPUPOOL_PINNED && !is_device(device))
		return -ENODEV;
	gp_context_each(release_context, &release);
	if (device != GPUPOOL_PINNED)
		release.released_bytes += gp_kept_trim(device == GPUPOOL_ALL_DEVICES ? -1 : device, UINT64_MAX);
	/* The program does not need its cache for now, so there may be room for memory that went to the host. */
	if (device != GPUPOOL_PINNED)
		(void)gp_spill_bring_back();
	errno = saved_errno;
	return release.error ? release.error : (int64_t)release.released_bytes;
}

static int64_t api_reclaim(int device)
{
	return release_cached(device, false);
}

static int64_t api_free_now(int device)
{
	return release_cached(device, true);
}

static int api_get_limit(int device, uint64_t *bytes)
{
	int saved_errno = errno;
	bool is_known = true;

	if (!is_serving())
		return -ENOSYS;
	if (device != GPUPOOL_PINNED && !is_device(device))
		return -ENODEV;
	if (device == GPUPOOL_PINNED)
		*bytes = atomic_load(&gp_state.pinned_budget.limit_bytes);
	else
		is_known = gp_device_limit(device, bytes);
	errno = saved_errno;
	return is_known ? 0 : -EAGAIN;
}

static int set_limit(int device, const struct gp_limit *limit)
{
	struct gp_limit_list list = {.rest = {.kind = GP_LIMIT_NONE}};
	int saved_errno = errno;

	if (!is_serving())
		return -ENOSYS;
	if (device == GPUPOOL_PINNED) {
		(void)gp_limit_set_pinned(limit);
	} else if (device == GPUPOOL_ALL_DEVICES) {
		list.rest = *limit;
		(void)gp_limit_set(&list);
	} else if (is_device(device)) {
		list.named = UINT64_C(1) << device;
		list.device[device] = *limit;
		(void)gp_limit_set(&list);
	} else {
		return -ENODEV;
	}
	errno = saved_errno;
	return 0;
}

static int api_set_limit(int device, uint64_t bytes)
{
	struct gp_limit limit = {.kind = GP_LIMIT_BYTES, .bytes = bytes};

	if (!bytes)
		return -EINVAL;
	if (bytes == GPUPOOL_NO_LIMIT)
		limit.kind = GP_LIMIT_NONE;
	return set_limit(device, &limit);
}

static int api_set_limit_percent(int device, double percent)
{
	struct gp_limit limit = {.kind = GP_LIMIT_SHARE};

	if (!(percent > 0 && percent <= 100))
		return -EINVAL;
	limit.share_ppb = (uint64_t)(percent * 1e7 + 0.5);
	return limit.share_ppb ? set_limit(device, &limit) : -EINVAL;
}

static int api_defer(int is_begin)
{
	int saved_errno = errno;
	bool is_done = true;

	if (!is_serving())
		return -ENOSYS;
	if (is_begin)
		gp_scope_defer_begin();
	else
		is_done = gp_scope_defer_end(true);
	errno = saved_errno;
	return is_done ? 0 : -EINVAL;
}

static int api_no_cache(int is_begin)
{
	int saved_errno = errno;
	bool is_done = true;

	if (!is_serving())
		return -ENOSYS;
	if (is_begin)
		gp_scope_no_cache_begin();
	else
		is_done = gp_scope_no_cache_end();
	errno = saved_errno;
	return is_done ? 0 : -EINVAL;
}

static int api_region(int is_begin, const char *name)
{
	static const char api_owner; /* owner of the regions begun here, which NVTX ranges must not end */
	int saved_errno = errno, r = -EINVAL;

	if (!is_serving())
		return -ENOSYS;
	if (is_begin && gp_region_is_name(name))
		r = gp_region_push(&api_owner, name);
	else if (!is_begin && gp_region_pop(&api_owner))
		r = 0;
	errno = saved_errno;
	return r;
}

static int64_t api_region_invalidate(const char *name)
{
	struct gp_invalidated unused;
	int saved_errno = errno;
	int64_t released = 0;

	if (!is_serving())
		return -ENOSYS;
	if (name && gp_region_find(name))
		released = (int64_t)gp_region_invalidate(gp_region_find(name), &unused);
	errno = saved_errno;
	return released;
}

static int api_set_oom_hook(gpupool_oom_hook *hook, void *arg)
{
	if (!is_serving())
		return -ENOSYS;
	gp_oom_hook_set(hook, arg);
	return 0;
}

static uint64_t in_ns(uint64_t ms)
{
	return ms > UINT64_MAX / NS_PER_MS ? UINT64_MAX : ms * NS_PER_MS;
}

static int64_t moved(bool is_done, const char *failed, const struct gp_sleep_result *result)
{
	if (!is_done)
		gp_log(GP_LOG_INFO, "%s: %s", failed, result->refusal.why);
	return is_done ? (int64_t)result->device_bytes : result->refusal.error;
}

static int64_t sleep_as(const struct gp_sleep_request *request)
{
	struct gp_sleep_result result;
	int saved_errno = errno;
	int64_t r = moved(gp_sleep_as(request, &result), "did not fall asleep", &result);

	errno = saved_errno;
	return r;
}

static int64_t api_sleep(uint64_t timeout_ms)
{
	return is_serving() ? sleep_as(&(struct gp_sleep_request){.timeout_ns = in_ns(timeout_ms)}) : -ENOSYS;
}

/* Copies the part of the structure that the program knows. */
static int64_t api_sleep_as(const struct gpupool_sleep_options *given, size_t bytes)
{
	struct gpupool_sleep_options options = {0};
	struct gp_sleep_request request;

	if (!is_serving())
		return -ENOSYS;
	if (!given)
		return -EINVAL;
	memcpy(&options, given, gp_min(bytes, sizeof(options)));
	request = (struct gp_sleep_request){
		.timeout_ns = in_ns(options.timeout_ms),
		.drops = {.is_all = options.is_dropping_all != 0},
	};
	for (uint64_t i = 0; i < options.n_drop; i++) {
		int id = options.drop[i] ? gp_region_find(options.drop[i]) : GP_REGION_NONE;

		if (id == GP_REGION_NONE)
			return -ENOENT;
		request.drops.regions |= GP_SLEEPERS_REGION(id);
	}
	return sleep_as(&request);
}

static int64_t api_wake(uint64_t timeout_ms)
{
	struct gp_sleep_result result;
	int saved_errno = errno;
	int64_t r;

	if (!is_serving())
		return -ENOSYS;
	r = moved(gp_wake(in_ns(timeout_ms), &result), "did not wake", &result);
	errno = saved_errno;
	return r;
}

static int api_cold(const void *ptr, uint64_t bytes)
{
	int saved_errno = errno, r;

	if (!is_serving())
		return -ENOSYS;
	r = gp_cold_note(&gp_state.device_map, (uint64_t)(uintptr_t)ptr, bytes);
	errno = saved_errno;
	return r == GP_E_FOREIGN ? -EINVAL : r;
}

__attribute__((used)) static const struct gpupool_table gp_api_table = {
	.bytes = sizeof(gp_api_table),
	.version = api_version,
	.status = api_status,
	.reclaim = api_reclaim,
	.free_now = api_free_now,
	.get_limit = api_get_limit,
	.set_limit = api_set_limit,
	.set_limit_percent = api_set_limit_percent,
	.defer = api_defer,
	.no_cache = api_no_cache,
	.set_oom_hook = api_set_oom_hook,
	.region = api_region,
	.region_invalidate = api_region_invalidate,
	.sleep = api_sleep,
	.wake = api_wake,
	.sleep_as = api_sleep_as,
	.cold = api_cold,
};

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

/* The note: size of the owner's name with its NUL, size of the distance, type, owner's name, distance to the table. */
__asm__(".pushsection .note.gpupool, \"a\", %note\n"
	"	.balign 4\n"
	"	.long 8, 8, " TEXT(GPUPOOL_NOTE_TYPE) "\n"
						      "	.asciz \"" GPUPOOL_NOTE_OWNER "\"\n"
						      "1:	.quad gp_api_table - 1b\n"
						      "	.popsection\n");
