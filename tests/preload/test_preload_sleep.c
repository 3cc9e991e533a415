/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Processes that are put to sleep: what they hold then, what wakes them, and what keeps them awake. */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "play.h"

/* The simulated clock jumps to the end of work only at the hundredth query, unless queries take time. */
#define GPU    "SIMGPU_LATENCY=cuEventQuery=100000"
#define VMM    "GPUPOOL_POOL=vmm"
#define POOLED ((uint64_t)28 * MIB) /* of the blocks of app_sleep, by chunks */

static const char *const vmm[] = {VMM, GPU, NULL};

static void play_sleep(const char *scenario, const char *const *env, void (*at_pause)(const char *name))
{
	play_same(&(struct play){.program = "app_sleep", .words = {scenario}, .env = env, .at_pause = at_pause});
	ck_assert_int_eq(play_status, 0);
}

START_TEST(a_process_asleep_holds_only_its_context_and_has_its_content_awake)
{
	play_sleep("content", vmm, NULL);
	ck_assert_ptr_null(strstr(play_out, "wrong words: 1"));
	ck_assert_uint_eq(play_fact("slept"), POOLED);
	ck_assert_uint_eq(play_fact("asleep"), play_fact("before"));
	ck_assert_uint_eq(play_fact("woken"), play_fact("before") + POOLED);
	ck_assert_uint_eq(play_fact("slept again"), 0);
	ck_assert_uint_eq(play_fact("woke"), POOLED);
	ck_assert_uint_eq(play_fact("woke again"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static char stat_text[64 * 1024];

/* Runs gpupool-stat, and asserts that its output contains all of the texts. */
static void check_stat(const char *words, const char *const *texts)
{
	int status = play_run_stat(words, stat_text, sizeof(stat_text));

	ck_assert_msg(status == 0, "%s: exit status %d: %.500s", words, status, stat_text);
	for (; *texts; texts++)
		ck_assert_msg(strstr(stat_text, *texts), "expected '%s' of %s in: %.2000s", *texts, words, stat_text);
}

static const struct {
	const char *words, *texts[7];
} views[] = {
	{"status", {"28.0 MiB of the total are given to the driver; their contents take 25.1 MiB of host memory, and "
		    "2.93 MiB "
		    "had none to keep",
			   "stays: context (code, stacks and buffers of CUDA", NULL}},
	{"list", {"ASLEEP", "28.0 MiB ", NULL}},
	{"list --json", {"\"state\":\"asleep\"", "\"empty_bytes\":", "\"stays\":[", NULL}},
	{"metrics", {"gpupool_asleep_bytes{", "\"} 29360128\n", "gpupool_asleep_host_bytes{",
			    "gpupool_asleep_empty_bytes{", "gpupool_asleep_seconds{", "gpupool_sleeps_total{", NULL}},
	{"metrics --collect=all", {"gpupool_asleep_bytes{", "gpupool_asleep_host_bytes{", NULL}},
	{"report", {"The process is asleep for ", "28.0 MiB of the total are given to the driver", NULL}},
};

static void check_views(void)
{
	unsigned pid = (unsigned)play_number(play_ask("status"), "pid");
	char words[64];

	for (size_t i = 0; i < LENGTH(views); i++) {
		snprintf(words, sizeof(words), "%s", views[i].words);
		if (strcmp(words, "report") == 0)
			snprintf(words, sizeof(words), "report %u", pid);
		check_stat(words, views[i].texts);
	}
}

static void sleep_by_command(const char *name)
{
	const char *answer;

	if (strcmp(name, "awake") == 0) {
		/* A process that has never slept, and has no setting to, has no series and no column of it. */
		ck_assert_int_eq(play_run_stat("metrics", stat_text, sizeof(stat_text)), 0);
		ck_assert_ptr_null(strstr(stat_text, "gpupool_asleep"));
		ck_assert_int_eq(play_run_stat("list", stat_text, sizeof(stat_text)), 0);
		ck_assert_ptr_null(strstr(stat_text, "ASLEEP"));
		ck_assert_int_eq(play_run_stat("sleep", stat_text, sizeof(stat_text)), 0);
		ck_assert_msg(strstr(stat_text, "asleep: gave 28.0 MiB to the driver"), "%s", stat_text);
		ck_assert_int_eq(play_run_stat("sleep", stat_text, sizeof(stat_text)), 0);
		ck_assert_str_eq(stat_text, "the process was asleep already\n");
		check_views();
		answer = play_ask("status");
		ck_assert_ptr_nonnull(strstr(answer, "\"state\":\"asleep\""));
		ck_assert_uint_eq(play_number(answer, "asleep_bytes"), POOLED);
		ck_assert_uint_eq(play_number(answer, "sleeps"), 1);
		/* Commands that give memory back find none, and leave the process asleep. */
		ck_assert_int_eq(play_run_stat("reclaim", stat_text, sizeof(stat_text)), 0);
		ck_assert_msg(strstr(stat_text, "gave nothing back"), "%s", stat_text);
		(void)play_ask("limit set 8MiB");
		(void)play_ask("limit set none");
	} else if (strcmp(name, "asleep") == 0) {
		ck_assert_int_eq(play_run_stat("wake", stat_text, sizeof(stat_text)), 0);
		ck_assert_msg(strstr(stat_text, "awake: took 28.0 MiB from the driver"), "%s", stat_text);
		ck_assert_int_eq(play_run_stat("wake", stat_text, sizeof(stat_text)), 0);
		ck_assert_str_eq(stat_text, "the process was awake already\n");
	} else {
		ck_assert_int_eq(play_run_stat("sleep", stat_text, sizeof(stat_text)), 0);
	}
}

START_TEST(the_commands_put_a_process_to_sleep_and_wake_it)
{
	const char *env[] = {VMM, GPU, NULL};

	if (!play_stat)
		return;
	play_run(&(struct play){.program = "app_sleep",
		.words = {"asked"},
		.env = env,
		.preload = play_library,
		.at_pause = sleep_by_command});
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
	ck_assert_uint_eq(play_fact("asked"), play_fact("asleep") + POOLED);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

enum { TRIES = 3000, TRY_US = 10000 };

/* Asks for the status until it contains the text. */
static const char *await_status(const char *text)
{
	const char *status = "";

	for (int i = 0; i < TRIES && !strstr(status, text); i++) {
		usleep(TRY_US);
		status = play_ask("status");
	}
	ck_assert_msg(strstr(status, text), "expected %s in: %.600s", text, strstr(status, "\"sleep\":{"));
	return status;
}

static unsigned n_idle;
static const char *const idle_texts[] = {"GPUPOOL_SLEEP=idle:20ms: idle for ", NULL};

static void await_sleep(const char *name)
{
	const char *status, *sleep;

	if (strcmp(name, "idle") != 0) {
		(void)await_status("\"refusal\":\"busy: the GPU has not finished its work");
		return;
	}
	if (play_stat)
		check_stat("status", idle_texts);
	status = await_status("\"state\":\"asleep\"");
	sleep = strstr(status, "\"sleep\":{");
	ck_assert_uint_eq(play_number(sleep, "idle_sleeps"), ++n_idle);
	ck_assert_uint_eq(play_number(sleep, "asked_sleeps"), 0);
	ck_assert_uint_eq(play_number(sleep, "wakes"), n_idle - 1);
	ck_assert_uint_eq(play_number(sleep, "asleep_bytes"), POOLED);
}

START_TEST(an_idle_process_sleeps_by_itself_and_a_kernel_that_has_not_ended_keeps_it_awake)
{
	const char *env[] = {VMM, GPU, "GPUPOOL_SLEEP=idle:20ms", NULL};

	play_run(&(struct play){.program = "app_sleep",
		.words = {"idles"},
		.env = env,
		.preload = play_library,
		.at_pause = await_sleep});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(n_idle, 3);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(an_idle_process_without_a_server_sleeps_by_itself)
{
	const char *env[] = {VMM, GPU, "GPUPOOL_SLEEP=idle:20ms", "GPUPOOL_SOCKET=off", NULL};

	play_run(&(struct play){.program = "app_sleep", .words = {"idles-alone"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
	ck_assert_uint_eq(play_fact("woke"), POOLED);
}
END_TEST

/* The process says once why it stays awake. */
static void await_refusal(const char *name)
{
	if (strcmp(name, "idle") == 0)
		(void)await_status("\"refusal\":\"");
}

START_TEST(an_idle_process_that_cannot_sleep_says_so_once)
{
	const char *env[] = {"GPUPOOL_POOL=split", "GPUPOOL_SLEEP=idle:20ms", NULL}, *first;
	static const char text[] = "GPUPOOL_SLEEP: the idle process stays awake: only memory of the pool type vmm";

	play_run(&(struct play){.program = "app_sleep",
		.words = {"idles"},
		.env = env,
		.preload = play_library,
		.at_pause = await_refusal});
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_nonnull(strstr(play_err, "GPUPOOL_SLEEP needs GPUPOOL_POOL=vmm or auto"));
	first = strstr(play_err, text);
	ck_assert_msg(first, "%s", play_err);
	ck_assert_ptr_null(strstr(first + 1, text));
}
END_TEST

START_TEST(a_kernel_that_has_not_ended_keeps_a_process_awake)
{
	play_sleep("busy", vmm, NULL);
	ck_assert_uint_eq(play_fact("during a kernel error"), EBUSY);
	ck_assert_uint_eq(play_fact("before"), play_fact("after"));
	ck_assert_uint_eq(play_fact("slept"), POOLED);
}
END_TEST

START_TEST(a_sleep_without_a_bound_ends_when_the_kernel_that_it_waits_for_waits_for_the_program)
{
	play_sleep("awaited", vmm, NULL);
	ck_assert_uint_eq(play_fact("without a bound error"), EBUSY);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(a_graph_is_right_after_its_memory_was_asleep_and_a_capture_keeps_a_process_awake)
{
	play_sleep("graph", vmm, NULL);
	ck_assert_uint_eq(play_fact("capturing error"), EBUSY);
	ck_assert_uint_eq(play_fact("slept"), POOLED);
	ck_assert_uint_ge(play_fact("instantiated"), POOLED);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(memory_can_be_freed_and_asked_about_asleep_and_an_allocation_wakes)
{
	play_sleep("changes", vmm, NULL);
	ck_assert_uint_lt(play_fact("asleep after frees"), POOLED);
	ck_assert_uint_eq(play_fact("reclaimed"), 0);
	ck_assert_uint_gt(
		play_fact("awake after an allocation"), play_fact("asleep after frees") + 40 * MIB + 16 * MIB);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(queries_about_pointers_have_the_same_answers_asleep_and_do_not_wake)
{
	play_sleep("queries", vmm, NULL);
	ck_assert_ptr_nonnull(strstr(play_out, "answers differ: 0\nanswers of pinned memory differ: 0\n"));
	ck_assert_uint_lt(play_fact("asleep after queries"), POOLED);
	ck_assert_uint_ge(play_fact("awake after a query"), POOLED);
	/* The driver alone knows how it answers about memory that the program does not hold. */
	ck_assert_uint_ge(play_fact("awake after a query of freed memory"), POOLED - 6 * MIB);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/* test_gate.c has all calls that submit work, and those of which gpupool only makes sure that the process is awake. */
static const char *const waking[] = {
	"APP_CALL=nothing", /* stays asleep */
	"APP_CALL=cuMemRetainAllocationHandle",
	"APP_CALL=cuMemGetAccess",
	"APP_CALL=cuMulticastBindAddr",
	"APP_CALL=cuPointerSetAttribute",
	"APP_CALL=cuIpcGetMemHandle",
	"APP_CALL=cuMemGetHandleForAddressRange",
	"APP_CALL=cuCtxEnablePeerAccess",
	"APP_CALL=cuCtxDisablePeerAccess",
	"APP_CALL=tokens",
	"APP_CALL=cuStreamBeginCapture",
	"APP_CALL=cuMemAlloc",
	"APP_CALL=dlopen",
};

START_TEST(a_call_in_which_the_driver_examines_memory_wakes_the_process_first)
{
	const char *env[] = {waking[_i], VMM, GPU, NULL};

	play_run(&(struct play){.program = "app_sleep", .words = {"one-call"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("slept"), POOLED);
	if (strstr(waking[_i], "cuMemAlloc"))
		ck_assert_uint_ge(play_fact("afterwards"), POOLED + 64 * MIB);
	else if (_i)
		ck_assert_uint_ge(play_fact("afterwards"), POOLED);
	else
		ck_assert_uint_lt(play_fact("afterwards"), POOLED);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
}
END_TEST

static void check_kept(const char *name)
{
	uint64_t bytes = play_number(play_ask("status"), "kept_host_bytes");

	if (strcmp(name, "reset") == 0)
		ck_assert_uint_eq(bytes, 0);
	else if (strcmp(name, "smaller") == 0)
		ck_assert_uint_le(bytes, 4 * MIB);
	else
		ck_assert_uint_gt(bytes, 16 * MIB);
}

START_TEST(kept_host_memory_serves_the_next_sleep_and_goes_back_if_it_does_not_fit_or_the_context_ends)
{
	const char *env[] = {VMM, GPU, "GPUPOOL_SLEEP_KEEP=on", NULL};

	play_run(&(struct play){.program = "app_sleep",
		.words = {"kept"},
		.env = env,
		.preload = play_library,
		.at_pause = check_kept});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_gt(play_fact("first"), 0);
	ck_assert_uint_eq(play_fact("second"), play_fact("first"));
}
END_TEST

static void check_unpinned(const char *unused)
{
	ck_assert_ptr_null(strstr(play_ask("status"), "\"tables\""));
	ck_assert_ptr_nonnull(strstr(play_ask("status"), "\"state\":\"asleep\""));
}

START_TEST(host_memory_beyond_the_bound_is_unpinned_asleep_and_pinned_again_by_the_wake)
{
	const char *env[] = {VMM, GPU, "GPUPOOL_SLEEP_PINNED=0", NULL};

	play_run(&(struct play){.program = "app_sleep",
		.words = {"unpinned"},
		.env = env,
		.preload = play_library,
		.at_pause = check_unpinned});
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
	ck_assert_uint_gt(play_fact("first"), 0);
	ck_assert_uint_eq(play_fact("again"), play_fact("first"));
	ck_assert_uint_eq(play_fact("unpinned"), 2 * play_fact("first"));
}
END_TEST

/* Each of these ends, or goes on, as it does without the library. */
static const char *const ends[] = {"ends", "exits", "forks"};

START_TEST(a_process_asleep_resets_exits_and_forks_as_without_the_library)
{
	play_sleep(ends[_i], vmm, NULL);
	if (_i == 0)
		ck_assert_uint_eq(play_fact("after the reset"), 0);
	if (_i == 2)
		ck_assert_uint_eq(play_fact("mapped"), 26 * MIB);
	if (_i == 2)
		ck_assert_uint_eq(play_fact("mapped awake"), 0);
}
END_TEST

/* The context is a primary one, or one that the program has created. */
static const char *const owners[] = {"APP_PRIMARY=1", "APP_CREATED=1"};

START_TEST(a_process_asleep_wakes_for_the_end_of_a_context_whose_memory_outlives_it)
{
	const char *env[] = {VMM, GPU, owners[_i], NULL};

	play_sleep("ends-in-order", env, NULL);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\nfree: 0\n"));
}
END_TEST

/* The reset gives up after a while, since it has to return. */
START_TEST(memory_that_is_asleep_ends_with_its_context_if_it_cannot_wake)
{
	const char *env[] = {VMM, GPU, owners[_i], NULL};

	play_run(&(struct play){
		.program = "app_sleep", .words = {"ends-in-order-without-room"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "free: 1\n");
	ck_assert_ptr_nonnull(strstr(play_err, "has ended with its context, since it was asleep and could not wake: "));
}
END_TEST

START_TEST(a_process_with_more_contexts_than_gpupool_can_ask_about_does_not_sleep)
{
	play_run(&(struct play){.program = "app_sleep", .words = {"crowd"}, .env = vmm, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("crowd error"), ENOTSUP);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(all_contexts_and_devices_of_a_process_sleep_and_wake_together)
{
	const char *env[] = {VMM, GPU, "SIMGPU_DEVICES=2", NULL};

	play_sleep("several", env, NULL);
	ck_assert_uint_eq(play_fact("busy elsewhere error"), EBUSY);
	ck_assert_uint_eq(play_fact("slept"), POOLED + 16 * MIB);
	ck_assert_uint_eq(play_fact("asleep"), 8 * MIB); /* two contexts */
	ck_assert_uint_eq(play_fact("asleep there"), 4 * MIB);
	ck_assert_uint_eq(play_fact("reset there"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static void drop_by_command(const char *name)
{
	static char text[65536];

	if (strcmp(name, "asleep") == 0) {
		ck_assert_uint_eq(play_number(play_ask("status"), "dropped_bytes"), 16 * MIB);
		return;
	}
	if (!play_stat)
		return;
	ck_assert_int_eq(play_run_stat("sleep --drop=none", text, sizeof(text)), 2);
	ck_assert_msg(strstr(text, "there is no region 'none'"), "%s", text);
	ck_assert_int_eq(play_run_stat("sleep --to=disk", text, sizeof(text)), 2);
	ck_assert_msg(strstr(text, "--to: 'disk' is not where content can go."), "%s", text);
	ck_assert_int_eq(play_run_stat("sleep --drop=", text, sizeof(text)), 2);
	ck_assert_msg(strstr(text, "--drop: '' is not the name of a region."), "%s", text);
	ck_assert_ptr_nonnull(strstr(play_ask("sleep 10 to=disk"), "is not a word of this request"));
	ck_assert_ptr_nonnull(strstr(play_ask("sleep -1"), "is not a number of milliseconds"));
	/* A region whose name needs an escape does not exist either. */
	ck_assert_int_eq(play_run_stat("sleep --drop=cache '--drop=a,b c'", text, sizeof(text)), 2);
	ck_assert_msg(strstr(text, "there is no region 'a,b c'"), "%s", text);
	ck_assert_int_eq(play_run_stat("sleep --to=host --drop=cache", text, sizeof(text)), 0);
	ck_assert_msg(strstr(text, "dropped 16.0 MiB"), "%s", text);
}

START_TEST(content_that_is_dropped_is_zero_when_the_process_wakes_and_the_rest_is_kept)
{
	play_run(&(struct play){.program = "app_sleep",
		.words = {"dropped"},
		.env = vmm,
		.preload = play_library,
		.at_pause = drop_by_command});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("unknown error"), ENOENT);
	ck_assert_uint_eq(play_fact("unknown kept"), 1);
	ck_assert_uint_eq(play_fact("one"), POOLED + 16 * MIB);
	ck_assert_uint_eq(play_fact("one zero"), 1);
	ck_assert_uint_eq(play_fact("asked zero"), play_stat != NULL);
	ck_assert_uint_eq(play_fact("all zero"), 1);
	ck_assert_uint_eq(play_fact("all others zero"), 1);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\nwrong words: 0\n"));
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static uint64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void stop_meanwhile(const char *name)
{
	static char text[65536];
	uint64_t end_ns;
	char words[64];
	pid_t pid;

	if (strcmp(name, "awake") != 0)
		return;
	pid = (pid_t)play_number(play_ask("status"), "pid");
	ck_assert_ptr_nonnull(strstr(play_ask("sleep 1000 before=1"), "the request came too late"));
	play_stop(pid);
	snprintf(words, sizeof(words), "sleep --timeout=0.001 %d", (int)pid);
	ck_assert_int_ne(play_run_stat(words, text, sizeof(text)), 0);
	for (end_ns = monotonic_ns() + 2000000; monotonic_ns() < end_ns;)
		;
	ck_assert_int_eq(kill(pid, SIGCONT), 0);
	ck_assert_uint_eq(play_number(play_ask("status"), "sleeps"), 0);
}

START_TEST(a_process_that_was_stopped_does_not_carry_out_a_sleep_that_came_too_late)
{
	if (!play_stat)
		return;
	play_run(&(struct play){.program = "app_sleep",
		.words = {"asked"},
		.env = vmm,
		.preload = play_library,
		.at_pause = stop_meanwhile});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_gt(play_fact("asleep"), POOLED);
}
END_TEST

static const struct {
	const char *scenario, *variable, *fact;
	int error;
	const char *why;
} refusals[] = {
	{"exported", VMM, "exported error", ENOTSUP, "the program exported memory to other processes"},
	{"content", "GPUPOOL_POOL=split", "slept error", ENOTSUP, "start the program with GPUPOOL_POOL=vmm"},
	{"content", "GPUPOOL_POOL=none", "slept error", ENOTSUP, "start the program with GPUPOOL_POOL=vmm"},
	{"content", "GPUPOOL_DEBUG=poison", "slept error", ENOTSUP, "GPUPOOL_DEBUG watches the memory"},
	{"content", "GPUPOOL_SLEEP_HOST=1MiB", "slept error", ENOMEM, "GPUPOOL_SLEEP_HOST allows 1 MiB"},
	/* The content takes less than this, but not in huge pages. */
	{"content", "GPUPOOL_SLEEP_HOST=26100KiB", "slept error", ENOMEM, "takes 26 MiB"},
	{"content", "SIMGPU_DRIVER_VERSION=13030", "slept error", ENOTSUP, "work may be submitted past gpupool"},
	{"content", "SIMGPU_HIDE=cuCtxRecordEvent,cuCtxWaitEvent", "slept error", ENOTSUP,
		"the driver lacks functions"},
};

START_TEST(a_process_that_cannot_sleep_says_why_and_stays_as_it_is)
{
	const char *env[] = {refusals[_i].variable, VMM, GPU, "GPUPOOL_LOG=info", NULL};

	play_run(&(struct play){
		.program = "app_sleep", .words = {refusals[_i].scenario}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact(refusals[_i].fact), (uint64_t)refusals[_i].error);
	ck_assert_msg(strstr(play_err, refusals[_i].why), "expected '%s' in: %s", refusals[_i].why, play_err);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
}
END_TEST

static void invalidate_region(const char *name)
{
	const char *answer;

	if (strcmp(name, "asleep") == 0) {
		answer = play_ask("region invalidate kept");
		ck_assert_uint_eq(play_number(answer, "busy_bytes"), 16 * MIB);
		ck_assert_uint_eq(play_number(answer, "released_bytes"), 0);
	} else {
		answer = play_ask("region");
		ck_assert_uint_eq(play_number(answer, "cached_bytes"), 0);
	}
}

/* Without the wake it would get memory that the process then lacks to wake, and wait forever. */
START_TEST(an_allocation_asleep_for_which_the_device_has_no_room_fails_as_awake)
{
	const char *env[] = {VMM, GPU, "SIMGPU_MEMORY=64M", NULL};

	play_run(&(struct play){.program = "app_sleep", .words = {"full"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "more: 2\nmore that is not pooled: 2\nwrong words: 0\n");
	ck_assert_uint_ge(play_fact("bytes"), POOLED);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(the_free_memory_of_a_process_that_wakes_is_that_of_one_that_is_awake)
{
	const char *env[] = {VMM, GPU, "SIMGPU_MEMORY=64M", NULL};

	play_run(&(struct play){.program = "app_sleep", .words = {"asks-waking"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "free memory as awake: 1\nfree memory as awake: 1\nwrong words: 0\n");
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(a_thread_ends_and_a_region_is_invalidated_while_the_process_is_asleep)
{
	play_run(&(struct play){.program = "app_sleep",
		.words = {"ends-asleep"},
		.env = vmm,
		.preload = play_library,
		.at_pause = invalidate_region});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_lt(play_fact("asleep"), POOLED);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(threads_at_work_find_their_content_while_others_put_the_process_to_sleep)
{
	const char *env[] = {VMM, GPU, "APP_STEPS=160", NULL};

	play_sleep("threads", env, NULL);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong blocks: 0\n"));
	ck_assert_uint_gt(play_fact("sleeps and wakes"), 0);
	ck_assert_uint_eq(play_fact("failed"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, a_process_asleep_holds_only_its_context_and_has_its_content_awake);
	tcase_add_test(tc, the_commands_put_a_process_to_sleep_and_wake_it);
	tcase_add_test(tc, an_idle_process_sleeps_by_itself_and_a_kernel_that_has_not_ended_keeps_it_awake);
	tcase_add_test(tc, an_idle_process_without_a_server_sleeps_by_itself);
	tcase_add_test(tc, an_idle_process_that_cannot_sleep_says_so_once);
	tcase_add_test(tc, a_kernel_that_has_not_ended_keeps_a_process_awake);
	tcase_add_test(tc, a_sleep_without_a_bound_ends_when_the_kernel_that_it_waits_for_waits_for_the_program);
	tcase_add_test(tc, a_graph_is_right_after_its_memory_was_asleep_and_a_capture_keeps_a_process_awake);
	tcase_add_test(tc, memory_can_be_freed_and_asked_about_asleep_and_an_allocation_wakes);
	tcase_add_test(tc, queries_about_pointers_have_the_same_answers_asleep_and_do_not_wake);
	tcase_add_loop_test(tc, a_call_in_which_the_driver_examines_memory_wakes_the_process_first, 0, LENGTH(waking));
	tcase_add_test(tc, host_memory_beyond_the_bound_is_unpinned_asleep_and_pinned_again_by_the_wake);
	tcase_add_test(tc, kept_host_memory_serves_the_next_sleep_and_goes_back_if_it_does_not_fit_or_the_context_ends);
	tcase_add_loop_test(tc, a_process_asleep_resets_exits_and_forks_as_without_the_library, 0, LENGTH(ends));
	tcase_add_loop_test(
		tc, a_process_asleep_wakes_for_the_end_of_a_context_whose_memory_outlives_it, 0, LENGTH(owners));
	tcase_add_loop_test(tc, memory_that_is_asleep_ends_with_its_context_if_it_cannot_wake, 0, LENGTH(owners));
	tcase_add_test(tc, a_process_with_more_contexts_than_gpupool_can_ask_about_does_not_sleep);
	tcase_add_test(tc, all_contexts_and_devices_of_a_process_sleep_and_wake_together);
	tcase_add_test(tc, content_that_is_dropped_is_zero_when_the_process_wakes_and_the_rest_is_kept);
	tcase_add_test(tc, a_process_that_was_stopped_does_not_carry_out_a_sleep_that_came_too_late);
	tcase_add_loop_test(tc, a_process_that_cannot_sleep_says_why_and_stays_as_it_is, 0, LENGTH(refusals));
	tcase_add_test(tc, an_allocation_asleep_for_which_the_device_has_no_room_fails_as_awake);
	tcase_add_test(tc, the_free_memory_of_a_process_that_wakes_is_that_of_one_that_is_awake);
	tcase_add_test(tc, a_thread_ends_and_a_region_is_invalidated_while_the_process_is_asleep);
	tcase_add_test(tc, threads_at_work_find_their_content_while_others_put_the_process_to_sleep);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"sleep", add}, 1);
}
