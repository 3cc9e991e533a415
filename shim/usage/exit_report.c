/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * exit() may be called anywhere, even in a signal handler, while a thread that never runs again holds a lock. So a
 * separate thread makes the report, and the exit handler waits for that thread for at most WAITS * WAIT_NS.
 */

#include "exit_report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/file.h"
#include "common/own_pools.h"
#include "frameworks.h"
#include "leaks.h"
#include "own_summary.h"
#include "shim/backend/async_left.h"
#include "shim/base/log.h"
#include "shim/base/own_thread.h"
#include "shim/debug/debug.h"
#include "shim/trace/module.h"
#include "shim/trace/stack_text.h"
#include "totals.h"

enum {
	WAIT_NS = 1000000,
	WAITS = 3000,
	SITES_SHOWN = 10,
	CALLERS_SHOWN = 64,
	LINE_SIZE = 1024,
};

typedef char amount[GP_AMOUNT_TEXT_MAX];

static const char *file_template; /* NULL: the report goes where log lines go */
static int file = -1;
static pid_t owner;
static bool is_summary; /* else a report of held memory */
static _Atomic bool is_done;

__attribute__((format(printf, 1, 2))) static void print(const char *format, ...)
{
	char line[LINE_SIZE];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (file < 0) {
		gp_log_tell("%s", line);
		return;
	}
	n = (int)gp_min((uint64_t)n, sizeof(line) - 2);
	line[n++] = '\n';
	(void)gp_file_write(file, line, (size_t)n);
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

static void print_rounds(const struct gp_stats *stats)
{
	amount yielded;

	for (int i = 0; i < GP_N_ROUNDS; i++)
		if (stats->rounds[i].count && i != GP_ROUND_fail)
			print("    retry round %s: ran %" PRIu64 " time%s, gained %s, took %" PRIu64 " us",
				gp_round_name((enum gp_round)i), stats->rounds[i].count, plural(stats->rounds[i].count),
				gp_yield_text(yielded, stats->rounds[i].gained_bytes), stats->rounds[i].ns / 1000);
}

static void print_totals_of(const char *name, const struct gp_stats *stats)
{
	amount used, peak_used, total, peak_total;

	if (!stats->hits && !stats->misses)
		return;
	print("  %s: used %s (peak %s), taken from the driver %s (peak %s)", name,
		gp_amount_text(used, stats->used_bytes), gp_amount_text(peak_used, stats->peak_used_bytes),
		gp_amount_text(total, stats->total_bytes), gp_amount_text(peak_total, stats->peak_total_bytes));
	print("    %" PRIu64 " allocation%s, %" PRIu64 " of them needed memory from the driver; %" PRIu64
	      " out-of-memory error%s, %" PRIu64 " double and %" PRIu64 " other invalid frees",
		stats->hits + stats->misses, plural(stats->hits + stats->misses), stats->misses, stats->ooms,
		plural(stats->ooms), stats->double_frees, stats->invalid_frees);
	print_rounds(stats);
}

static void print_totals(void)
{
	struct gp_totals totals;
	char name[32];

	for (int i = 0; i < GP_DEVICES_MAX; i++) {
		if (!gp_device_if_used(i))
			continue;
		snprintf(name, sizeof(name), "device %d", i);
		gp_totals_device(&totals, i, false);
		print_totals_of(name, &totals.stats);
	}
	gp_totals_pinned(&totals);
	print_totals_of("pinned memory", &totals.stats);
}

/* Prints how many allocations in stream order the pool has served, and why others were left to the driver. */
static void print_async(void)
{
	struct gp_totals totals;
	uint64_t served = 0;

	for (int i = 0; i < GP_DEVICES_MAX; i++) {
		if (!gp_device_if_used(i))
			continue;
		gp_totals_device(&totals, i, false);
		served += totals.stats.stream_allocs;
	}
	if (served)
		print("  %" PRIu64 " allocation%s in stream order from the pool", served, plural(served));
	for (int i = GP_ASYNC_LEFT_NONE + 1; i < GP_N_ASYNC_LEFT; i++) {
		uint64_t n = gp_async_left_count((enum gp_async_left)i);

		if (n)
			print("  %" PRIu64 " allocation%s in stream order left to the driver: %s", n, plural(n),
				gp_async_left_words((enum gp_async_left)i));
	}
}

static void print_own_pool(void)
{
	const char *framework = gp_frameworks_own_pool();

	if (framework)
		print("  %s's own pool was in front of gpupool%s", framework, gp_own_pool_remedy(framework));
}

static void print_debug(void)
{
	struct gp_debug_stats stats;

	if (!gp_debug_is_on())
		return;
	gp_debug_stats(&stats);
	print("  writes to memory that the program did not own: %" PRIu64 " found in %" PRIu64 " checks, %" PRIu64
	      " checks skipped",
		stats.errors, stats.checks, stats.skipped);
}

static void print_sites(const struct gp_leaks *leaks)
{
	char stack[GP_STACK_TEXT_MAX];
	amount bytes;

	for (size_t i = 0; i < gp_min(leaks->n_sites, SITES_SHOWN); i++)
		print("  site: %s in %" PRIu64 " block%s: %s", gp_amount_text(bytes, leaks->sites[i].bytes),
			leaks->sites[i].blocks, plural(leaks->sites[i].blocks),
			gp_stack_text(stack, leaks->sites[i].number));
	if (leaks->n_sites > SITES_SHOWN)
		print("  and %zu more site%s", leaks->n_sites - SITES_SHOWN, plural(leaks->n_sites - SITES_SHOWN));
	if (leaks->n_sites && leaks->without.blocks)
		print("  without a stack: %s in %" PRIu64 " block%s", gp_amount_text(bytes, leaks->without.bytes),
			leaks->without.blocks, plural(leaks->without.blocks));
}

static void print_callers(const struct gp_leaks *leaks)
{
	amount bytes;

	for (size_t i = 0; i < gp_min(leaks->n_callers, CALLERS_SHOWN); i++) {
		const struct gp_holders *caller = &leaks->callers[i];
		const char *name = gp_module_name(caller->number);

		print("  library: %s in %" PRIu64 " block%s: %s", gp_amount_text(bytes, caller->bytes), caller->blocks,
			plural(caller->blocks), name ? name : "unknown");
	}
	if (leaks->n_callers > CALLERS_SHOWN)
		print("  and %zu more libraries", leaks->n_callers - CALLERS_SHOWN);
}

static void print_sizes(const struct gp_leaks *leaks)
{
	amount bytes, from;

	for (int i = 63; i >= 0; i--)
		if (leaks->sizes[i].blocks)
			print("  size: %s in %" PRIu64 " block%s of %s and more",
				gp_amount_text(bytes, leaks->sizes[i].bytes), leaks->sizes[i].blocks,
				plural(leaks->sizes[i].blocks), gp_amount_text(from, UINT64_C(1) << i));
}

static void print_summary(void)
{
	struct gp_summary summary;
	struct gp_summary_lines lines = {0};

	gp_own_summary_take(&summary);
	gp_summary_figures(&lines, &summary, false, summary.written_ns);
	gp_summary_advice(&lines, &summary, (uint64_t)owner);
	print("summary of this process, pool type %s", gp_kind_name(gp_device_first_kind()));
	for (unsigned i = 0; i < lines.n; i++)
		print("%s", lines.text[i]);
}

static void *report(void *unused)
{
	struct gp_leaks leaks;
	amount bytes;

	if (is_summary) {
		print_summary();
	} else if (gp_leaks_take(&leaks, 0)) {
		print("at exit the program holds %s in %" PRIu64 " block%s", gp_amount_text(bytes, leaks.bytes),
			leaks.n_blocks, plural(leaks.n_blocks));
		print_totals();
		print_async();
		print_own_pool();
		print_debug();
		print_sites(&leaks);
		print_callers(&leaks);
		print_sizes(&leaks);
		gp_leaks_free(&leaks);
	}
	atomic_store(&is_done, true);
	return NULL;
}

static void open_file(void)
{
	char path[PATH_MAX];

	if (!file_template || !gp_file_expand(path, sizeof(path), file_template))
		return;
	file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0600);
	if (file < 0)
		gp_log_tell("GPUPOOL_REPORT: cannot open %s (error %d); the report follows here", path, errno);
}

static void report_at_exit(void)
{
	const struct timespec wait = {0, WAIT_NS};
	int saved_errno = errno;

	if (getpid() != owner)
		return;
	open_file();
	if (gp_own_thread_start(report, NULL, GP_STACK_SMALL) == 0)
		for (int i = 0; i < WAITS && !atomic_load(&is_done); i++)
			nanosleep(&wait, NULL);
	errno = saved_errno;
}

void gp_exit_report_start(const char *setting)
{
	const char *colon = strchr(setting, ':');

	if (!*setting || owner)
		return;
	is_summary = strncmp(setting, "summary", strlen("summary")) == 0;
	if (colon)
		file_template = colon + 1;
	owner = getpid();
	(void)atexit(report_at_exit);
}
