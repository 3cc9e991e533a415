/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * No thread of the program does anything for a summary: its allocations and frees count what they always count. With a
 * page, a separate thread adds the counters up, first after FIRST_MS, then at intervals that double up to LAST_MS, and
 * once more when the exit handler asks for it. A process that ends by _exit(), exec() or a signal runs no handler, and
 * then the page has the figures of the last interval.
 *
 * The counters of a pool end with its context, so they are kept when a context ends.
 */

#include "own_summary.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/compat.h"
#include "common/ctl_proto.h"
#include "frameworks.h"
#include "shim/base/clock.h"
#include "shim/base/fork.h"
#include "shim/base/own_thread.h"
#include "shim/context/context.h"

enum {
	FIRST_MS = 50,
	LAST_MS = 1000,
	EXIT_WAIT_MS = 100,
	EXIT_WAITS = 10,
};

/* The counters of the pools of ended contexts, and their highest peaks. */
struct ended {
	struct gp_stats device, pinned;
	uint64_t peaks[GP_DEVICES_MAX];
};

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF); /* guards the next two */
static struct ended ended;
static bool is_vmm_better;
static _Atomic uint64_t n_ooms;

static struct gp_summary_page *page;
static struct gp_summary_slot *slot; /* NULL: this process has none; only one thread at a time writes to it */
static pid_t owner;
static bool has_thread;
static _Atomic unsigned exit_state; /* a futex: one of enum exit_state */
enum exit_state { RUNNING, EXITING, DONE };

struct gathered {
	struct gp_stats device, pinned;
	uint64_t peaks[GP_DEVICES_MAX]; /* of the contexts that live */
};

static void add_pool(void *arg, struct gp_pool *pool)
{
	struct gp_stats stats;

	gp_pool_stats(pool, &stats);
	gp_stats_add(arg, &stats);
}

static void add_context(struct gp_context *context, struct gp_stats *device, struct gp_stats *pinned)
{
	gp_context_each_pool(context, add_pool, device);
	gp_context_each_pinned(context, add_pool, pinned);
}

/* The sum of the peaks of several pools is an upper bound of the peak of the device. */
static void add_live(void *arg, struct gp_context *context)
{
	struct gathered *gathered = arg;
	struct gp_stats device = {0};

	if (gp_context_is(context, GP_CONTEXT_DEAD))
		return;
	add_context(context, &device, &gathered->pinned);
	gathered->peaks[context->device->index] += device.peak_total_bytes;
	gp_stats_add(&gathered->device, &device);
}

static void keep_ended(CUcontext handle, struct gp_context *context)
{
	struct gp_stats device = {0}, pinned = {0};
	uint64_t *peak;

	if (!context)
		return;
	add_context(context, &device, &pinned);
	gp_mutex_lock(&lock);
	gp_stats_add(&ended.device, &device);
	gp_stats_add(&ended.pinned, &pinned);
	peak = &ended.peaks[context->device->index];
	*peak = gp_max(*peak, device.peak_total_bytes);
	gp_mutex_unlock(&lock);
}

/* Adds the figures of device memory, or of pinned memory. */
static void add_stats(struct gp_summary *summary, const struct gp_stats *stats)
{
	const struct gp_step_stats *cold = &stats->steps[GP_STEP_grow];
	uint64_t allocations = stats->hits + stats->misses;
	uint64_t made = stats->driver_allocs + stats->driver_frees;
	uint64_t without = allocations + (allocations - gp_min(stats->n_used_blocks, allocations));

	summary->allocations += allocations;
	summary->hits += stats->hits;
	summary->calls_made += made;
	summary->calls_saved += without - gp_min(made, without);
	if (cold->count < GP_SUMMARY_COLD_MIN)
		return;
	summary->cold_allocs += cold->count;
	summary->saved_ns += stats->hits * cold->fastest_ns;
}

/* Stores the peak of the device that came nearest to its limit; without limits, the highest peak. */
static void add_peaks(struct gp_summary *summary, const uint64_t peaks[static GP_DEVICES_MAX])
{
	double nearest = -1;

	summary->limit_bytes = UINT64_MAX;
	for (int i = 0; i < GP_DEVICES_MAX; i++) {
		const struct gp_device *device = gp_device_if_used(i);
		uint64_t limit = device ? atomic_load(&device->budget.limit_bytes) : UINT64_MAX;
		double share = (double)peaks[i] / (double)gp_max(limit, 1);

		if (!peaks[i])
			continue;
		summary->devices++;
		if (share <= nearest)
			continue;
		nearest = share;
		summary->device = (uint64_t)i;
		summary->peak_bytes = peaks[i];
		summary->limit_bytes = limit;
	}
}

void gp_own_summary_take(struct gp_summary *ret)
{
	struct gathered gathered = {0};
	const char *framework = gp_frameworks_own_pool();

	*ret = (struct gp_summary){.stage = GP_SUMMARY_ALLOCATED};
	snprintf(ret->own_pool, sizeof(ret->own_pool), "%s", framework ? framework : "");
	gp_context_each(add_live, &gathered);
	gp_mutex_lock(&lock);
	gp_stats_add(&gathered.device, &ended.device);
	gp_stats_add(&gathered.pinned, &ended.pinned);
	for (int i = 0; i < GP_DEVICES_MAX; i++)
		gathered.peaks[i] = gp_max(gathered.peaks[i], ended.peaks[i]);
	ret->is_vmm_better = is_vmm_better;
	gp_mutex_unlock(&lock);
	add_stats(ret, &gathered.device);
	add_stats(ret, &gathered.pinned);
	add_peaks(ret, gathered.peaks);
	ret->pinned_peak_bytes = gathered.pinned.peak_total_bytes;
	ret->ooms = atomic_load(&n_ooms);
	ret->written_ns = gp_clock_now_ns(NULL);
}

void gp_own_summary_note_oom(bool would_vmm_help)
{
	atomic_fetch_add(&n_ooms, 1);
	gp_mutex_lock(&lock);
	is_vmm_better = would_vmm_help;
	gp_mutex_unlock(&lock);
}

/* Writes to the copy that no reader uses, then makes it the newest. */
static void publish(const struct gp_summary *summary)
{
	uint64_t count = atomic_load_explicit(&slot->count, memory_order_relaxed) + 1;

	slot->copies[count % 2] = *summary;
	atomic_store_explicit(&slot->count, count, memory_order_release);
}

static void write_figures(enum gp_summary_stage stage)
{
	struct gp_summary summary;

	gp_own_summary_take(&summary);
	summary.stage = stage;
	publish(&summary);
}

/* Sleeps while the state stays as it is, at most for that time. A signal handler ends the sleep as well. */
static void wait_in_state(enum exit_state state, unsigned ms)
{
	const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	(void)syscall(SYS_futex, &exit_state, FUTEX_WAIT_PRIVATE, (unsigned)state, &time, NULL, 0);
}

static void enter_state(enum exit_state state)
{
	atomic_store(&exit_state, state);
	(void)syscall(SYS_futex, &exit_state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *keep_current(void *unused)
{
	for (unsigned ms = FIRST_MS; atomic_load(&exit_state) == RUNNING; ms = ms * 2 < LAST_MS ? ms * 2 : LAST_MS) {
		wait_in_state(RUNNING, ms);
		if (atomic_load(&exit_state) == RUNNING)
			write_figures(GP_SUMMARY_ALLOCATED);
	}
	write_figures(GP_SUMMARY_FINAL);
	enter_state(DONE);
	return NULL;
}

/*
 * exit() may be called anywhere, even in a signal handler, while a thread that never runs again holds a lock. So the
 * separate thread writes the figures, and this waits for it for a bounded time.
 */
static void write_at_exit(void)
{
	int saved_errno = errno;

	if (!has_thread || getpid() != owner)
		return;
	enter_state(EXITING);
	for (int i = 0; i < EXIT_WAITS && atomic_load(&exit_state) != DONE; i++)
		wait_in_state(EXITING, EXIT_WAIT_MS);
	errno = saved_errno;
}

/* Opens the descriptor of gpupool-run, if it is a page that cannot become smaller. Returns a descriptor, or -1. */
static int open_page(uint64_t pid, uint64_t fd)
{
	char path[64];
	struct statx st;
	int probe, opened, seals;

	snprintf(path, sizeof(path), "/proc/%u/fd/%u", (unsigned)pid, (unsigned)fd);
	/* The process may have another number by now. Opening a device or a fifo of another process could change it. */
	probe = open(path, O_PATH | O_CLOEXEC);
	if (probe < 0)
		return -1;
	if (statx(probe, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &st) < 0 || !S_ISREG(st.stx_mode) ||
		st.stx_size != sizeof(struct gp_summary_page)) {
		close(probe);
		return -1;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", probe);
	opened = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	close(probe);
	seals = opened < 0 ? -1 : fcntl(opened, F_GET_SEALS);
	if (opened >= 0 && (seals < 0 || !(seals & F_SEAL_SHRINK))) {
		close(opened);
		return -1;
	}
	return opened;
}

/* Reads "PID.FD.KEY". */
static bool parse(const char *text, uint64_t *pid, uint64_t *fd, uint64_t *key)
{
	text = gp_ctl_parse_digits(text, pid);
	if (!text || *text++ != '.')
		return false;
	text = gp_ctl_parse_digits(text, fd);
	if (!text || *text++ != '.')
		return false;
	text = gp_ctl_parse_digits(text, key);
	return text && !*text && *pid <= INT32_MAX && *fd <= INT32_MAX;
}

static struct gp_summary_page *map_page(void)
{
	const char *text = gp_config_variable(GP_SUMMARY_VARIABLE);
	struct gp_summary_page *mapped;
	uint64_t pid, fd, key;
	int opened;

	if (!text || !parse(text, &pid, &fd, &key))
		return NULL;
	opened = open_page(pid, fd);
	if (opened < 0)
		return NULL;
	mapped = mmap(NULL, sizeof(*mapped), PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
	close(opened);
	if (mapped == MAP_FAILED)
		return NULL;
	if (mapped->magic == GP_SUMMARY_MAGIC && mapped->version == GP_SUMMARY_VERSION &&
		mapped->bytes == sizeof(*mapped) && mapped->key == key)
		return mapped;
	munmap(mapped, sizeof(*mapped));
	return NULL;
}

static void claim_slot(void)
{
	const struct gp_summary first = {.stage = GP_SUMMARY_CUDA, .written_ns = gp_clock_now_ns(NULL)};
	uint64_t n;

	if (!page || slot)
		return;
	n = atomic_fetch_add(&page->n_claimed, 1);
	if (n >= GP_SUMMARY_SLOTS)
		return;
	owner = getpid();
	slot = &page->slots[n];
	atomic_store(&slot->pid, (uint64_t)owner);
	publish(&first);
}

/* A child that uses CUDA itself takes a slot of its own. */
static void forget_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
	slot = NULL;
	has_thread = false;
	ended = (struct ended){0};
	is_vmm_better = false;
	atomic_store(&n_ooms, 0);
	atomic_store(&exit_state, RUNNING);
}

static bool is_reported(void)
{
	return strncmp(gp_state.config.report, "summary", strlen("summary")) == 0;
}

void gp_own_summary_set_up(void)
{
	static struct gp_context_watcher watcher = {.ended = keep_ended};
	static const struct gp_fork_child child = {.fn = forget_in_child};
	int saved_errno = errno, cancel_state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	page = map_page();
	if (page || is_reported()) {
		gp_fork_on_child(&child);
		gp_context_watch(&watcher);
	}
	claim_slot();
	pthread_setcancelstate(cancel_state, NULL);
	errno = saved_errno;
}

void gp_own_summary_start(void)
{
	static bool is_registered; /* a forked child keeps the handlers of its parent */

	claim_slot();
	if (!slot)
		return;
	write_figures(GP_SUMMARY_ALLOCATED);
	if (gp_own_thread_start(keep_current, NULL, GP_STACK_SMALL))
		return;
	has_thread = true;
	if (!is_registered)
		is_registered = atexit(write_at_exit) == 0;
}
