/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "process.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shim/answers/actions.h"
#include "shim/backend/backend_device.h"
#include "shim/backend/backend_supply.h"
#include "shim/backend/peer_access.h"
#include "shim/backend/registered.h"
#include "shim/backend/sleep.h"
#include "shim/backend/sleep_policy.h"
#include "shim/backend/spill.h"
#include "shim/backend/unpooled.h"
#include "shim/base/barrier.h"
#include "shim/base/clock.h"
#include "shim/base/fork.h"
#include "shim/base/log.h"
#include "shim/base/slow_path.h"
#include "shim/context/context.h"
#include "shim/context/group.h"
#include "shim/context/kept.h"
#include "shim/context/program_map.h"
#include "shim/context/region.h"
#include "shim/context/scope.h"
#include "shim/context/serial.h"
#include "shim/context/thread.h"
#include "shim/ctl/ctl_server.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"
#include "shim/ipc/ipc.h"
#include "shim/oom/oom_json.h"
#include "shim/record/record.h"
#include "shim/trace/alloc_info.h"
#include "shim/usage/counter_page.h"
#include "shim/usage/exit_report.h"
#include "shim/usage/frameworks.h"
#include "shim/usage/own_summary.h"

_Atomic int gp_process_mode;
_Atomic bool gp_process_is_started;

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_SET_UP);

/* A process that ends waits that often, and that long each time, for a thread that starts the library. */
enum { START_TRIES = 1000 };
#define START_WAIT_NS UINT64_C(1000000)

static _Atomic bool is_recording_begun;
static _Thread_local bool is_starting __attribute__((tls_model("initial-exec")));

/*
 * A CUDA context does not survive a fork: the child's calls go straight to the driver, which returns the error. If
 * there was no context yet, the child starts anew.
 */
static void bypass_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_SET_UP);
	gp_ctl_after_fork_child();
	if (atomic_load(&gp_process_is_started) || gp_context_were_any())
		gp_slow_path_add(GP_SLOW_PATH_BYPASS);
}

/*
 * True if another thread is starting the library, and has not registered the end of the recording yet. A handler of a
 * signal may end the process in the thread that starts it, which does not wait for itself.
 */
static bool is_recording_beginning(void)
{
	return gp_record_is_on() && atomic_load(&gp_process_is_started) && !atomic_load(&is_recording_begun) &&
	       !is_starting;
}

/* Without the wait, what was recorded would be lost. */
static void await_recording(void)
{
	for (int i = 0; i < START_TRIES && is_recording_beginning(); i++)
		gp_clock_sleep(START_WAIT_NS);
}

/*
 * Each module registers its callbacks here: for a forked child, and for the end of a context. A child calls them in
 * reverse order. So gp_record_init comes first: its callback runs after bypass_in_child, and finds out whether the
 * child is bypassed.
 */
static void set_up_modules(void)
{
	static const struct gp_fork_child child = {.fn = bypass_in_child};

	gp_record_init(gp_state.config.record_file, gp_state.config.stacks.depth != 0);
	if (gp_record_is_on())
		(void)atexit(await_recording);
	gp_fork_on_child(&child);
	gp_devices_start();
	gp_groups_start();
	gp_contexts_start();
	gp_program_maps_start();
	gp_kept_start();
	gp_regions_start();
	gp_threads_start(gp_process_start);
	gp_backend_start();
	gp_registered_start();
	gp_peer_access_start();
	gp_sleep_start();
	gp_sleep_policy_start();
	gp_spill_start();
	gp_unpooled_start();
	gp_debug_start();
	gp_ipc_start();
	gp_own_summary_set_up();
	gp_counter_page_set_up();
	if (gp_record_is_on() || gp_debug_is_on())
		gp_slow_path_add(GP_SLOW_PATH_WATCHED);
	if (gp_state.config.is_free_synchronous)
		gp_slow_path_add(GP_SLOW_PATH_WAITING);
}

bool gp_process_set_up(void)
{
	bool is_enabled = gp_state_is_enabled();

	gp_mutex_lock(&lock);
	if (!atomic_load(&gp_process_mode)) {
		if (is_enabled)
			set_up_modules();
		atomic_store_explicit(&gp_process_mode, is_enabled ? 1 : -1, memory_order_release);
	}
	gp_mutex_unlock(&lock);
	return is_enabled;
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
 * Logs problems with the control socket. A sandbox may refuse sockets or threads on purpose, so a refusal needs no
 * warning. An unusable directory needs a warning: another user may have created it.
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
				.run_dir = gp_ctl_run_dir(GP_CTL_RUN_DIR, geteuid()),
			},
		.handlers = gp_actions,
		.begin = gp_state.config.thread_cache_bytes ? gp_barrier_register : NULL,
		.tick = gp_counter_page_tick,
		.watch = gp_sleep_is_watched() ? gp_sleep_watch : NULL,
	};
	bool is_wanted = gp_state.config.has_socket;
	int error = is_wanted ? gp_ctl_start(&options) : -ECANCELED;

	/* Without a server thread, start a short-lived thread that registers the barrier. */
	if (error && options.begin)
		gp_barrier_start();
	if (is_wanted)
		log_socket(error);
	if (error && options.watch)
		gp_sleep_watch_alone();
	if (!error)
		gp_counter_page_start(gp_ctl_path());
}

static void start(void)
{
	static struct gp_config reparsed;
	int count = 0, r = 0;

	gp_log_open(gp_state.config.log_level, gp_state.config.log_file);
	/* Wrong settings are parsed once more, now that their errors can be logged. */
	if (gp_state.has_wrong_settings)
		(void)gp_config_load(&reparsed, gp_config_environ(), report, NULL);
	if (gp_real.cuDeviceGetCount && !gp_real.cuDeviceGetCount(&count))
		gp_config_check_devices(&gp_state.config, count, report, NULL);
	gp_record_start();
	atomic_store(&is_recording_begun, true);
	gp_record(NULL, DEFER, atomic_load(&gp_scope_defers));
	if (gp_state.config.stacks.depth)
		r = gp_alloc_info_switch(&gp_state.config.stacks);
	if (r)
		gp_log(GP_LOG_WARN, "GPUPOOL_STACKS: cannot take call stacks: %s (error %d)",
			r == -ENOENT ? "libgcc_s.so.1 is missing" : "out of host memory", -r);
	gp_frameworks_start();
	gp_exit_report_start(gp_state.config.report);
	gp_own_summary_start();
	gp_oom_labels_start();
	start_socket();
	if (gp_state.config.pool == GP_CONFIG_POOL_VMM && gp_state_kind() != GP_KIND_VMM)
		gp_log(GP_LOG_WARN,
			"GPUPOOL_POOL=vmm needs GPUPOOL_BACKEND=device: with GPUPOOL_BACKEND=%s the pool type is split",
			gp_backend_name(gp_state.config.backend));
	if (gp_sleep_is_watched() && gp_state_kind() != GP_KIND_VMM && gp_state.config.pool != GP_CONFIG_POOL_AUTO)
		gp_log(GP_LOG_WARN,
			"GPUPOOL_SLEEP needs GPUPOOL_POOL=vmm or auto: memory of the pool type %s cannot sleep",
			gp_kind_name(gp_state_kind()));
	gp_log(GP_LOG_INFO, "gpupool %s serves this process: pool type %s, backend %s", GPUPOOL_VERSION,
		gp_state.config.pool == GP_CONFIG_POOL_AUTO ? "auto" : gp_kind_name(gp_state_kind()),
		gp_backend_name(gp_state.config.backend));
	gp_serial_report();
}

void gp_process_start_slow(void)
{
	int cancel_state;

	if (atomic_exchange(&gp_process_is_started, true))
		return;
	/* No other thread will start the library, so this thread must not be cancelled before it has. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	gp_thread_watch_exit();
	is_starting = true;
	start();
	is_starting = false;
	pthread_setcancelstate(cancel_state, NULL);
}
