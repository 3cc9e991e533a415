/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/config.h"
#include "tests/suite.h"

#define GIB       (UINT64_C(1) << 30)
#define LENGTH(a) (sizeof(a) / sizeof(*(a)))
#define REPORTS   8

/* The reports of the parser, as lines of a log. */
struct notes {
	size_t n;
	enum gp_config_problem problem[REPORTS];
	size_t offset[REPORTS];
	char line[REPORTS][GP_CONFIG_MESSAGE_SIZE];
};

static struct gp_config config;
static struct notes notes;

static void note(void *arg, const struct gp_config_report *report)
{
	struct notes *all = arg;

	ck_assert_uint_lt(all->n, REPORTS);
	all->problem[all->n] = report->problem;
	all->offset[all->n] = report->error.offset;
	gp_config_report_format(report, all->line[all->n], sizeof(all->line[0]));
	all->n++;
}

static int parse(const char *const *environment)
{
	memset(&config, 0x55, sizeof(config));
	memset(&notes, 0, sizeof(notes));
	return gp_config_parse(&config, (char *const *)environment, note, &notes);
}

static int parse_one(const char *entry)
{
	char copy[8 * GP_CONFIG_VALUE_SIZE];
	const char *environment[] = {copy, NULL};
	int r;

	snprintf(copy, sizeof(copy), "%s", entry);
	r = parse(environment);
	/* The configuration must not point into the environment, which the program may change. */
	memset(copy, 'x', sizeof(copy));
	return r;
}

static void check_defaults(void)
{
	ck_assert(config.is_enabled);
	ck_assert_int_eq(config.pool, GP_CONFIG_POOL_SPLIT);
	ck_assert_int_eq(config.limit.rest.kind, GP_LIMIT_NONE);
	ck_assert_uint_eq(config.limit.named, 0);
	ck_assert(config.is_pinned_pooled);
	ck_assert_int_eq(config.pinned_limit.kind, GP_LIMIT_NONE);
	ck_assert_uint_eq(config.reserve_bytes, 256 << 20);
	ck_assert_uint_eq(config.pending_count, UINT64_MAX);
	ck_assert_uint_eq(config.pinned_threads, GP_CONFIG_THREADS_AUTO);
	ck_assert_double_eq_tol(config.pending_ratio, 0.2, 1e-12);
	ck_assert_int_eq(config.reuse, GP_CONFIG_REUSE_AUTO);
	ck_assert(!config.is_free_synchronous);
	ck_assert(config.is_vmm_cached);
	ck_assert_uint_eq(config.oom_wait_ms, GP_CONFIG_OOM_WAIT_AUTO);
	ck_assert_int_eq(config.log_level, GP_LOG_WARN);
	ck_assert_str_eq(config.log_file, "stderr");
	ck_assert_uint_eq(config.stacks.depth, 0);
	ck_assert_uint_eq(config.stacks.sample, 1);
	ck_assert(!gp_config_debug_is_on(&config.debug) && !config.debug.full);
	ck_assert_str_eq(config.report, "");
	ck_assert_str_eq(config.runtime_dir, "");
	ck_assert_str_eq(config.limit_error, "");
	ck_assert_str_eq(config.pinned_limit_error, "");
}

START_TEST(an_environment_without_gpupool_variables_gives_the_defaults)
{
	static const char *environments[][4] = {
		{NULL},
		{"HOME=/", "CUDA_VISIBLE_DEVICES=0", NULL},
		{"MYGPUPOOL_LIMIT=8G", "GPUPOOLS=1", "GPUPOOL", NULL},
		{"GPUPOOL_LIMIT=", "GPUPOOL_POOL=", "GPUPOOL=", NULL},
	};

	for (size_t i = 0; i < LENGTH(environments); i++) {
		ck_assert_int_eq(parse(environments[i]), 0);
		ck_assert_uint_eq(notes.n, 0);
		check_defaults();
		for (int option = 0; option < GP_OPTION_COUNT; option++)
			ck_assert_int_eq(config.source[option], GP_CONFIG_DEFAULT);
	}
	ck_assert_int_eq(parse(NULL), 0);
	check_defaults();
}
END_TEST

START_TEST(every_default_is_a_valid_value)
{
	for (int i = 0; i < GP_OPTION_COUNT; i++) {
		const char *text = gp_config_options[i].default_text;
		struct gp_text_error error;
		if (*text)
			ck_assert_msg(gp_config_check((enum gp_option)i, text, &error) == 0,
				"expected the default of %s to be valid", gp_config_options[i].variable);
	}
}
END_TEST

static void check_texts(const char *const *environment)
{
	for (int i = 0; i < GP_OPTION_COUNT; i++) {
		char text[GP_CONFIG_VALUE_SIZE];
		int length = gp_config_value_text(&config, (enum gp_option)i, text, sizeof(text));

		ck_assert_str_eq(text, strchr(environment[i], '=') + 1);
		ck_assert_uint_eq((size_t)length, strlen(text));
		ck_assert_str_eq(gp_config_source_text(&config, (enum gp_option)i), "environment");
	}
}

START_TEST(a_bound_of_host_memory_and_names_of_cold_regions_are_read)
{
	static const char *environment[] = {
		"GPUPOOL_SPILL=32GiB", "GPUPOOL_REGIONS=lib=libfft.so*:fft,cold=opt*", NULL};

	ck_assert_int_eq(parse(environment), 0);
	ck_assert_uint_eq(config.spill_bytes, UINT64_C(32) << 30);
	ck_assert(gp_config_regions_is_cold(&config.regions, "optimizer"));
	ck_assert(!gp_config_regions_is_cold(&config.regions, "fft"));
}
END_TEST

START_TEST(every_variable_is_parsed_and_its_text_is_kept_as_typed)
{
	static const char *environment[] = {"GPUPOOL=yes", "GPUPOOL_POOL=Binned", "GPUPOOL_BACKEND=Managed",
		"GPUPOOL_LIMIT=0=8GiB,1=50%", "GPUPOOL_LIMIT_GROUP=train.2_a-b:0=4GiB,*=25%", "GPUPOOL_VIEW=Own",
		"GPUPOOL_PINNED=no", "GPUPOOL_PINNED_LIMIT=25%", "GPUPOOL_PINNED_THREADS=5", "GPUPOOL_RESERVE=0",
		"GPUPOOL_PENDING_COUNT=0", "GPUPOOL_PENDING_RATIO=50%", "GPUPOOL_THREAD_CACHE=1MiB",
		"GPUPOOL_REUSE=completed", "GPUPOOL_VMM_CACHE=off", "GPUPOOL_SYNC_FREE=1", "GPUPOOL_ASYNC=yes",
		"GPUPOOL_RUNTIME_LAYER=no", "GPUPOOL_OOM_WAIT=1500", "GPUPOOL_YIELD=off", "GPUPOOL_SLEEP=idle:90s",
		"GPUPOOL_SLEEP_HOST=64GiB", "GPUPOOL_SLEEP_PINNED=3MiB", "GPUPOOL_SLEEP_KEEP=on", "GPUPOOL_SPILL=32GiB",
		"GPUPOOL_LOG=debug", "GPUPOOL_LOG_FILE=/tmp/%p.%h.%r.%j.%u.log", "GPUPOOL_RECORD=/tmp/%%%j/%r.rec",
		"GPUPOOL_STACKS=12,sample=100", "GPUPOOL_DEBUG=off",
		"GPUPOOL_REGIONS=nvtx,thread=io*,lib=libfft.so*:fft", "GPUPOOL_REPORT=exit:/tmp/%p.txt",
		"GPUPOOL_OOM_FILE=/tmp/%p.oom", "GPUPOOL_SOCKET=off", "GPUPOOL_RUNTIME_DIR=/run/x",
		"GPUPOOL_CONFIG_DIR=/etc/x", "GPUPOOL_OWN_POOLS=off", NULL};
	uint64_t bytes;

	ck_assert_uint_eq(LENGTH(environment), GP_OPTION_COUNT + 1);
	ck_assert_int_eq(parse(environment), 0);
	ck_assert_uint_eq(notes.n, 0);
	ck_assert(config.is_enabled);
	ck_assert(config.pool == GP_CONFIG_POOL_BINNED && config.backend == GP_CONFIG_BACKEND_MANAGED);
	gp_config_limit_for(&config.limit, 0, 80 * GIB, &bytes);
	ck_assert_uint_eq(bytes, 8 * GIB);
	gp_config_limit_for(&config.limit, 1, 80 * GIB, &bytes);
	ck_assert_uint_eq(bytes, 40 * GIB);
	gp_config_limit_for(&config.limit, 2, 80 * GIB, &bytes);
	ck_assert_uint_eq(bytes, UINT64_MAX);
	ck_assert(config.group.is_on);
	ck_assert_str_eq(config.group.name, "train.2_a-b");
	ck_assert_uint_eq(gp_limit_bytes(gp_limit_list_find(&config.group.limit, 0), 80 * GIB), 4 * GIB);
	ck_assert_uint_eq(gp_limit_bytes(gp_limit_list_find(&config.group.limit, 1), 80 * GIB), 20 * GIB);
	ck_assert_int_eq(config.view, GP_CONFIG_VIEW_OWN);
	ck_assert(!config.is_pinned_pooled);
	ck_assert_uint_eq(gp_limit_bytes(&config.pinned_limit, 64 * GIB), 16 * GIB);
	ck_assert(config.reserve_bytes == 0 && config.pending_count == 0);
	ck_assert_double_eq_tol(config.pending_ratio, 0.5, 1e-12);
	ck_assert_uint_eq(config.thread_cache_bytes, 1 << 20);
	ck_assert_int_eq(config.reuse, GP_CONFIG_REUSE_COMPLETED);
	ck_assert(!config.is_vmm_cached);
	ck_assert(config.is_free_synchronous && config.is_async_pooled && config.is_sleep_memory_kept &&
		  !config.is_runtime_served);
	ck_assert(config.yield == GP_CONFIG_YIELD_OFF && !config.has_socket);
	ck_assert_uint_eq(config.oom_wait_ms, 1500);
	ck_assert(config.log_level == GP_LOG_DEBUG && config.pinned_threads == 5);
	ck_assert(config.sleep_idle_ms == 90000 && config.sleep_host_bytes == UINT64_C(64) << 30);
	ck_assert_uint_eq(config.sleep_pinned_bytes, 3 << 20);
	ck_assert(
		!strcmp(config.log_file, "/tmp/%p.%h.%r.%j.%u.log") && !strcmp(config.record_file, "/tmp/%%%j/%r.rec"));
	ck_assert(config.stacks.depth == 12 && config.stacks.sample == 100 && config.regions.n == 3);
	ck_assert(config.regions.rules[0].way == GP_REGION_BY_NVTX && !strcmp(config.regions.rules[0].pattern, "*"));
	ck_assert_int_eq(config.regions.rules[1].way, GP_REGION_BY_THREAD);
	ck_assert(!strcmp(config.regions.rules[1].pattern, "io*") && !*config.regions.rules[1].name);
	ck_assert_int_eq(config.regions.rules[2].way, GP_REGION_BY_LIBRARY);
	ck_assert(
		!strcmp(config.regions.rules[2].pattern, "libfft.so*") && !strcmp(config.regions.rules[2].name, "fft"));
	ck_assert_str_eq(config.report, "exit:/tmp/%p.txt");
	ck_assert(!strcmp(config.runtime_dir, "/run/x") && !strcmp(config.config_dir, "/etc/x"));
	ck_assert_int_eq(config.own_pools, GP_CONFIG_OWN_POOLS_OFF);
	check_texts(environment);
}
END_TEST

static const struct {
	const char *text, *name;
	uint64_t bytes;
} groups[] = {{"8GiB", "", 8 * GIB}, {"*=8GiB", "", 8 * GIB}, {"a:8GiB", "a", 8 * GIB}, {"50%", "", 40 * GIB},
	{"47111.server:10%", "47111.server", 8 * GIB}};

START_TEST(a_group_has_a_limit_and_optionally_a_name)
{
	char entry[64];

	snprintf(entry, sizeof(entry), "GPUPOOL_LIMIT_GROUP=%s", groups[_i].text);
	ck_assert_int_eq(parse_one(entry), 0);
	ck_assert(config.group.is_on);
	ck_assert_str_eq(config.group.name, groups[_i].name);
	ck_assert_uint_eq(gp_limit_bytes(gp_limit_list_find(&config.group.limit, 3), 80 * GIB), groups[_i].bytes);
	ck_assert_int_eq(parse_one("GPUPOOL_LIMIT_GROUP=None"), 0);
	ck_assert(!config.group.is_on);
}
END_TEST

static const struct {
	const char *text;
	size_t offset;
} bad_groups[] = {{":8GiB", 0}, {"a/b:8GiB", 1}, {"a b:8GiB", 1}, {"a:b:8GiB", 2}, {"a:", 2}, {"a:8GiBx", 6},
	{"8GiBx", 4}, {"a:0", 2}, {"123456789012345678901234567890123456789012345678:8GiB", 47}};

START_TEST(a_bad_group_is_a_limit_of_zero)
{
	char entry[128];

	snprintf(entry, sizeof(entry), "GPUPOOL_LIMIT_GROUP=%s", bad_groups[_i].text);
	ck_assert_int_eq(parse_one(entry), -EINVAL);
	ck_assert(notes.n == 1 && notes.problem[0] == GP_CONFIG_FAILS_CLOSED);
	ck_assert_msg(notes.offset[0] == bad_groups[_i].offset, "%s", notes.line[0]);
	ck_assert_str_eq(config.group_error, notes.line[0]);
	ck_assert(config.group.is_on);
	ck_assert_uint_eq(gp_limit_bytes(gp_limit_list_find(&config.group.limit, 5), 80 * GIB), 0);
}
END_TEST

static const struct {
	const char *text;
	bool is_on;
} switches[] = {{"1", true}, {"on", true}, {"YES", true}, {"true", true}, {"0", false}, {"off", false}, {"No", false},
	{"FALSE", false}};

START_TEST(a_switch_accepts_eight_words_for_on_and_off)
{
	char entry[64];

	snprintf(entry, sizeof(entry), "GPUPOOL=%s", switches[_i].text);
	ck_assert_int_eq(parse_one(entry), 0);
	ck_assert_int_eq(config.is_enabled, switches[_i].is_on);
}
END_TEST

START_TEST(words_are_accepted_in_any_case_for_stacks_and_reports)
{
	ck_assert_int_eq(parse_one("GPUPOOL_STACKS=OFF"), 0);
	ck_assert_uint_eq(config.stacks.depth, 0);
	ck_assert_int_eq(parse_one("GPUPOOL_REPORT=Off"), 0);
	ck_assert_str_eq(config.report, "");
	ck_assert_int_eq(parse_one("GPUPOOL_REPORT=exit"), 0);
	ck_assert_str_eq(config.report, "exit");
	ck_assert_int_eq(parse_one("GPUPOOL_REPORT=Summary"), 0);
	ck_assert_str_eq(config.report, "summary");
	ck_assert_int_eq(parse_one("GPUPOOL_REPORT=summary:/tmp/%p"), 0);
	ck_assert_str_eq(config.report, "summary:/tmp/%p");
	ck_assert_int_eq(parse_one("GPUPOOL_STACKS=On"), 0);
	ck_assert_uint_eq(config.stacks.depth, 16);
	ck_assert_uint_eq(config.stacks.sample, 1);
	ck_assert_int_eq(parse_one("GPUPOOL_STACKS=64"), 0);
	ck_assert_uint_eq(config.stacks.depth, 64);
	ck_assert_uint_eq(config.stacks.sample, 1);
}
END_TEST

static const struct {
	const char *entry;
	bool poison, guard, full;
} debugs[] = {
	{"GPUPOOL_DEBUG=poison", true, false, false},
	{"GPUPOOL_DEBUG=Guard", false, true, false},
	{"GPUPOOL_DEBUG=guard,poison", true, true, false},
	{"GPUPOOL_DEBUG=poison,guard,full", true, true, true},
	{"GPUPOOL_DEBUG=full,poison", true, false, true},
};

START_TEST(debugging_sets_the_options_that_it_implies)
{
	const char *environment[] = {
		debugs[_i].entry, "GPUPOOL_THREAD_CACHE=1MiB", "GPUPOOL_SYNC_FREE=off", "GPUPOOL_REUSE=ordered", NULL};

	ck_assert_int_eq(parse(environment), 0);
	ck_assert_int_eq(config.debug.poison, debugs[_i].poison);
	ck_assert_int_eq(config.debug.guard, debugs[_i].guard);
	ck_assert_int_eq(config.debug.full, debugs[_i].full);
	ck_assert_uint_eq(config.thread_cache_bytes, 0);
	ck_assert(!config.is_runtime_served);
	ck_assert(config.is_free_synchronous);
	ck_assert_int_eq(config.reuse, GP_CONFIG_REUSE_COMPLETED);
	ck_assert_uint_eq(config.stacks.depth, 16);
	ck_assert_str_eq(config.text[GP_OPTION_THREAD_CACHE], "0");
	ck_assert_str_eq(config.text[GP_OPTION_STACKS], "16");
}
END_TEST

START_TEST(debugging_leaves_an_explicit_stacks_setting_alone)
{
	const char *environment[] = {"GPUPOOL_STACKS=off", "GPUPOOL_DEBUG=guard", NULL};

	ck_assert_int_eq(parse(environment), 0);
	ck_assert_uint_eq(config.stacks.depth, 0);
}
END_TEST

START_TEST(every_word_of_an_option_selects_its_own_value)
{
	static const struct {
		const char *entry;
		enum gp_option option;
		unsigned value;
	} rows[] = {
		{"GPUPOOL_POOL=none", GP_OPTION_POOL, GP_CONFIG_POOL_NONE},
		{"GPUPOOL_POOL=simple", GP_OPTION_POOL, GP_CONFIG_POOL_SIMPLE},
		{"GPUPOOL_POOL=binned", GP_OPTION_POOL, GP_CONFIG_POOL_BINNED},
		{"GPUPOOL_POOL=split", GP_OPTION_POOL, GP_CONFIG_POOL_SPLIT},
		{"GPUPOOL_POOL=vmm", GP_OPTION_POOL, GP_CONFIG_POOL_VMM},
		{"GPUPOOL_POOL=auto", GP_OPTION_POOL, GP_CONFIG_POOL_AUTO},
		{"GPUPOOL_BACKEND=device", GP_OPTION_BACKEND, GP_CONFIG_BACKEND_DEVICE},
		{"GPUPOOL_BACKEND=managed", GP_OPTION_BACKEND, GP_CONFIG_BACKEND_MANAGED},
		{"GPUPOOL_BACKEND=async", GP_OPTION_BACKEND, GP_CONFIG_BACKEND_ASYNC},
		{"GPUPOOL_YIELD=0", GP_OPTION_YIELD, GP_CONFIG_YIELD_OFF},
		{"GPUPOOL_YIELD=all", GP_OPTION_YIELD, GP_CONFIG_YIELD_ALL},
		{"GPUPOOL_REUSE=auto", GP_OPTION_REUSE, GP_CONFIG_REUSE_AUTO},
		{"GPUPOOL_REUSE=ordered", GP_OPTION_REUSE, GP_CONFIG_REUSE_ORDERED},
		{"GPUPOOL_REUSE=completed", GP_OPTION_REUSE, GP_CONFIG_REUSE_COMPLETED},
		{"GPUPOOL_LOG=off", GP_OPTION_LOG, GP_LOG_OFF},
		{"GPUPOOL_LOG=error", GP_OPTION_LOG, GP_LOG_ERROR},
		{"GPUPOOL_LOG=warn", GP_OPTION_LOG, GP_LOG_WARN},
		{"GPUPOOL_LOG=info", GP_OPTION_LOG, GP_LOG_INFO},
		{"GPUPOOL_LOG=debug", GP_OPTION_LOG, GP_LOG_DEBUG},
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		ck_assert_int_eq(parse_one(rows[i].entry), 0);
		unsigned value = rows[i].option == GP_OPTION_POOL      ? config.pool
				 : rows[i].option == GP_OPTION_BACKEND ? config.backend
				 : rows[i].option == GP_OPTION_YIELD   ? config.yield
				 : rows[i].option == GP_OPTION_REUSE   ? config.reuse
								       : config.log_level;
		ck_assert_msg(value == rows[i].value, "expected %s to select its own value", rows[i].entry);
	}
}
END_TEST

static const struct {
	const char *entry;
	size_t offset;
	const char *line;
} bad_values[] = {
	{"GPUPOOL=maybe", 0,
		"GPUPOOL: 'maybe' is neither on nor off (character 1): use on or off; using "
		"the default"},
	{"GPUPOOL_POOL=vmem", 0,
		"GPUPOOL_POOL: 'vmem' is not one of its values (character 1): "
		"none|simple|binned|split|vmm|auto; using the default"},
	{"GPUPOOL_POOL=split|none", 0, NULL},
	{"GPUPOOL_POOL=spli", 0, NULL},
	{"GPUPOOL_POOL=a-word-that-is-longer-than-every-buffer", 0, NULL},
	{"GPUPOOL_PINNED=2", 0, NULL},
	{"GPUPOOL_PINNED_THREADS=65", 0,
		"GPUPOOL_PINNED_THREADS: '65' is too large (character 1): use auto, or a number from 0 to 64; using "
		"the "
		"default"},
	{"GPUPOOL_PINNED_THREADS=2x", 1,
		"GPUPOOL_PINNED_THREADS: '2x' is not a whole number (character 2): use auto, or a number from 0 to 64; "
		"using the default"},
	{"GPUPOOL_PINNED_THREADS=unlimited", 0, NULL},
	{"GPUPOOL_PINNED_THREADS=-1", 0, NULL},
	{"GPUPOOL_SLEEP=idle", 0,
		"GPUPOOL_SLEEP: 'idle' is neither off, on nor idle:TIME (character 1): use off, on or idle:30s; using "
		"the default"},
	{"GPUPOOL_SLEEP=idle:30", 7,
		"GPUPOOL_SLEEP: 'idle:30' has no unit of time (character 8): use a whole number and ms, s, m or h, "
		"such as idle:30s; using the default"},
	{"GPUPOOL_SLEEP=idle:30x", 7, NULL},
	{"GPUPOOL_SLEEP=idle:", 5, NULL},
	{"GPUPOOL_SLEEP=idle:-1s", 5, NULL},
	{"GPUPOOL_SLEEP=idle:1.5s", 6, NULL},
	{"GPUPOOL_SLEEP=idle:0s", 5, NULL},
	{"GPUPOOL_SLEEP=idle:721h", 5, NULL},
	{"GPUPOOL_SLEEP=idle:18446744073709551617ms", 5, NULL},
	{"GPUPOOL_SLEEP=30s", 0, NULL},
	{"GPUPOOL_RESERVE=-1", 0, NULL},
	{"GPUPOOL_RESERVE=256Mi", 4, NULL},
	{"GPUPOOL_PENDING_COUNT=many", 0, NULL},
	{"GPUPOOL_PENDING_RATIO=1.5", 0, NULL},
	{"GPUPOOL_THREAD_CACHE=off", 0, NULL},
	{"GPUPOOL_REUSE=never", 0, NULL},
	{"GPUPOOL_SYNC_FREE=please", 0, NULL},
	{"GPUPOOL_OOM_WAIT=1s", 1,
		"GPUPOOL_OOM_WAIT: '1s' is not a whole number (character 2): "
		"use auto, or a whole number of milliseconds; using the default"},
	{"GPUPOOL_OOM_WAIT=unlimited", 0, NULL},
	{"GPUPOOL_OOM_WAIT=4294967296", 0, NULL},
	{"GPUPOOL_LOG=loud", 0, NULL},
	{"GPUPOOL_LOG_FILE=/tmp/%e.log", 5,
		"GPUPOOL_LOG_FILE: '/tmp/%e.log' has an unknown % sequence (character 6): "
		"use %p process id, %h host, %r rank, %j job, %u user, %% percent sign; using the default"},
	{"GPUPOOL_LOG_FILE=/tmp/%p%", 7, NULL},
	{"GPUPOOL_RECORD=%h.%q{RANK}", 3, NULL},
	{"GPUPOOL_REPORT=exit:%R", 5, NULL},
	{"GPUPOOL_STACKS=0", 0, NULL},
	{"GPUPOOL_STACKS=65", 0,
		"GPUPOOL_STACKS: '65' is neither on, off nor a depth from 1 to 64 (character 1): as in on, "
		"16, or 16,sample=100; using the default"},
	{"GPUPOOL_STACKS=16,", 3, NULL},
	{"GPUPOOL_STACKS=16,sample=0", 3, NULL},
	{"GPUPOOL_STACKS=16,sample=1000001", 3, NULL},
	{"GPUPOOL_STACKS=16,sample=4 ", 3, NULL},
	{"GPUPOOL_STACKS=00000000000000000000016", 0, NULL},
	{"GPUPOOL_DEBUG=posion", 0,
		"GPUPOOL_DEBUG: 'posion' is neither off nor a list of poison, guard and full (character 1): as in "
		"poison,guard, or poison,guard,full; using the default"},
	{"GPUPOOL_DEBUG=poison,,guard", 7, NULL},
	{"GPUPOOL_DEBUG=poison,", 7, NULL},
	{"GPUPOOL_DEBUG=guard,off", 6, NULL},
	{"GPUPOOL_DEBUG=full", 0, NULL},
	{"GPUPOOL_REGIONS=range", 0,
		"GPUPOOL_REGIONS: 'range' is neither off nor a list of rules (character 1): as in nvtx, nvtx=forward*, "
		"thread=io* or lib=libfft.so*:fft; using the default"},
	{"GPUPOOL_REGIONS=nvtx,", 5, NULL},
	{"GPUPOOL_REGIONS=nvtx=", 0, NULL},
	{"GPUPOOL_REGIONS=nvtx,thread", 5, NULL},
	{"GPUPOOL_REGIONS=lib=:fft", 0, NULL},
	{"GPUPOOL_REGIONS=lib=x:", 0, NULL},
	{"GPUPOOL_REGIONS=lib=\x7f", 0, NULL},
	{"GPUPOOL_REGIONS=nvtx,off", 5, NULL},
	{"GPUPOOL_REGIONS=thread=sixty-four-characters-are-one-more-than-a-pattern-may-have-so-no", 0, NULL},
	{"GPUPOOL_REGIONS=nvtx,nvtx,nvtx,nvtx,nvtx,nvtx,nvtx,nvtx,nvtx,nvtx,nvtx,nvtx,nvtx,nvtx,nvtx,nvtx,nvtx", 80,
		NULL},
	{"GPUPOOL_REPORT=end", 0, NULL},
	{"GPUPOOL_REPORT=exit:", 5, NULL},
	{"GPUPOOL_REPORT=exit:%q", 5, NULL},
	{"GPUPOOL_REPORT=summary:", 8, NULL},
	{"GPUPOOL_REPORT=summary:%q", 8, NULL},
	{"GPUPOOL_OOM_FILE=%q", 0, NULL},
	{"GPUPOOL_RUNTIME_DIR=run", 0,
		"GPUPOOL_RUNTIME_DIR: 'run' is not an absolute path (character 1): "
		"start it with a slash; using the default"},
};

START_TEST(a_bad_value_is_reported_once_and_leaves_the_default)
{
	ck_assert_int_eq(parse_one(bad_values[_i].entry), -EINVAL);
	check_defaults();
	ck_assert_uint_eq(notes.n, 1);
	ck_assert_int_eq(notes.problem[0], GP_CONFIG_USES_DEFAULT);
	ck_assert_uint_eq(notes.offset[0], bad_values[_i].offset);
	if (bad_values[_i].line)
		ck_assert_str_eq(notes.line[0], bad_values[_i].line);
	for (int option = 0; option < GP_OPTION_COUNT; option++)
		ck_assert_str_eq(config.text[option], gp_config_options[option].default_text);
}
END_TEST

static const struct {
	const char *pattern, *text;
	bool fits;
} patterns[] = {
	{"*", "", true},
	{"*", "any", true},
	{"a", "a", true},
	{"a", "ab", false},
	{"ab", "a", false},
	{"?", "", false},
	{"?b", "ab", true},
	{"a*", "a", true},
	{"*b", "abab", true},
	{"a*b*c", "aXbYbZc", true},
	{"a*b*c", "aXbYbZ", false},
	{"lib*.so*", "libfft.so.11", true},
	{"lib*.so*", "libfft.a", false},
	{"**", "x", true},
	{"A", "a", false},
};

START_TEST(a_region_pattern_matches_as_in_a_shell)
{
	ck_assert_int_eq(gp_region_pattern_matches(patterns[_i].pattern, patterns[_i].text), patterns[_i].fits);
}
END_TEST

START_TEST(a_bad_limit_makes_every_device_allocation_fail)
{
	uint64_t bytes = 77;

	ck_assert_int_eq(parse_one("GPUPOOL_LIMIT=0=8G,1=4Gx"), -EINVAL);
	ck_assert_uint_eq(notes.n, 1);
	ck_assert_int_eq(notes.problem[0], GP_CONFIG_FAILS_CLOSED);
	ck_assert_str_eq(notes.line[0],
		"GPUPOOL_LIMIT: '0=8G,1=4Gx' is not a size (character 10): use 4G or 4GiB (1024), "
		"4GB (1000), 50% or none; allocations fail until it is corrected");
	ck_assert_str_eq(config.limit_error, notes.line[0]);
	ck_assert_str_eq(config.pinned_limit_error, "");
	ck_assert_str_eq(config.text[GP_OPTION_LIMIT], "0=8G,1=4Gx");
	for (int device = 0; device < GP_LIMIT_DEVICES_MAX; device++) {
		gp_config_limit_for(&config.limit, device, 80 * GIB, &bytes);
		ck_assert_uint_eq(bytes, 0);
	}
	ck_assert_uint_eq(gp_limit_bytes(&config.pinned_limit, 80 * GIB), UINT64_MAX);
}
END_TEST

START_TEST(a_bad_pinned_limit_makes_only_pinned_allocations_fail)
{
	uint64_t bytes = 77;

	ck_assert_int_eq(parse_one("GPUPOOL_PINNED_LIMIT=0"), -EINVAL);
	ck_assert_uint_eq(notes.n, 1);
	ck_assert_str_eq(notes.line[0], "GPUPOOL_PINNED_LIMIT: '0' is a limit of zero (character "
					"1): use none for no limit; "
					"allocations fail until it is corrected");
	ck_assert_str_eq(config.pinned_limit_error, notes.line[0]);
	ck_assert_str_eq(config.limit_error, "");
	ck_assert_uint_eq(gp_limit_bytes(&config.pinned_limit, 80 * GIB), 0);
	gp_config_limit_for(&config.limit, 0, 80 * GIB, &bytes);
	ck_assert_uint_eq(bytes, UINT64_MAX);
}
END_TEST

static const struct {
	const char *environment[5];
	const char *text, *source;
} scheduled[] = {
	{{"NVIDIA_GPU_MEMORY_LIMITS=2000"}, "2000MiB", "NVIDIA_GPU_MEMORY_LIMITS"},
	{{"NVIDIA_GPU_MEMORY_LIMIT=2048"}, "2GiB", "NVIDIA_GPU_MEMORY_LIMIT"},
	{{"GPU_MEMORY_LIMIT=3221225472"}, "3GiB", "GPU_MEMORY_LIMIT"},
	{{"CUDA_DEVICE_MEMORY_LIMIT=3g"}, "3GiB", "CUDA_DEVICE_MEMORY_LIMIT"},
	{{"CUDA_DEVICE_MEMORY_LIMIT_0=3000m"}, "0=3000MiB,*=none", "CUDA_DEVICE_MEMORY_LIMIT"},
	{{"CUDA_DEVICE_MEMORY_LIMIT=0m", "CUDA_DEVICE_MEMORY_LIMIT_1=1g"}, "1=1GiB,*=none", "CUDA_DEVICE_MEMORY_LIMIT"},
	{{"CUDA_DEVICE_MEMORY_LIMIT=2g", "CUDA_DEVICE_MEMORY_LIMIT_12=3g"}, "12=3GiB,*=2GiB",
		"CUDA_DEVICE_MEMORY_LIMIT"},
	{{"CUDA_DEVICE_MEMORY_LIMIT=2g", "CUDA_DEVICE_MEMORY_LIMIT=1g"}, "2GiB", "CUDA_DEVICE_MEMORY_LIMIT"},
	{{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G,1=512M"}, "0=1GiB,1=512MiB,*=none",
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"},
	/* Each device has the smallest of its limits. */
	{{"GPU_MEMORY_LIMIT=2147483648", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G,1=4G"}, "0=1GiB,1=2GiB,*=2GiB",
		"GPU_MEMORY_LIMIT CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"},
	/* gpupool's own variable is the one that counts, even if it names no limit. */
	{{"GPU_MEMORY_LIMIT=2147483648", "GPUPOOL_LIMIT=4GiB"}, "4GiB", "environment"},
	{{"GPU_MEMORY_LIMIT=nonsense", "GPUPOOL_LIMIT=none"}, "none", "environment"},
	/* Other variables. */
	{{"CUDA_DEVICE_MEMORY_LIMIT_64=1g", "CUDA_DEVICE_MEMORY_LIMIT_=1g", "CUDA_DEVICE_MEMORY_LIMITS=1g",
		 "GPU_MEMORY_LIMIT="},
		"none", "default"},
};

START_TEST(the_limits_of_schedulers_hold_unless_the_user_sets_one)
{
	char text[GP_CONFIG_VALUE_SIZE];

	ck_assert_int_eq(parse(scheduled[_i].environment), 0);
	gp_config_value_text(&config, GP_OPTION_LIMIT, text, sizeof(text));
	ck_assert_str_eq(text, scheduled[_i].text);
	ck_assert_str_eq(gp_config_source_text(&config, GP_OPTION_LIMIT), scheduled[_i].source);
	ck_assert_uint_eq(notes.n, 0);
}
END_TEST

START_TEST(the_limit_of_a_scheduler_applies_to_its_device)
{
	uint64_t bytes;

	ck_assert_int_eq(parse_one("CUDA_DEVICE_MEMORY_LIMIT_1=3g"), 0);
	gp_config_limit_for(&config.limit, 1, 80 * GIB, &bytes);
	ck_assert_uint_eq(bytes, 3 * GIB);
	gp_config_limit_for(&config.limit, 0, 80 * GIB, &bytes);
	ck_assert_uint_eq(bytes, UINT64_MAX);
}
END_TEST

static const struct {
	const char *entry, *line;
} misread[] = {
	{"NVIDIA_GPU_MEMORY_LIMITS=2GiB",
		"NVIDIA_GPU_MEMORY_LIMITS: '2GiB' is not a number (character 1): use a number of "
		"MiB; allocations fail until it is corrected"},
	{"NVIDIA_GPU_MEMORY_LIMITS=99999999999999999999", "NVIDIA_GPU_MEMORY_LIMITS: '99999999999999999999' is"},
	{"NVIDIA_GPU_MEMORY_LIMITS=0", "NVIDIA_GPU_MEMORY_LIMITS: '0' is less than 1 MiB"},
	{"GPU_MEMORY_LIMIT=24",
		"GPU_MEMORY_LIMIT: '24' is less than 1 MiB (character 1): set GPUPOOL_LIMIT if it is not a "
		"limit of GPU memory; allocations fail until it is corrected"},
	{"GPU_MEMORY_LIMIT=0.9", "GPU_MEMORY_LIMIT: '0.9' "},
	{"CUDA_DEVICE_MEMORY_LIMIT_3=much", "CUDA_DEVICE_MEMORY_LIMIT_3: 'much' is not a size"},
	{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=50%", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: '0=50%' is not a list of sizes"},
	{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0:1G", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: '0:1G' "},
};

START_TEST(a_limit_of_a_scheduler_that_cannot_be_read_makes_allocations_fail)
{
	uint64_t bytes;

	ck_assert_int_eq(parse_one(misread[_i].entry), -EINVAL);
	ck_assert_uint_eq(notes.n, 1);
	ck_assert_int_eq(notes.problem[0], GP_CONFIG_FAILS_CLOSED);
	ck_assert_msg(!strncmp(notes.line[0], misread[_i].line, strlen(misread[_i].line)), "got: %s", notes.line[0]);
	ck_assert_str_eq(config.limit_error, notes.line[0]);
	gp_config_limit_for(&config.limit, 0, 80 * GIB, &bytes);
	ck_assert_uint_eq(bytes, 0);
}
END_TEST

START_TEST(an_overlong_value_is_refused_and_truncated_in_the_report)
{
	char entry[4 * GP_CONFIG_VALUE_SIZE];
	size_t name = strlen("GPUPOOL_RUNTIME_DIR=/");

	strcpy(entry, "GPUPOOL_RUNTIME_DIR=/");
	memset(entry + name, 'a', GP_CONFIG_VALUE_SIZE - 2);
	entry[name + GP_CONFIG_VALUE_SIZE - 2] = '\0';
	ck_assert_int_eq(parse_one(entry), 0);
	ck_assert_uint_eq(strlen(config.runtime_dir), GP_CONFIG_VALUE_SIZE - 1);

	memset(entry + name, 'a', sizeof(entry) - name - 1);
	entry[sizeof(entry) - 1] = '\0';
	ck_assert_int_eq(parse_one(entry), -EINVAL);
	check_defaults();
	ck_assert_uint_eq(notes.n, 1);
	ck_assert_ptr_nonnull(strstr(notes.line[0], "aaa...' is too long (character 1024); using"));
	ck_assert_uint_lt(strlen(notes.line[0]), 200);
}
END_TEST

START_TEST(an_overlong_limit_still_makes_allocations_fail)
{
	char entry[4 * GP_CONFIG_VALUE_SIZE] = "GPUPOOL_LIMIT=8";
	size_t length = strlen(entry);
	uint64_t bytes = 77;

	memset(entry + length, '0', sizeof(entry) - length - 1);
	ck_assert_int_eq(parse_one(entry), -EINVAL);
	gp_config_limit_for(&config.limit, 0, 80 * GIB, &bytes);
	ck_assert_uint_eq(bytes, 0);
	ck_assert_uint_eq(strlen(config.text[GP_OPTION_LIMIT]), GP_CONFIG_VALUE_SIZE - 1);
}
END_TEST

static const struct {
	const char *entry;
	const char *line;
} unknown_names[] = {
	{"GPUPOOL_LIMITS=8G", "GPUPOOL_LIMITS is not a variable of gpupool; the nearest is GPUPOOL_LIMIT"},
	{"GPUPOOL_LIMT=8G", "GPUPOOL_LIMT is not a variable of gpupool; the nearest is GPUPOOL_LIMIT"},
	{"GPUPOOL_POLL=none", "GPUPOOL_POLL is not a variable of gpupool; the nearest is GPUPOOL_POOL"},
	{"GPUPOOL_limit=8G", "GPUPOOL_limit is not a variable of gpupool"},
	{"GPUPOOL_SYNCFREE=1", "GPUPOOL_SYNCFREE is not a variable of gpupool; the nearest is GPUPOOL_SYNC_FREE"},
	{"GPUPOOL_COMPLETELY_DIFFERENT=1", "GPUPOOL_COMPLETELY_DIFFERENT is not a variable of gpupool"},
	{"GPUPOOL_A_NAME_THAT_IS_LONGER_THAN_ANYBODY_WOULD_TYPE_IT=1",
		"GPUPOOL_A_NAME_THAT_IS_LONGER_THAN_ANYBODY_WOUL is not a variable of gpupool"},
};

START_TEST(an_unknown_variable_is_reported_with_the_nearest_known_one)
{
	ck_assert_int_eq(parse_one(unknown_names[_i].entry), 0);
	check_defaults();
	ck_assert_uint_eq(notes.n, 1);
	ck_assert_int_eq(notes.problem[0], GP_CONFIG_UNKNOWN_NAME);
	ck_assert_str_eq(notes.line[0], unknown_names[_i].line);
}
END_TEST

START_TEST(the_default_pending_count_depends_on_the_pool_type)
{
	static const struct {
		const char *environment[3];
		uint64_t count;
		const char *text;
	} rows[] = {
		{{"GPUPOOL_POOL=none"}, 10, "10"},
		{{"GPUPOOL_POOL=simple"}, UINT64_MAX, "unlimited"},
		{{"GPUPOOL_PENDING_COUNT=3", "GPUPOOL_POOL=none"}, 3, "3"},
		{{"GPUPOOL_PENDING_COUNT=unlimited", "GPUPOOL_POOL=none"}, UINT64_MAX, "unlimited"},
		{{"GPUPOOL_PENDING_COUNT=x", "GPUPOOL_POOL=none"}, 10, "10"},
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		parse(rows[i].environment);
		ck_assert_uint_eq(config.pending_count, rows[i].count);
		ck_assert_str_eq(config.text[GP_OPTION_PENDING_COUNT], rows[i].text);
	}
}
END_TEST

START_TEST(the_first_of_two_entries_of_one_variable_counts)
{
	const char *environment[] = {"GPUPOOL_POOL=simple", "GPUPOOL_POOL=binned", NULL};

	ck_assert_int_eq(parse(environment), 0);
	ck_assert_int_eq(config.pool, GP_CONFIG_POOL_SIMPLE);
}
END_TEST

START_TEST(each_device_of_a_limit_that_does_not_exist_is_reported)
{
	ck_assert_int_eq(parse_one("GPUPOOL_LIMIT=0=1G,1=2G,5=3G,*=4G"), 0);
	gp_config_check_devices(&config, 6, note, &notes);
	ck_assert_uint_eq(notes.n, 0);
	gp_config_check_devices(&config, 1, note, &notes);
	ck_assert_uint_eq(notes.n, 2);
	ck_assert_int_eq(notes.problem[0], GP_CONFIG_ABSENT_DEVICE);
	ck_assert_str_eq(
		notes.line[0], "GPUPOOL_LIMIT: '0=1G,1=2G,5=3G,*=4G' names device 1, but the machine has only 1");
	ck_assert_str_eq(
		notes.line[1], "GPUPOOL_LIMIT: '0=1G,1=2G,5=3G,*=4G' names device 5, but the machine has only 1");
	gp_config_check_devices(&config, 64, note, &notes);
	gp_config_check_devices(&config, 1000, note, &notes);
	ck_assert_uint_eq(notes.n, 2);
}
END_TEST

START_TEST(a_value_can_be_checked_without_being_set)
{
	struct gp_text_error error = {0};

	ck_assert_int_eq(gp_config_check(GP_OPTION_LIMIT, "0=8G,1=50%", &error), 0);
	ck_assert_int_eq(gp_config_check(GP_OPTION_LIMIT, "", &error), -EINVAL);
	ck_assert_str_eq(error.why, "is empty");
	ck_assert_int_eq(gp_config_check(GP_OPTION_LOG_FILE, "", &error), -EINVAL);
	ck_assert_int_eq(gp_config_check(GP_OPTION_POOL, "", &error), -EINVAL);
	ck_assert_int_eq(gp_config_check(GP_OPTION_RESERVE, "1Q", &error), -EINVAL);
	ck_assert_uint_eq(error.offset, 1);
}
END_TEST

START_TEST(the_text_of_a_value_is_truncated_to_its_buffer)
{
	char text[4];

	ck_assert_int_eq(parse_one("GPUPOOL_POOL=binned"), 0);
	ck_assert_int_eq(gp_config_value_text(&config, GP_OPTION_POOL, text, sizeof(text)), 6);
	ck_assert_str_eq(text, "bin");
	ck_assert_str_eq(gp_config_source_text(&config, GP_OPTION_LOG), "default");
}
END_TEST

START_TEST(the_environment_of_the_current_process_is_parsed)
{
	ck_assert_int_eq(setenv("GPUPOOL_POOL", "simple", 1), 0);
	memset(&notes, 0, sizeof(notes));
	ck_assert_int_eq(gp_config_parse(&config, gp_config_environ(), note, &notes), 0);
	ck_assert_int_eq(config.pool, GP_CONFIG_POOL_SIMPLE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *tc = tcase_create("config");

	suite_add_tcase(suite, tc);
	tcase_add_test(tc, an_environment_without_gpupool_variables_gives_the_defaults);
	tcase_add_test(tc, every_default_is_a_valid_value);
	tcase_add_test(tc, a_bound_of_host_memory_and_names_of_cold_regions_are_read);
	tcase_add_test(tc, every_variable_is_parsed_and_its_text_is_kept_as_typed);
	ADD_ROWS(tc, groups, a_group_has_a_limit_and_optionally_a_name);
	ADD_ROWS(tc, bad_groups, a_bad_group_is_a_limit_of_zero);
	ADD_ROWS(tc, switches, a_switch_accepts_eight_words_for_on_and_off);
	tcase_add_test(tc, words_are_accepted_in_any_case_for_stacks_and_reports);
	tcase_add_loop_test(tc, a_region_pattern_matches_as_in_a_shell, 0, (int)LENGTH(patterns));
	tcase_add_loop_test(tc, debugging_sets_the_options_that_it_implies, 0, LENGTH(debugs));
	tcase_add_test(tc, debugging_leaves_an_explicit_stacks_setting_alone);
	tcase_add_test(tc, every_word_of_an_option_selects_its_own_value);
	ADD_ROWS(tc, bad_values, a_bad_value_is_reported_once_and_leaves_the_default);
	tcase_add_test(tc, a_bad_limit_makes_every_device_allocation_fail);
	tcase_add_test(tc, a_bad_pinned_limit_makes_only_pinned_allocations_fail);
	tcase_add_loop_test(tc, the_limits_of_schedulers_hold_unless_the_user_sets_one, 0, (int)LENGTH(scheduled));
	tcase_add_test(tc, the_limit_of_a_scheduler_applies_to_its_device);
	tcase_add_loop_test(
		tc, a_limit_of_a_scheduler_that_cannot_be_read_makes_allocations_fail, 0, (int)LENGTH(misread));
	tcase_add_test(tc, an_overlong_value_is_refused_and_truncated_in_the_report);
	tcase_add_test(tc, an_overlong_limit_still_makes_allocations_fail);
	ADD_ROWS(tc, unknown_names, an_unknown_variable_is_reported_with_the_nearest_known_one);
	tcase_add_test(tc, the_default_pending_count_depends_on_the_pool_type);
	tcase_add_test(tc, the_first_of_two_entries_of_one_variable_counts);
	tcase_add_test(tc, each_device_of_a_limit_that_does_not_exist_is_reported);
	tcase_add_test(tc, a_value_can_be_checked_without_being_set);
	tcase_add_test(tc, the_text_of_a_value_is_truncated_to_its_buffer);
	tcase_add_test(tc, the_environment_of_the_current_process_is_parsed);
	return suite_run(suite);
}
