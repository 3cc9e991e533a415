/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat status. */

#include "stat_commands.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/size.h"
#include "tools/answer/stat_async.h"
#include "tools/answer/stat_rate.h"
#include "tools/answer/stat_sleep.h"
#include "tools/answer/stat_spill.h"
#include "tools/ask/stat_report.h"
#include "tools/ask/stat_watch.h"
#include "tools/text/stat_text.h"
#include "stat_overview.h"
#include "stat_query.h"
#include "stat_show.h"

/* Prints a line of the list below the title: a name, a value and a note. */
static void print_line(const char *name, const char *value, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void print_line(const char *name, const char *value, const char *format, ...)
{
	char text[256], note[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	stat_clean(note, sizeof(note), text);
	printf("  %-16s %10s%s%s\n", name, value, *note ? "  " : "", note);
}

/* Writes a number of bytes, or "-" if the process does not know it. */
static const char *bytes(const json_t *object, const char *key, char text[static STAT_TEXT_MAX])
{
	uint64_t value;

	if (stat_reply_u64(object, key, &value))
		stat_bytes(text, value);
	else
		strcpy(text, "-");
	return text;
}

static void print_device_name(const json_t *device)
{
	const char *uuid = json_string_value(json_object_get(device, "uuid"));
	char clean[64];

	stat_clean(clean, sizeof(clean), uuid ? uuid : "");
	printf("device %" PRIu64 "%s%s\n", stat_reply_u64_or_0(device, "index"), *clean ? "  " : "", clean);
}

/* Prints the three lines of CUDA.jl's memory_status(), in its own words, below the name of the device. */
static void print_julia(const json_t *device, const char *pool)
{
	uint64_t total, free_bytes, used = stat_reply_u64_or_0(device, "used_bytes");
	uint64_t idle = stat_reply_u64_or_0(device, "unused_bytes");
	uint64_t taken = stat_reply_u64_or_0(device, "total_bytes") + stat_reply_u64_or_0(device, "unpooled_bytes") -
			 stat_reply_u64_or_0(device, "spilled_bytes");
	char a[STAT_TEXT_MAX], b[STAT_TEXT_MAX], c[STAT_TEXT_MAX], name[STAT_TEXT_MAX];

	print_device_name(device);
	if (stat_reply_u64(device, "device_total_bytes", &total) && total &&
		stat_reply_u64(device, "device_free_bytes", &free_bytes) && free_bytes <= total) {
		stat_bytes_julia(a, total - free_bytes);
		stat_bytes_julia(b, total);
		printf("  Effective GPU memory usage: %.2f%% (%s/%s)\n",
			100.0 * (double)(total - free_bytes) / (double)total, a, b);
	}
	stat_bytes_julia(a, taken);
	printf("  CUDA GPU memory usage: %s\n", a);
	stat_clean(name, sizeof(name), strcmp(pool, "none") ? pool : "no");
	if (name[0] >= 'a' && name[0] <= 'z')
		name[0] = (char)(name[0] - 'a' + 'A');
	stat_bytes_julia(a, used + idle);
	stat_bytes_julia(b, used);
	stat_bytes_julia(c, idle);
	printf("  %sPool usage: %s (%s allocated, %s cached)\n", name, a, b, c);
}

static void print_pool(const json_t *counters)
{
	char a[STAT_TEXT_MAX], b[STAT_TEXT_MAX];
	uint64_t used = stat_reply_u64_or_0(counters, "n_used_blocks");
	uint64_t cached = stat_reply_u64_or_0(counters, "n_cached_blocks");
	uint64_t pending = stat_reply_u64_or_0(counters, "n_pending_blocks");

	print_line("used", bytes(counters, "used_bytes", a), "%" PRIu64 " block%s, %s requested", used,
		stat_plural(used), bytes(counters, "requested_bytes", b));
	print_line("cached", bytes(counters, "cached_bytes", a), "%" PRIu64 " block%s", cached, stat_plural(cached));
	print_line(
		"pending", bytes(counters, "pending_bytes", a), "%" PRIu64 " block%s", pending, stat_plural(pending));
	print_line("returning", bytes(counters, "returning_bytes", a), "%s", "");
}

static void print_outside(const json_t *device)
{
	char a[STAT_TEXT_MAX], b[STAT_TEXT_MAX], note[160] = "";
	uint64_t unpooled = stat_reply_u64_or_0(device, "unpooled_bytes");
	uint64_t kept = stat_reply_u64_or_0(device, "unpooled_cached_bytes");

	stat_bytes(a, unpooled);
	stat_bytes(b, kept);
	if (kept)
		snprintf(note, sizeof(note), "%s of it by this process, not pooled, and %s kept mapped", a, b);
	else if (unpooled)
		snprintf(note, sizeof(note), "%s of it by this process, not pooled", a);
	print_line("outside gpupool", bytes(device, "outside_bytes", a), "%s", note);
	print_line("free", bytes(device, "device_free_bytes", a), "of %s", bytes(device, "device_total_bytes", note));
}

static void print_total(const json_t *counters)
{
	char a[STAT_TEXT_MAX], b[STAT_TEXT_MAX];
	uint64_t limit;

	print_line("total", bytes(counters, "total_bytes", a), "taken from the driver");
	if (stat_reply_u64_or_0(counters, "spilled_bytes"))
		print_line("in host memory", bytes(counters, "spilled_bytes", a), "of the total (GPUPOOL_SPILL)");
	if (stat_reply_u64(counters, "limit_bytes", &limit))
		stat_bytes(a, limit);
	else
		strcpy(a, "none");
	print_line("limit", a, "%s", "");
	print_line("peak", bytes(counters, "peak_total_bytes", a), "%s used", bytes(counters, "peak_used_bytes", b));
}

static void print_group(const json_t *device)
{
	const json_t *group = json_object_get(device, "group");
	uint64_t members = stat_reply_u64_or_0(group, "n_members");
	char reserved[STAT_TEXT_MAX], limit[STAT_TEXT_MAX], name[64], problem[160];

	if (!json_is_object(group))
		return;
	stat_clean(name, sizeof(name), stat_reply_text(group, "name"));
	stat_clean(problem, sizeof(problem), stat_reply_text(group, "problem"));
	bytes(group, "limit_bytes", limit);
	bytes(group, "reserved_bytes", reserved);
	if (json_is_string(json_object_get(group, "problem")))
		print_line("group", "-", "cannot join %s '%s': %s", stat_reply_text(group, "kind"), name, problem);
	else
		print_line("group", reserved, "of %s, held by %" PRIu64 " process%s of %s '%s'", limit, members,
			members == 1 ? "" : "es", stat_reply_text(group, "kind"), name);
}

static void print_calls(const json_t *counters)
{
	uint64_t hits = stat_reply_u64_or_0(counters, "hits");
	uint64_t misses = stat_reply_u64_or_0(counters, "misses");
	uint64_t allocs = stat_reply_u64_or_0(counters, "driver_allocs");
	uint64_t frees = stat_reply_u64_or_0(counters, "driver_frees");
	uint64_t moves = stat_reply_u64_or_0(counters, "moves");
	double n = (double)hits + (double)misses;
	char moved[STAT_TEXT_MAX] = "";
	char text[STAT_TEXT_MAX], time[STAT_TEXT_MAX];

	snprintf(text, sizeof(text), "%.1f%%", n > 0 ? 100.0 * (double)hits / n : 0);
	print_line("hits", n > 0 ? text : "-", "%" PRIu64 " hit%s, %" PRIu64 " miss%s", hits, stat_plural(hits), misses,
		misses == 1 ? "" : "es");
	snprintf(text, sizeof(text), "%" PRIu64, allocs + frees + moves);
	if (moves)
		snprintf(moved, sizeof(moved), "%" PRIu64 " move%s, ", moves, stat_plural(moves));
	stat_duration(time, stat_reply_u64_or_0(counters, "driver_ns"));
	print_line("driver calls", text, "%" PRIu64 " alloc%s, %" PRIu64 " free%s, %s%s", allocs, stat_plural(allocs),
		frees, stat_plural(frees), moved, time);
	snprintf(text, sizeof(text), "%" PRIu64, stat_reply_u64_or_0(counters, "fence_records"));
	print_line("fences", text, "%" PRIu64 " GPU waits, %" PRIu64 " polled, %" PRIu64 " host waits",
		stat_reply_u64_or_0(counters, "fence_orders"), stat_reply_u64_or_0(counters, "fence_queries"),
		stat_reply_u64_or_0(counters, "fence_waits"));
}

/* Prints what happened since the answer before, unless there is none. */
static void print_rates(const json_t *counters, const json_t *before, uint64_t elapsed_ns)
{
	char allocs[STAT_TEXT_MAX], misses[STAT_TEXT_MAX], calls[STAT_TEXT_MAX];
	struct stat_rates rates;

	stat_rates_of(&rates, counters, before, elapsed_ns);
	if (rates.allocs < 0)
		return;
	stat_rate_text(allocs, rates.allocs);
	stat_rate_text(misses, rates.misses);
	stat_rate_text(calls, rates.driver_calls);
	print_line("per second", allocs, "allocations, %s misses, %s driver calls, %.1f%% of the time in them", misses,
		calls, 100 * rates.driver_share);
}

/* Prints the counters of errors, but only those that are not 0. */
static void print_problems(const json_t *counters)
{
	static const struct {
		const char *key, *name, *note;
	} problems[] = {
		{"ooms", "out of memory", "errors that reached the program"},
		{"double_frees", "double frees", "of a block that was already free"},
		{"invalid_frees", "invalid frees", "of a pointer inside a block"},
		{"release_errors", "release errors", "of the driver, while memory was given back"},
	};

	for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
		uint64_t n = stat_reply_u64_or_0(counters, problems[i].key);
		char text[STAT_TEXT_MAX];

		snprintf(text, sizeof(text), "%" PRIu64, n);
		if (n)
			print_line(problems[i].name, text, "%s", problems[i].note);
	}
}

/* Prints the steps that served requests, unless a single step served all of them. */
static void print_steps(const json_t *counters)
{
	const json_t *steps = json_object_get(counters, "steps"), *step;
	char count[STAT_TEXT_MAX], share[STAT_TEXT_MAX], time[STAT_TEXT_MAX], name[64], clean[17];
	uint64_t total = 0, n_used = 0;
	size_t i;

	json_array_foreach(steps, i, step) {
		total += stat_reply_u64_or_0(step, "count");
		n_used += stat_reply_u64_or_0(step, "count") != 0;
	}
	if (n_used < 2)
		return;
	json_array_foreach(steps, i, step) {
		uint64_t n = stat_reply_u64_or_0(step, "count"), ns = stat_reply_u64_or_0(step, "ns");

		if (!n)
			continue;
		snprintf(name, sizeof(name), "from %.32s", stat_reply_text(step, "name"));
		stat_clean(clean, sizeof(clean), name);
		snprintf(count, sizeof(count), "%" PRIu64, n);
		snprintf(share, sizeof(share), "%.1f%%", 100.0 * (double)n / (double)total);
		stat_duration(time, ns);
		print_line(clean, count, "allocation%s, %s%s%s", stat_plural(n), share, ns ? ", " : "", ns ? time : "");
	}
}

static void print_retries(const json_t *counters)
{
	const json_t *retries = json_object_get(counters, "retries"), *retry;
	char count[STAT_TEXT_MAX], gained[STAT_TEXT_MAX], time[STAT_TEXT_MAX], name[64], clean[17];
	size_t i;

	json_array_foreach(retries, i, retry) {
		uint64_t n = stat_reply_u64_or_0(retry, "count");

		if (!n)
			continue;
		snprintf(name, sizeof(name), "retry %" PRIu64 " %.32s", stat_reply_u64_or_0(retry, "round"),
			stat_reply_text(retry, "name"));
		stat_clean(clean, sizeof(clean), name);
		snprintf(count, sizeof(count), "%" PRIu64, n);
		stat_duration(time, stat_reply_u64_or_0(retry, "ns"));
		print_line(clean, count, "time%s, %s gained, %s", stat_plural(n), bytes(retry, "gained_bytes", gained),
			time);
	}
}

static void print_counters(const json_t *counters, const json_t *before, uint64_t elapsed_ns)
{
	print_calls(counters);
	print_rates(counters, before, elapsed_ns);
	print_steps(counters);
	print_problems(counters);
	print_retries(counters);
}

/* Prints how much memory was given back for other processes, if any. */
static void print_yields(const json_t *device)
{
	uint64_t n = stat_reply_u64_or_0(device, "yields");
	char count[STAT_TEXT_MAX], given[STAT_TEXT_MAX];

	if (!n)
		return;
	snprintf(count, sizeof(count), "%" PRIu64, n);
	print_line("yielded", count, "time%s, %s for other processes", stat_plural(n),
		bytes(device, "yielded_bytes", given));
}

/* Reports broken contexts. Their memory stays until the program resets them: the driver takes nothing back. */
static void print_broken(const json_t *device)
{
	uint64_t n = stat_reply_u64_or_0(device, "broken_contexts");

	if (n)
		printf("  pooling has ended for %" PRIu64 " of %" PRIu64 " contexts after driver error %" PRIu64
		       ", until a reset\n",
			n, stat_reply_u64_or_0(device, "contexts"), stat_reply_u64_or_0(device, "broken_by"));
}

static void print_device(const json_t *device, const struct stat_process *process)
{
	print_device_name(device);
	print_broken(device);
	print_pool(device);
	print_outside(device);
	print_total(device);
	print_group(device);
	print_counters(device, stat_rate_device_before(process->before, device),
		stat_rate_elapsed_ns(process->reply, process->before));
	print_yields(device);
}

static void print_debug(const json_t *debug)
{
	uint64_t errors = stat_reply_u64_or_0(debug, "errors"), checks = stat_reply_u64_or_0(debug, "checks");

	if (!json_is_object(debug))
		return;
	printf("memory debugging is on: %" PRIu64 " error%s, %" PRIu64 " check%s, %" PRIu64 " skipped%s\n", errors,
		stat_plural(errors), checks, stat_plural(checks), stat_reply_u64_or_0(debug, "skipped"),
		errors ? "; gpupool-stat debug shows them" : "");
}

/* Names the frameworks that take their memory from gpupool through a pool of their own. */
static void print_own_pools(const json_t *frameworks)
{
	const json_t *framework;
	char name[64];
	size_t i;

	json_array_foreach(frameworks, i, framework) {
		if (!json_is_true(json_object_get(framework, "own_pool")))
			continue;
		stat_clean(name, sizeof(name), stat_reply_text(framework, "name"));
		printf("%s's own pool is in front of gpupool%s\n", name,
			json_is_string(json_object_get(framework, "switch")) ? " (gpupool-run --own-pools=off)" : "");
	}
}

/* Writes ", backend managed", with the backend of the first device, or "" if it is the default, "device". */
static void name_backend(char text[static STAT_TEXT_MAX], const json_t *reply)
{
	const json_t *device = json_array_get(json_object_get(reply, "devices"), 0);
	const char *backend = json_string_value(json_object_get(device, "backend"));

	text[0] = '\0';
	if (backend && strcmp(backend, "device") != 0)
		snprintf(text, STAT_TEXT_MAX, ", backend %.12s", backend);
}

/* Prints why a device has another pool type than the settings ask for. */
static void print_pool_reasons(const json_t *devices)
{
	char text[256], clean[256];
	const json_t *device;
	size_t i;

	json_array_foreach(devices, i, device) {
		const char *reason = json_string_value(json_object_get(device, "pool_reason"));

		if (!reason)
			continue;
		snprintf(text, sizeof(text), "device %" PRIu64 ": pool type %.32s, since %s",
			stat_reply_u64_or_0(device, "index"), stat_reply_text(device, "pool"), reason);
		stat_clean(clean, sizeof(clean), text);
		puts(clean);
	}
}

/* Prints where the program could not share memory by legacy IPC, and what to do. */
static void print_export_errors(const json_t *devices)
{
	const json_t *device;
	uint64_t error;
	size_t i;

	json_array_foreach(devices, i, device) {
		error = stat_reply_u64_or_0(device, "export_error");
		if (error)
			printf("device %" PRIu64
			       ": the driver refuses to share memory with other processes (error %" PRIu64
			       "): use --pool=split\n",
				stat_reply_u64_or_0(device, "index"), error);
	}
}

/* Prints whether the process is asleep, what stays on the device, and what it keeps in host memory. */
static void print_sleep(const json_t *reply)
{
	uint64_t kept = stat_reply_u64_or_0(json_object_get(reply, "sleep"), "kept_host_bytes");
	char host[STAT_TEXT_MAX], text[STAT_SLEEP_MAX];

	stat_bytes(host, kept);
	if (kept)
		printf("%s of host memory are kept for the next sleep\n", host);
	stat_sleep_sentence(text, reply);
	if (*text)
		puts(text);
	for (size_t i = 0; stat_sleep_fact(text, reply, i); i++)
		puts(text);
}

/* Prints how much memory is in the host, what that costs, and why some could not move. */
static void print_spill(const json_t *reply)
{
	char text[STAT_SPILL_MAX];

	for (size_t i = 0; stat_spill_fact(text, reply, i); i++)
		puts(text);
}

/* Prints what the pool has served in stream order, and why the rest was left to the driver. */
static void print_async(const json_t *reply)
{
	char text[STAT_ASYNC_MAX];

	for (size_t i = 0; stat_async_fact(text, reply, i); i++)
		printf("%s%s\n", i ? "  " : "", text);
}

static void print_facts(const json_t *reply)
{
	char age[STAT_TEXT_MAX], backend[STAT_TEXT_MAX], text[256], clean[256];
	const char *bypass = json_string_value(json_object_get(reply, "bypass"));

	stat_age(age, stat_reply_u64_or_0(reply, "uptime_ns"));
	name_backend(backend, reply);
	snprintf(text, sizeof(text), "up %s, pool %.32s%s, reuse %.32s, gpupool %.32s", age,
		stat_reply_text(reply, "pool"), backend, stat_reply_text(reply, "reuse"),
		stat_reply_text(reply, "version"));
	stat_clean(clean, sizeof(clean), text);
	puts(clean);
	if (json_is_string(json_object_get(reply, "limit_variables"))) {
		stat_clean(clean, sizeof(clean), stat_reply_text(reply, "limit_variables"));
		printf("the limit is that of %s, since GPUPOOL_LIMIT was not set\n", clean);
	}
	print_pool_reasons(json_object_get(reply, "devices"));
	print_export_errors(json_object_get(reply, "devices"));
	print_sleep(reply);
	print_spill(reply);
	print_async(reply);
	if (stat_reply_u64_or_0(reply, "defer_scopes"))
		puts("flushes of freed memory are deferred");
	if (stat_reply_u64_or_0(reply, "regions"))
		printf("regions: %" PRIu64 "; gpupool-stat region shows them\n", stat_reply_u64_or_0(reply, "regions"));
	print_own_pools(json_object_get(reply, "frameworks"));
	print_debug(json_object_get(reply, "debug"));
	if (!bypass)
		return;
	stat_clean(clean, sizeof(clean), bypass);
	printf("gpupool is bypassed, and all calls go to the driver: %s\n", clean);
}

static void print_pinned(const struct stat_process *process)
{
	const json_t *pinned = json_object_get(process->reply, "pinned");

	if (!json_is_object(pinned))
		return;
	puts("\npinned memory");
	print_pool(pinned);
	print_total(pinned);
	print_counters(pinned, json_object_get(process->before, "pinned"),
		stat_rate_elapsed_ns(process->reply, process->before));
}

static void print_callers(const json_t *callers)
{
	if (!json_array_size(callers))
		return;
	puts("\nheld by");
	stat_show_callers(callers);
}

void stat_status_show(const struct stat_process *process, const struct stat_options *options)
{
	const json_t *devices = json_object_get(process->reply, "devices"), *device;
	size_t n = json_array_size(devices), i;

	stat_report_title(process, stat_reply_text(process->reply, "command"));
	if (!options->is_julia)
		print_facts(process->reply);
	json_array_foreach(devices, i, device) {
		if (i == GP_LIMIT_DEVICES_MAX) {
			printf("\nand %zu more devices than a process can have\n", n - i);
			break;
		}
		if (!options->is_julia)
			putchar('\n');
		if (options->is_julia)
			print_julia(device, stat_reply_text(process->reply, "pool"));
		else
			print_device(device, process);
	}
	if (options->is_julia)
		return;
	print_pinned(process);
	print_callers(json_object_get(process->reply, "callers"));
}

struct shown {
	const struct stat_command *command;
	const struct stat_options *options;
};

/* Shows the only process in full, or several in one table if the user named neither a command nor a process. */
static enum stat_exit show_answers(void *arg, struct stat_survey *survey)
{
	const struct shown *shown = arg;
	size_t n = 0;

	for (size_t i = 0; i < survey->n_processes; i++)
		n += survey->processes[i].reply != NULL;
	if (shown->options->is_json)
		stat_command_print_json(survey, shown->command, shown->options);
	else if (n > 1 && shown->options->is_overview && !shown->options->is_julia)
		stat_overview_show(survey);
	else
		stat_command_show(survey, shown->command, shown->options);
	return stat_report_errors(survey, shown->options);
}

enum stat_exit stat_status_run(const struct stat_command *command, const struct stat_options *options)
{
	struct stat_question question = stat_command_question(command, options, "status\n");

	struct shown shown = {command, options};

	if (options->query || options->format)
		return stat_query_run(&question, options, STAT_QUERY_DEVICES);
	/* To add up the blocks of each caller, the process must look at all of them, which is too much to repeat. */
	if (!options->watch_ms)
		question.request = "status callers\n";
	question.keeps = STAT_KEEPS_BEFORE;
	return stat_watch(&question, options, show_answers, &shown);
}
