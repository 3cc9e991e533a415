/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "state.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shim/ctl/actions.h"
#include "shim/backend/backend.h"
#include "shim/base/barrier.h"
#include "shim/trace/module.h"
#include "common/compat.h"
#include "shim/context/context.h"
#include "shim/ctl/ctl_server.h"
#include "shim/debug/debug_zone.h"
#include "shim/driver/driver_call.h"
#include "shim/trace/exit_report.h"
#include "common/file.h"
#include "shim/context/serial.h"
#include "shim/context/libraries.h"
#include "shim/base/libc.h"
#include "shim/trace/alloc_info.h"
#include "shim/driver/driver_table.h"
#include "shim/record/record.h"
#include "shim/context/region.h"
#include "shim/hooks/runtime.h"
#include "shim/context/scope.h"
#include "shim/context/thread.h"

struct gp_state gp_state;
_Atomic int gp_state_mode;
_Atomic bool gp_state_is_started;
_Atomic unsigned gp_slow_path;

#define DEFAULT_PAGE (4 * GP_KIB)

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_limit_list limits; /* under the lock; initially those of the settings */
static struct gp_device devices[GP_DEVICES_MAX];
static _Atomic bool is_device_used[GP_DEVICES_MAX];

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

/* Reports nothing yet: a process that never allocates must not see messages. gp_state_start reports the problems. */
static void ignore_problem(void *unused, const struct gp_config_report *problem)
{
}

bool gp_state_read(void)
{
	gp_mutex_lock(&lock);
	if (!atomic_load(&gp_state_mode)) {
		struct gp_config *config = &gp_state.config;
		bool is_enabled;

		(void)gp_config_parse(config, gp_config_environ(), ignore_problem, NULL);
		limits = config->limit;
		gp_addrmap_init(&gp_state.device_map);
		gp_addrmap_init(&gp_state.pinned_map);
		gp_budget_init(
			&gp_state.pinned_budget, gp_limit_bytes(&config->pinned_limit, gp_state_machine_bytes()));
		atomic_init(&gp_state.needs_completion, config->reuse == GP_CONFIG_REUSE_COMPLETED);
		gp_state.start_ns = gp_driver_now_ns(NULL);
		gp_region_init(&config->regions);
		gp_file_read_names(gp_config_environ());
		is_enabled = config->is_enabled && gp_libc_is_glibc();
		gp_record_init(is_enabled ? config->record_file : NULL);
		if (is_enabled)
			gp_log_note_stderr();
		if (gp_record_is_on() || gp_config_debug_is_on(&config->debug))
			gp_slow_path_add(GP_SLOW_PATH_WATCHED);
		if (config->is_free_synchronous)
			gp_slow_path_add(GP_SLOW_PATH_WAITING);
		atomic_store_explicit(&gp_state_mode, is_enabled ? 1 : -1, memory_order_release);
	}
	gp_mutex_unlock(&lock);
	return atomic_load(&gp_state_mode) > 0;
}

static bool is_vmm_impossible(void)
{
	return gp_state.config.pool == GP_CONFIG_POOL_VMM && gp_state.config.backend != GP_CONFIG_BACKEND_DEVICE;
}

enum gp_kind gp_state_kind(void)
{
	static const enum gp_kind kinds[] = {
		[GP_CONFIG_POOL_NONE] = GP_KIND_NONE,
		[GP_CONFIG_POOL_SIMPLE] = GP_KIND_SIMPLE,
		[GP_CONFIG_POOL_BINNED] = GP_KIND_BINNED,
		[GP_CONFIG_POOL_SPLIT] = GP_KIND_SPLIT,
		[GP_CONFIG_POOL_VMM] = GP_KIND_VMM,
	};

	/* Only device memory can be mapped. */
	if (is_vmm_impossible())
		return GP_KIND_SPLIT;
	return kinds[gp_state.config.pool];
}

static void report(void *unused, const struct gp_config_report *problem)
{
	char line[GP_CONFIG_MESSAGE_SIZE];

	gp_config_report_format(problem, line, sizeof(line));
	if (problem->problem == GP_CONFIG_FAILS_CLOSED)
		gp_log(GP_LOG_ERROR, "%s", line);
	else
		gp_log(GP_LOG_WARN, "%s", line);
}

/*
 * A CUDA context does not survive a fork: the child's calls go straight to the driver, which returns the error. If
 * there was no context yet, the child starts anew. Locks are reset, since threads that held them do not exist in the
 * child.
 */
static void after_fork_in_child(void)
{
	if (atomic_load(&gp_state_is_started) || gp_context_were_any())
		gp_slow_path_add(GP_SLOW_PATH_BYPASS);
	gp_record_after_fork_child(gp_slow_path_is_any(GP_SLOW_PATH_BYPASS));
	gp_libraries_after_fork_child();
	gp_zones_after_fork_child();
	gp_thread_after_fork_child();
	gp_ctl_after_fork_child();
	gp_mutex_init(&lock, GP_RANK_LEAF);
	gp_real_after_fork_child();
	gp_runtime_after_fork_child();
	gp_module_after_fork_child();
	gp_context_after_fork_child();
}

void gp_state_watch_forks(void)
{
	static _Atomic bool is_watching;

	if (gp_likely(atomic_load(&is_watching)))
		return;
	/* No lock may be taken before this. So two threads may register the handler twice, which does no harm. */
	if (__register_atfork)
		(void)__register_atfork(NULL, NULL, after_fork_in_child, __dso_handle);
	atomic_store(&is_watching, true);
}

/*
 * Logs problems with the control socket. A sandbox may refuse sockets or threads on purpose, which needs no
 * warning. An unusable directory needs one: another user may have created it.
 */
static void log_socket(int error)
{
	const char *problems = gp_ctl_problems(), *path = gp_ctl_path();

	if (error && !*problems)
		gp_log(GP_LOG_INFO, "no control socket (error %d): gpupool-stat cannot see this process", -error);
	else if (error)
		gp_log(GP_LOG_WARN, "no control socket (error %d): gpupool-stat cannot see this process: %s", -error,
			problems);
	else if (*path == '@')
		gp_log(GP_LOG_WARN, "%s; the control socket is %s (abstract, without a file)", problems, path);
	else if (*problems && *gp_state.config.runtime_dir)
		gp_log(GP_LOG_WARN, "%s; the control socket is %s", problems, path);
	else if (*problems)
		gp_log(GP_LOG_INFO, "%s; the control socket is %s", problems, path);
}

static void start_socket(void)
{
	struct gp_ctl_options options = {
		.dirs =
			{
				.runtime_dir = gp_state.config.runtime_dir,
				.xdg_runtime_dir = gp_config_variable("XDG_RUNTIME_DIR"),
				.tmp_dir = gp_config_variable("TMPDIR"),
				.uid = geteuid(),
			},
		.handlers = gp_actions,
		.begin = gp_state.config.thread_cache_bytes ? gp_barrier_register : NULL,
	};
	bool is_wanted = gp_state.config.has_socket;
	int error = is_wanted ? gp_ctl_start(&options) : -ECANCELED;

	/* Without a server thread, start a short-lived thread that registers the barrier. */
	if (error && options.begin)
		gp_barrier_start();
	if (is_wanted)
		log_socket(error);
}

static void start(void)
{
	static struct gp_config reparsed; /* parsed once more, now that errors can be logged */
	int count = 0, r = 0;

	gp_log_open(gp_state.config.log_level, gp_state.config.log_file);
	(void)gp_config_parse(&reparsed, gp_config_environ(), report, NULL);
	if (gp_real.cuDeviceGetCount && !gp_real.cuDeviceGetCount(&count))
		gp_config_check_devices(&gp_state.config, count, report, NULL);
	gp_record_start();
	gp_record(NULL, DEFER, atomic_load(&gp_scope_defers));
	if (gp_state.config.stacks.depth)
		r = gp_alloc_info_switch(&gp_state.config.stacks);
	if (r)
		gp_log(GP_LOG_WARN, "GPUPOOL_STACKS: cannot take call stacks: %s (error %d)",
			r == -ENOENT ? "libgcc_s.so.1 is missing" : "out of host memory", -r);
	gp_exit_report_start(gp_state.config.report);
	start_socket();
	if (is_vmm_impossible())
		gp_log(GP_LOG_WARN,
			"GPUPOOL_POOL=vmm needs GPUPOOL_BACKEND=device: with GPUPOOL_BACKEND=%s the pool type is split",
			gp_backend_name(gp_state.config.backend));
	gp_log(GP_LOG_INFO, "gpupool %s serves this process: pool type %s, backend %s", GPUPOOL_VERSION,
		gp_kind_name(gp_state_kind()), gp_backend_name(gp_state.config.backend));
	gp_serial_report();
}

void gp_state_start_slow(void)
{
	int cancel_state;

	if (atomic_exchange(&gp_state_is_started, true))
		return;
	/* No other thread will do this. So the thread must not be cancelled before it is complete. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	gp_thread_watch_exit();
	start();
	pthread_setcancelstate(cancel_state, NULL);
}

struct gp_device *gp_state_device_if_used(int index)
{
	if (index < 0 || index >= GP_DEVICES_MAX || !atomic_load_explicit(&is_device_used[index], memory_order_acquire))
		return NULL;
	return &devices[index];
}

/*
 * Managed memory that does not fit on the device lies in host memory. Unless the user sets a limit, at most half of the
 * host memory may be used so: a program that allocates until it is refused would bring the machine down.
 */
static void limit_managed_locked(int index, uint64_t total_bytes)
{
	const struct gp_config *config = &gp_state.config;

	if (config->backend != GP_CONFIG_BACKEND_MANAGED || config->source[GP_OPTION_LIMIT] != GP_CONFIG_DEFAULT ||
		limits.named >> index & 1)
		return;
	limits.device[index] = (struct gp_limit){GP_LIMIT_BYTES, .bytes = total_bytes + gp_state_machine_bytes() / 2};
	limits.named |= UINT64_C(1) << index;
	atomic_store(&devices[index].is_limit_ours, true);
}

static uint64_t limit_locked(int index, uint64_t total_bytes)
{
	return gp_limit_bytes(gp_limit_list_find(&limits, index), total_bytes);
}

struct gp_device *gp_state_device(int index)
{
	struct gp_device *device = gp_state_device_if_used(index);
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
		device->has_uuid = has_uuid;
		memcpy(device->uuid, uuid, sizeof(uuid));
		limit_managed_locked(index, total);
		gp_budget_init(&device->budget, limit_locked(index, total));
		atomic_store_explicit(&is_device_used[index], true, memory_order_release);
	}
	gp_mutex_unlock(&lock);
	return device;
}

void gp_state_set_limits(const struct gp_limit_list *list)
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

bool gp_state_limit(int device, uint64_t *ret_bytes)
{
	struct gp_device *used = gp_real_ready() ? gp_state_device(device) : NULL;
	struct gp_limit limit;

	gp_mutex_lock(&lock);
	limit = *gp_limit_list_find(&limits, device);
	gp_mutex_unlock(&lock);
	if (!used && limit.kind == GP_LIMIT_SHARE)
		return false;
	*ret_bytes = used ? atomic_load(&used->budget.limit_bytes) : gp_limit_bytes(&limit, 0);
	return true;
}

uint64_t gp_state_pending_max(uint64_t total_bytes, const struct gp_budget *budget)
{
	uint64_t limit = atomic_load(&budget->limit_bytes);

	return (uint64_t)(gp_state.config.pending_ratio * (double)gp_min(total_bytes, limit));
}

void gp_state_pool_options(struct gp_pool_options *options, uint64_t total_bytes, const struct gp_budget *budget)
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
	options->oom_wait_ns = config->oom_wait_ms * 1000000;
}
