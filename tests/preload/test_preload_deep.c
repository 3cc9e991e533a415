/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Deep sleep: gpupool-stat has the driver take a process out of the device, and bring it back. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "play.h"
#include "tests/sim/ledger.h"

#define POOLED ((uint64_t)28 * MIB) /* of the blocks of app_sleep, by chunks */

static char stat_text[64 * 1024];

/* Runs gpupool-stat, which shares the simulated device with the program. Returns its exit status. */
static int run_stat(const char *words)
{
	return play_run_stat(words, stat_text, sizeof(stat_text));
}

static void check_says(const char *text)
{
	ck_assert_msg(strstr(stat_text, text), "expected '%s' in: %.2000s", text, stat_text);
}

/* Runs gpupool-stat, and asserts its exit status and a part of its output. */
static void check_stat(const char *words, int status, const char *text)
{
	int actual = run_stat(words);

	ck_assert_msg(actual == status, "%s: exit status %d: %.2000s", words, actual, stat_text);
	check_says(text);
}

/* With this fault, calls of gpupool-stat to the driver fail. */
static void check_fault(const char *fault, const char *words, int status, const char *text)
{
	setenv("SIMGPU_FAULT", fault, 1);
	check_stat(words, status, text);
	unsetenv("SIMGPU_FAULT");
}

static const char *state(void)
{
	const char *answer = play_ask("status"), *sleep = strstr(answer, "\"sleep\":{");

	ck_assert_ptr_nonnull(sleep);
	if (strstr(sleep, "\"deep\":true"))
		return "deep";
	return strstr(sleep, "\"state\":\"asleep\"") ? "asleep" : "awake";
}

static char shared[64], shared_variable[96];

/* Runs the program, which shares its device with gpupool-stat by the file of the simulator. */
static void play_deep(const char *scenario, const char *const *more, void (*at_pause)(const char *name))
{
	const char *env[8] = {"GPUPOOL_POOL=vmm", "SIMGPU_LATENCY=cuEventQuery=100000", shared_variable, NULL};
	char libraries[2 * 4096];

	for (size_t i = 0; more && more[i]; i++)
		env[3 + i] = more[i];
	snprintf(shared, sizeof(shared), "%s.gpu", play_dir);
	snprintf(shared_variable, sizeof(shared_variable), "SIMGPU_SHARED=%s", shared);
	snprintf(libraries, sizeof(libraries), "%s:%s/nvml", play_sim_dir, play_sim_dir);
	setenv("LD_LIBRARY_PATH", libraries, 1);
	setenv("SIMGPU_SHARED", shared, 1);
	play_run(&(struct play){.program = "app_sleep",
		.words = {scenario},
		.env = env,
		.preload = play_library,
		.at_pause = at_pause});
	(void)unlink(shared);
}

static void check_ended_well(void)
{
	ck_assert_msg(play_status == 0, "status %d: %s", play_status, play_err);
	ck_assert_msg(strstr(play_out, "wrong words: 0\n"), "%s", play_out);
	ck_assert_uint_eq(play_fact("races"), 0);
}

/* Bytes that the processes hold of the simulated device, as NVML would say: gpupool-stat itself holds none. */
static uint64_t device_bytes(void)
{
	uint64_t bytes = 0;
	int fd = open(shared, O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &bytes, sizeof(bytes), offsetof(struct sim_ledger_file, rows)), sizeof(bytes));
	(void)close(fd);
	return bytes;
}

static const struct {
	const char *words, *text;
} views[] = {
	{"status", "deep asleep for "},
	{"list", " deep\n"},
	{"list --json", "\"deep\":true"},
	{"metrics", "gpupool_deep_asleep_seconds{"},
	{"blocks", "16.0 MiB"},
	{"map", "MiB"},
};

static void deep_by_command(const char *name)
{
	char words[64];

	if (strcmp(name, "awake") == 0) {
		ck_assert_uint_gt(device_bytes(), POOLED);
		check_stat("sleep --deep", 0, "asleep: gave 28.0 MiB to the driver");
		check_says("deep asleep: the driver took out ");
		ck_assert_uint_eq(device_bytes(), 0);
		check_stat("sleep --deep", 0, "the process was deep asleep already\n");
		check_stat("sleep", 0, "the process was asleep already\n");
		return;
	}
	for (size_t i = 0; i < LENGTH(views); i++)
		check_stat(views[i].words, 0, views[i].text);
	snprintf(words, sizeof(words), "report %u", (unsigned)play_number(play_ask("status"), "pid"));
	check_stat(words, 0, "deep asleep for ");
	/* Requests that would call the driver are refused, and the server stays responsive. */
	check_stat("reclaim", 1, "wake it first: gpupool-stat wake ");
	check_stat("limit set 8MiB", 1, "deep asleep");
	ck_assert_ptr_nonnull(strstr(play_ask("wanted GPU-0 1"), "deep asleep"));
	ck_assert_ptr_nonnull(strstr(play_ask("wake 0"), "only gpupool-stat wake wakes it"));
	check_stat("wake", 0, "not deep asleep any more: the driver brought back ");
	check_says("awake: ");
	ck_assert_str_eq(state(), "awake");
	check_stat("wake", 0, "the process was awake already\n");
}

START_TEST(a_deep_sleeper_holds_nothing_of_the_device_and_its_calls_wait_for_the_command_that_wakes_it)
{
	play_deep("deep", NULL, deep_by_command);
	check_ended_well();
	ck_assert_uint_eq(play_fact("wake"), EBUSY);
	ck_assert_uint_eq(play_fact("sleep"), 0);
	ck_assert_uint_eq(play_fact("returned"), 0);
}
END_TEST

/*
 * The driver refuses a step: what the pool gave stays asleep, and the rest is where it was. The numbers of calls are
 * those of the first run of gpupool-stat, each of which counts from 1.
 */
static const struct {
	const char *fault, *text;
} refusals[] = {
	{"cuInit:1=100", "the driver does not work here: cuInit returned error 100"},
	{"cuCheckpointProcessGetState:1=3", "another pid namespace"},
	{"cuCheckpointProcessGetState:1=304", "the driver did not reach the process"},
	{"cuCheckpointProcessLock:1=600", "a CUDA call of the process did not return in time"},
	{"cuCheckpointProcessLock:1=800", "the right to trace it"},
	{"cuCheckpointProcessCheckpoint:1=801", "memory that is shared between processes"},
	{"cuCheckpointProcessCheckpoint:1=2", "the driver was short of memory"},
};

static int row;

static void be_refused(const char *name)
{
	if (strcmp(name, "awake") != 0)
		return;
	check_fault(refusals[row].fault, "sleep --deep", 1, refusals[row].text);
	check_says("asleep: gave 28.0 MiB to the driver");
	check_says(" is not deep asleep: ");
	ck_assert_str_eq(state(), "asleep");
}

START_TEST(a_process_that_the_driver_does_not_take_out_sleeps_as_usual_and_its_work_wakes_it)
{
	row = _i;
	play_deep("asked", NULL, be_refused);
	check_ended_well();
}
END_TEST

static void find_old_driver(const char *name)
{
	if (strcmp(name, "awake") != 0)
		return;
	setenv("SIMGPU_DRIVER_VERSION", "12060", 1);
	check_stat("sleep --deep", 1, "the driver is too old");
	unsetenv("SIMGPU_DRIVER_VERSION");
	setenv("LD_LIBRARY_PATH", "/nonexistent", 1);
	check_stat("sleep --deep --json", 1, "libcuda.so.1 cannot be loaded here");
	check_says("\"deep\":false");
	ck_assert_str_eq(state(), "asleep");
}

START_TEST(an_old_driver_or_none_leaves_the_pools_sleep)
{
	play_deep("asked", NULL, find_old_driver);
	check_ended_well();
}
END_TEST

/* A wake fails in the driver, or ends between two of its steps. The next one goes on from the driver's state. */
static const struct {
	const char *fault, *text;
} cuts[] = {
	{"cuCheckpointProcessRestore:1=2", "the process stays deep asleep"},
	{"cuCheckpointProcessRestore:1=999", "cuCheckpointProcessRestore returned error 999"},
	{"cuCheckpointProcessUnlock:1=999", "cuCheckpointProcessUnlock returned error 999"},
};

static void cut_wake(const char *name)
{
	if (strcmp(name, "awake") == 0) {
		check_stat("sleep --deep", 0, "deep asleep: ");
		return;
	}
	check_fault(cuts[row].fault, "wake", 1, cuts[row].text);
	ck_assert_str_eq(state(), "deep");
	check_stat("wake", 0, "awake: ");
	ck_assert_str_eq(state(), "awake");
}

START_TEST(a_wake_that_the_driver_refused_or_that_was_cut_off_succeeds_the_next_time)
{
	row = _i;
	play_deep("deep", NULL, cut_wake);
	check_ended_well();
}
END_TEST

/* gpupool-stat ends after its first request of a deep sleep. */
static void leave_begun(const char *name)
{
	if (strcmp(name, "awake") == 0) {
		ck_assert_ptr_nonnull(strstr(play_ask("sleep 1000"), "\"was_so\":false"));
		ck_assert_ptr_nonnull(strstr(play_ask("deep begin"), "\"was_so\":false"));
		ck_assert_ptr_nonnull(strstr(play_ask("deep begin"), "\"was_so\":true"));
		ck_assert_str_eq(state(), "deep");
		if (row)
			check_stat("sleep --deep", 0, "deep asleep: the driver took out ");
		return;
	}
	check_stat("wake", 0, "awake: ");
}

START_TEST(a_deep_sleep_that_was_begun_alone_ends_with_a_wake_or_goes_on_with_another_sleep)
{
	row = _i;
	play_deep("deep", NULL, leave_begun);
	check_ended_well();
}
END_TEST

static void take_room(const char *name)
{
	if (strcmp(name, "awake") == 0) {
		check_stat("sleep --deep", 0, "deep asleep: ");
		/* The device shrinks for gpupool-stat and NVML alone, so the restore would find too little. */
		setenv("SIMGPU_MEMORY", "2M", 1);
		check_stat("wake --timeout=0.1", 1, "short of device memory: the driver needs ");
		check_says("the process stays deep asleep");
		unsetenv("SIMGPU_MEMORY");
		ck_assert_str_eq(state(), "deep");
		return;
	}
	/* Had the driver tried, it would refuse for good now. */
	check_stat("wake", 0, "awake: ");
}

START_TEST(a_wake_without_room_for_the_context_leaves_it_to_the_driver_and_succeeds_later)
{
	play_deep("deep", NULL, take_room);
	check_ended_well();
}
END_TEST

static void use_managed(const char *name)
{
	check_stat("sleep --deep", 1, "the process has used managed memory, which the driver does not take out");
	ck_assert_str_eq(state(), "asleep");
	ck_assert_uint_gt(device_bytes(), 0);
}

START_TEST(a_process_with_managed_memory_stays_in_the_pools_sleep_without_a_call_of_the_driver)
{
	play_deep("managed", NULL, use_managed);
	check_ended_well();
}
END_TEST

/* Does what another program would that uses the driver's checkpoints. */
static void call_driver(const char *function, pid_t pid)
{
	char path[4096];
	void *driver;
	int (*init)(unsigned), (*call)(int, const void *);

	snprintf(path, sizeof(path), "%s/libcuda.so.1", play_sim_dir);
	driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ck_assert_ptr_nonnull(driver);
	init = (int (*)(unsigned))dlsym(driver, "cuInit");
	call = (int (*)(int, const void *))dlsym(driver, function);
	ck_assert_int_eq(init(0), 0);
	ck_assert_int_eq(call(pid, NULL), 0);
}

static void be_held(const char *name)
{
	pid_t pid;

	if (strcmp(name, "awake") != 0)
		return;
	pid = (pid_t)play_number(play_ask("status"), "pid");
	call_driver("cuCheckpointProcessLock", pid);
	check_stat("wake --timeout=0.2", 1, "another program has the driver hold the process: its state is locked");
	call_driver("cuCheckpointProcessCheckpoint", pid);
	check_stat("sleep --deep --timeout=0.2", 1, "the driver hold the process: its state is checkpointed");
	check_says("is not asleep");
	call_driver("cuCheckpointProcessRestore", pid);
	call_driver("cuCheckpointProcessUnlock", pid);
	check_stat("sleep --deep", 0, "deep asleep: ");
	check_stat("wake", 0, "awake: ");
}

START_TEST(a_process_that_another_program_has_checkpointed_is_left_to_that_program)
{
	play_deep("asked", NULL, be_held);
	check_ended_well();
}
END_TEST

static void sleep_deep(const char *name)
{
	check_stat("sleep --deep", 0, "deep asleep: ");
}

START_TEST(a_deep_sleeper_can_fork_and_exit)
{
	play_deep("exits-deep", NULL, sleep_deep);
	ck_assert_msg(play_status == 0, "status %d: %s", play_status, play_err);
	ck_assert_uint_eq(play_fact("child"), 0);
}
END_TEST

static void kill_deep(const char *name)
{
	unsigned pid = (unsigned)play_number(play_ask("status"), "pid");

	check_stat("sleep --deep", 0, "deep asleep: ");
	/* Later than the end of this pause, which the process reads. */
	if (fork() == 0) {
		usleep(100000);
		_exit(kill((pid_t)pid, SIGKILL));
	}
}

START_TEST(a_deep_sleeper_that_is_killed_leaves_the_device_to_others)
{
	play_deep("killed-deep", NULL, kill_deep);
	ck_assert_int_eq(play_status, 128 + SIGKILL);
	check_stat("wake", 3, "no gpupool processes");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, a_deep_sleeper_holds_nothing_of_the_device_and_its_calls_wait_for_the_command_that_wakes_it);
	tcase_add_loop_test(tc, a_process_that_the_driver_does_not_take_out_sleeps_as_usual_and_its_work_wakes_it, 0,
		LENGTH(refusals));
	tcase_add_test(tc, an_old_driver_or_none_leaves_the_pools_sleep);
	tcase_add_loop_test(
		tc, a_wake_that_the_driver_refused_or_that_was_cut_off_succeeds_the_next_time, 0, LENGTH(cuts));
	tcase_add_loop_test(tc, a_deep_sleep_that_was_begun_alone_ends_with_a_wake_or_goes_on_with_another_sleep, 0, 2);
	tcase_add_test(tc, a_wake_without_room_for_the_context_leaves_it_to_the_driver_and_succeeds_later);
	tcase_add_test(tc, a_process_with_managed_memory_stays_in_the_pools_sleep_without_a_call_of_the_driver);
	tcase_add_test(tc, a_process_that_another_program_has_checkpointed_is_left_to_that_program);
	tcase_add_test(tc, a_deep_sleeper_can_fork_and_exit);
	tcase_add_test(tc, a_deep_sleeper_that_is_killed_leaves_the_device_to_others);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"deep", add}, 1);
}
