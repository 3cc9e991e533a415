/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Out of memory while other processes, or other contexts of the process, have memory cached. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "play.h"

#define WAITING "SIMGPU_MEMORY=1GiB", "SIMGPU_SHARED=gpu", "GPUPOOL_RESERVE=0"
#define SHARED  WAITING, "GPUPOOL_OOM_WAIT=0"
#define QUIET   "GPUPOOL_LOG=error"

static const char *const kinds[] = {
	"GPUPOOL_POOL=simple", "GPUPOOL_POOL=binned", "GPUPOOL_POOL=split", "GPUPOOL_POOL=vmm"};

static void play_others(const char *scenario, const char *const *env, void (*at_pause)(const char *name))
{
	play_run(&(struct play){.program = "app_others",
		.words = {scenario},
		.env = env,
		.preload = play_library,
		.at_pause = at_pause});
	ck_assert_int_eq(play_status, 0);
}

static uint64_t given, got;

/* Returns how many bytes a round gained, according to an answer to "status". */
static uint64_t gain_of(const char *status, const char *round)
{
	char key[64];
	const char *at;

	snprintf(key, sizeof(key), "\"name\":\"%s\"", round);
	at = strstr(status, key);
	ck_assert_msg(at, "expected the round %s in: %s", round, status);
	return play_number(at, "gained_bytes");
}

static void read_both(const char *name)
{
	got = gain_of(play_ask_pid((unsigned)play_fact("own pid"), "status"), "processes");
	given = play_number(play_ask_pid((unsigned)play_fact("child's pid"), "status"), "yielded_bytes");
}

static char limit_source[64];

static void read_source(const char *name)
{
	const char *answer = play_ask("status");
	const char *at = strstr(answer, "\"limit_variables\":");

	(void)name;
	ck_assert_ptr_nonnull(at);
	snprintf(limit_source, sizeof(limit_source), "%.*s", (int)strcspn(at, ",}"), at);
	/* Another limit is no longer that of the variables. */
	ck_assert_ptr_nonnull(strstr(play_ask("limit set 512MiB"), "gpupool.limit/"));
	ck_assert_ptr_nonnull(strstr(play_ask("status"), "\"limit_variables\":null"));
}

static const struct {
	const char *settings[3], *source;
	uint64_t hidden_mib; /* of the neighbour's 600 MiB: what does not show */
} views[] = {
	{{"GPU_MEMORY_LIMIT=805306368"}, "\"limit_variables\":\"GPU_MEMORY_LIMIT\"", 600},
	{{"GPUPOOL_LIMIT=768MiB", "GPUPOOL_VIEW=own"}, "\"limit_variables\":null", 600},
	{{"GPUPOOL_LIMIT=768MiB"}, "\"limit_variables\":null", 0},
	{{"GPU_MEMORY_LIMIT=805306368", "GPUPOOL_VIEW=device"}, "\"limit_variables\":\"GPU_MEMORY_LIMIT\"", 0},
};

/* The device has 1 GiB, the limit is 768 MiB, and the neighbour holds 600 MiB. */
START_TEST(with_a_scheduler_the_program_sees_its_limit_less_its_own_memory)
{
	const char *env[] = {"GPUPOOL_POOL=split", QUIET, SHARED, views[_i].settings[0], views[_i].settings[1], NULL};
	uint64_t limit = 768 * MIB;

	play_others("view", env, read_source);
	ck_assert_str_eq(limit_source, views[_i].source);
	ck_assert_uint_eq(play_fact("total"), limit);
	ck_assert_uint_eq(play_fact("before"), limit);
	if (views[_i].hidden_mib) {
		ck_assert_uint_eq(play_fact("during"), limit);
		ck_assert_uint_eq(play_fact("after"), limit - 64 * MIB);
	} else {
		ck_assert_uint_le(play_fact("during"), 1024 * MIB - 600 * MIB);
		ck_assert_uint_le(play_fact("after"), 1024 * MIB - 664 * MIB);
	}
}
END_TEST

START_TEST(another_process_releases_its_cache_on_an_out_of_memory)
{
	const char *env[] = {kinds[_i], QUIET, SHARED, NULL};

	play_others("releases", env, read_both);
	ck_assert_str_eq(play_err, "");
	ck_assert_uint_eq(play_fact("large request"), 0);
	ck_assert_uint_ge(given, 280 * MIB);
	ck_assert_uint_eq(got, given);
	ck_assert_uint_eq(play_fact("child"), 0);
}
END_TEST

static const char *const refusals[] = {"GPUPOOL_YIELD=off", "GPUPOOL_SOCKET=off"};

START_TEST(with_yield_or_socket_off_a_process_neither_asks_nor_releases)
{
	const char *env[] = {refusals[_i], QUIET, SHARED, NULL};

	play_others("releases", env, NULL);
	ck_assert_uint_eq(play_fact("large request"), 2);
	ck_assert_uint_eq(play_fact("child"), 0);
}
END_TEST

static char report[8192];

static void take_report(const char *name)
{
	snprintf(report, sizeof(report), "%s", play_ask_pid((unsigned)play_fact("own pid"), "oom"));
}

START_TEST(memory_in_use_elsewhere_stays_and_the_report_names_the_process_asked)
{
	const char *env[] = {SHARED, NULL};
	const char *asked;

	play_others("nothing-cached", env, take_report);
	ck_assert_uint_eq(play_fact("large request"), 2);
	asked = strstr(report, "\"processes\":[{\"pid\":");
	ck_assert_msg(asked, "%s", report);
	ck_assert_ptr_nonnull(strstr(asked, "\"answered\":true,\"released_bytes\":0"));
	ck_assert_ptr_nonnull(strstr(play_err, "asked: process "));
	ck_assert_ptr_nonnull(strstr(play_err, " released 0"));
}
END_TEST

START_TEST(a_process_found_by_two_names_of_one_directory_is_asked_once)
{
	char runtime[64], xdg[64];
	const char *env[] = {runtime, xdg, SHARED, NULL}, *asked;

	snprintf(runtime, sizeof(runtime), "GPUPOOL_RUNTIME_DIR=%s/gpupool", play_dir);
	snprintf(xdg, sizeof(xdg), "XDG_RUNTIME_DIR=%s", play_dir);
	play_others("nothing-cached", env, NULL);
	asked = strstr(play_err, "asked: process ");
	ck_assert_msg(asked, "%s", play_err);
	ck_assert_msg(strcspn(asked, ",") > strcspn(asked, "\n"), "%s", play_err);
}
END_TEST

static void read_yield(const char *name)
{
	got = gain_of(play_ask_pid((unsigned)play_fact("own pid"), "status"), "processes");
}

START_TEST(a_stopped_process_does_not_keep_others_from_being_asked)
{
	const char *env[] = {QUIET, SHARED, NULL};

	play_others("stopped", env, read_yield);
	ck_assert_uint_eq(play_fact("large request"), 0);
	ck_assert_uint_gt(got, 150 * MIB);
	ck_assert_uint_eq(play_fact("second large request"), 2);
}
END_TEST

START_TEST(an_allocation_succeeds_after_the_process_with_the_cache_was_killed)
{
	const char *env[] = {QUIET, SHARED, NULL};

	play_others("killed", env, NULL);
	ck_assert_uint_eq(play_fact("large request"), 0);
}
END_TEST

START_TEST(two_processes_that_ask_each_other_at_once_both_get_an_answer)
{
	const char *env[] = {kinds[_i], QUIET, SHARED, NULL};

	play_others("ask-each-other", env, NULL);
	ck_assert_str_eq(play_err, "");
}
END_TEST

static const struct {
	const char *scenario;
	uint64_t requests;
} impostors[] = {
	{"silent", 1}, /* not asked again after that */
	{"hangs-up", 2},
	{"impossible-number", 2},
	{"overstates", 4}, /* a process that has answered may be asked to sleep, too */
	{"endless-answer", 2},
};

START_TEST(a_missing_or_invalid_answer_of_a_process_is_ignored)
{
	const char *env[] = {QUIET, SHARED, NULL};

	play_others(impostors[_i].scenario, env, NULL);
	ck_assert_uint_eq(play_fact("large request"), 2);
	ck_assert_uint_eq(play_fact("second large request"), 2);
	ck_assert_uint_eq(play_fact("requests"), impostors[_i].requests);
}
END_TEST

START_TEST(another_users_process_is_not_asked)
{
	const char *env[] = {QUIET, SHARED, NULL};

	play_others("foreign", env, NULL);
	if (!play_fact("is root"))
		return;
	ck_assert_uint_eq(play_fact("large request"), 2);
	ck_assert_uint_eq(play_fact("child"), 0);
}
END_TEST

/* A setting of TMPDIR in which another user, too, may create a directory for sockets. */
static char shared_tmpdir[64];

static void make_shared_tmpdir(void)
{
	static const char name[] = "TMPDIR=";

	snprintf(shared_tmpdir, sizeof(shared_tmpdir), "%s/tmp/gpupool-yield-XXXXXX", name);
	ck_assert_ptr_nonnull(mkdtemp(shared_tmpdir + strlen(name)));
	ck_assert_int_eq(chmod(shared_tmpdir + strlen(name), 01777), 0);
}

static void remove_shared_tmpdir(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf -- \"%s\"", strchr(shared_tmpdir, '/'));
	ck_assert_int_eq(system(command), 0);
}

static const struct {
	const char *yield;
	uint64_t asked;
} yields[] = {{"GPUPOOL_YIELD=all", 0}, {"GPUPOOL_YIELD=on", 2}, {"GPUPOOL_YIELD=off", 2}};

START_TEST(with_yield_all_root_gets_cached_memory_of_other_users_processes)
{
	const char *env[] = {yields[_i].yield, shared_tmpdir, QUIET, SHARED, NULL};

	play_others("other-user-releases", env, NULL);
	ck_assert_uint_eq(play_fact("large request"), yields[_i].asked);
	ck_assert_uint_eq(play_fact("child"), 0);
}
END_TEST

START_TEST(the_report_names_the_user_of_each_process_that_was_asked)
{
	const char *env[] = {"GPUPOOL_YIELD=all", shared_tmpdir, SHARED, NULL};

	play_others("other-user-nothing-cached", env, take_report);
	ck_assert_uint_eq(play_fact("large request"), 2);
	ck_assert_ptr_nonnull(strstr(play_err, " of user 65534 released 0"));
	ck_assert_msg(strstr(report, "\"uid\":65534,\"answered\":true,\"released_bytes\":0"), "%s", report);
}
END_TEST

START_TEST(root_follows_no_link_in_another_users_socket_directory)
{
	const char *env[] = {"GPUPOOL_YIELD=all", shared_tmpdir, QUIET, SHARED, NULL};

	play_others("other-user-links", env, NULL);
	ck_assert_uint_eq(play_fact("large request"), 2);
	ck_assert_uint_eq(play_fact("requests"), 0);
}
END_TEST

START_TEST(unresponsive_processes_of_the_same_user_are_asked_once_each)
{
	const char *env[] = {QUIET, SHARED, NULL};

	play_others("own-crowd", env, NULL);
	ck_assert_uint_eq(play_fact("connections"), 40);
}
END_TEST

START_TEST(an_unresponsive_process_of_another_user_is_asked_once_for_all_its_sockets)
{
	const char *env[] = {"GPUPOOL_YIELD=all", shared_tmpdir, QUIET, SHARED, NULL};

	play_others("other-user-names", env, NULL);
	ck_assert_uint_eq(play_fact("connections"), 1);
}
END_TEST

START_TEST(another_user_is_not_asked_again_after_eight_unresponsive_processes)
{
	const char *env[] = {"GPUPOOL_YIELD=all", shared_tmpdir, QUIET, SHARED, NULL};

	play_others("other-user-crowd", env, NULL);
	ck_assert_uint_eq(play_fact("connections"), 8);
}
END_TEST

static uint64_t n_waits;

static void read_waits(const char *name)
{
	const char *status = play_ask_pid((unsigned)play_fact("own pid"), "status"), *key = "\"name\":\"neighbours\"";
	const char *at = strstr(status, key);

	ck_assert_msg(at, "expected the round in: %s", status);
	n_waits = play_number(at, "count");
	got = play_number(at, "gained_bytes");
	take_report(name);
}

static const char *const waits[] = {"waits", "waits-for-end", "ends-meanwhile"};

START_TEST(an_allocation_waits_until_another_process_frees_memory_or_ends)
{
	const char *env[] = {kinds[_i % (int)LENGTH(kinds)], QUIET, WAITING, NULL};

	play_others(waits[_i / (int)LENGTH(kinds)], env, read_waits);
	ck_assert_str_eq(play_err, "");
	ck_assert_uint_eq(play_fact("large request"), 0);
	ck_assert_uint_eq(n_waits, 1);
	ck_assert_uint_ge(got, 700 * MIB);
	ck_assert_uint_eq(play_fact("child"), 0);
}
END_TEST

START_TEST(two_processes_of_up_to_14_units_with_22_units_left_for_them_finish)
{
	const char *env[] = {kinds[_i], QUIET, WAITING, NULL};

	play_others("leave-22", env, NULL);
	ck_assert_str_eq(play_err, "");
	ck_assert_uint_eq(play_fact("failed"), 0);
}
END_TEST

START_TEST(processes_that_wait_for_each_other_fail_with_a_message_that_names_the_other)
{
	const char *env[] = {WAITING, NULL}, *waited;

	play_others("wait-for-each-other", env, read_waits);
	ck_assert_uint_eq(play_fact("large request"), 2);
	ck_assert_uint_eq(play_fact("child"), 2 << 8);
	ck_assert_uint_eq(n_waits, 1);
	ck_assert_ptr_nonnull(strstr(report, "\"wait\":\"waited\""));
	ck_assert_ptr_nonnull(strstr(report, "\"held_bytes\":"));
	waited = strstr(play_err, "  waited: ");
	ck_assert_msg(waited && strstr(waited, " ms for process ") && strstr(waited, ", which holds "), "%s", play_err);
}
END_TEST

static const struct {
	const char *scenario, *setting, *wait;
} no_waits[] = {
	{"limited", "GPUPOOL_OOM_WAIT=auto", "\"wait\":null"},
	{"captures", "GPUPOOL_OOM_WAIT=auto", "\"wait\":\"capture\""},
	{"too-little", "GPUPOOL_OOM_WAIT=auto", "\"wait\":\"too-little\""},
	{"nothing-cached", "GPUPOOL_OOM_WAIT=0", "\"wait\":null"},
	{"nothing-cached", "GPUPOOL_YIELD=off", "\"wait\":null"},
};

START_TEST(an_allocation_fails_at_once_if_a_wait_for_other_processes_is_pointless_or_forbidden)
{
	const char *env[] = {no_waits[_i].setting, QUIET, WAITING, NULL};

	play_others(no_waits[_i].scenario, env, read_waits);
	ck_assert_uint_eq(play_fact("large request"), 2);
	ck_assert_uint_eq(n_waits, 0);
	ck_assert_msg(strstr(report, no_waits[_i].wait), "%s", report);
}
END_TEST

#define RESTING \
	"GPUPOOL_POOL=vmm", "SIMGPU_MEMORY=64MiB", "SIMGPU_SHARED=gpu", "GPUPOOL_RESERVE=0", "GPUPOOL_OOM_WAIT=0"

static char sleeper[4096];

/* The member of the state of sleep. */
static uint64_t sleep_fact(const char *status, const char *name)
{
	const char *sleep = strstr(status, "\"sleep\":{");

	ck_assert_msg(sleep, "%s", status);
	return play_number(sleep, name);
}

enum { TRIES = 3000, TRY_US = 10000 };

/* The memory serves another process before all of it has moved. */
static void await_asleep(const char *pid_fact)
{
	*sleeper = '\0';
	for (int i = 0; i < TRIES && !strstr(sleeper, "\"state\":\"asleep\""); i++) {
		usleep(*sleeper ? TRY_US : 0);
		snprintf(sleeper, sizeof(sleeper), "%s", play_ask_pid((unsigned)play_fact(pid_fact), "status"));
	}
	ck_assert_msg(strstr(sleeper, "\"state\":\"asleep\""), "%.800s", sleeper);
}

static void read_sleeper(const char *name)
{
	(void)name;
	await_asleep("child's pid");
	got = gain_of(play_ask_pid((unsigned)play_fact("own pid"), "status"), "sleepers");
}

START_TEST(an_idle_process_with_the_setting_sleeps_for_an_allocation_of_another_process)
{
	const char *env[] = {"GPUPOOL_SLEEP=on", "GPUPOOL_LOG=info", RESTING, NULL};

	play_others("rests", env, read_sleeper);
	ck_assert_uint_eq(play_fact("large request"), 0);
	ck_assert_uint_eq(play_fact("wrong words"), 0);
	ck_assert_uint_eq(play_fact("child"), 0);
	ck_assert_uint_eq(sleep_fact(sleeper, "asked_sleeps"), 1);
	ck_assert_uint_eq(sleep_fact(sleeper, "idle_sleeps"), 0);
	ck_assert_uint_ge(got, 40 * MIB);
	ck_assert_msg(strstr(play_err, "out of memory: asked process "), "%s", play_err);
}
END_TEST

static void check_asleep(const char *name)
{
	char uuid[64] = "", request[128];
	const char *status = play_ask_pid((unsigned)play_fact("own pid"), "status"), *at = strstr(status, "\"GPU-");
	size_t n = 0;

	for (at = at ? at + strlen("\"GPU-") : ""; *at && *at != '"' && n < 32; at++)
		if (*at != '-')
			uuid[n++] = *at;
	if (strcmp(name, "asleep") == 0) {
		await_asleep("own pid");
		return;
	}
	ck_assert_uint_eq(sleep_fact(status, "wakes"), 1);
	/* Not asked again before it has been awake for 10 s. */
	snprintf(request, sizeof(request), "rest %s 0", uuid);
	ck_assert_uint_eq(play_number(play_ask_pid((unsigned)play_fact("own pid"), request), "held_bytes"), 0);
	snprintf(sleeper, sizeof(sleeper), "%s", play_ask_pid((unsigned)play_fact("child's pid"), "status"));
}

START_TEST(a_process_that_wakes_short_of_memory_has_the_idle_one_that_took_it_sleep_in_turn)
{
	const char *env[] = {"GPUPOOL_SLEEP=on", RESTING, NULL};

	play_others("rests-in-turn", env, check_asleep);
	ck_assert_uint_eq(play_fact("wrong blocks"), 0);
	ck_assert_uint_eq(play_fact("child"), 0);
	ck_assert_uint_eq(sleep_fact(sleeper, "asked_sleeps"), 1);
	ck_assert_msg(strstr(play_err, "waking: waiting for 4"), "%s", play_err);
}
END_TEST

START_TEST(an_allocation_gets_the_memory_of_a_process_that_is_killed_as_it_falls_asleep_for_it)
{
	const char *env[] = {"GPUPOOL_SLEEP=on", "GPUPOOL_LOG=info", RESTING, NULL};

	play_others("dies-resting", env, NULL);
	ck_assert_uint_eq(play_fact("large request"), 0);
	ck_assert_uint_eq(play_fact("wrong words"), 0);
	ck_assert_uint_eq(play_fact("child"), SIGKILL);
	ck_assert_msg(strstr(play_err, "out of memory: asked process "), "%s", play_err);
}
END_TEST

START_TEST(two_processes_that_ask_each_other_to_sleep_at_once_both_get_an_answer)
{
	const char *env[] = {"GPUPOOL_SLEEP=on", QUIET, RESTING, NULL};

	play_others("rest-for-each-other", env, NULL);
	ck_assert_str_eq(play_err, "");
	ck_assert_uint_eq(play_fact("child"), 0);
}
END_TEST

static void read_contexts(const char *name)
{
	const char *status = play_ask("status");

	given = gain_of(status, "contexts");
	got = gain_of(strstr(status, "\"pinned\":{"), "contexts");
}

START_TEST(other_contexts_of_the_process_release_their_caches_on_an_out_of_memory)
{
	const char *env[] = {kinds[_i], QUIET, "SIMGPU_MEMORY=1GiB", "GPUPOOL_RESERVE=0", NULL};

	play_others("contexts", env, read_contexts);
	ck_assert_uint_eq(play_fact("large request"), 0);
	ck_assert_uint_ge(given, 280 * MIB);
	ck_assert_uint_eq(play_fact("pinned"), 0);
	ck_assert_uint_ge(got, 36 * MIB);
}
END_TEST

static void add_processes(TCase *tc)
{
	int n = (int)LENGTH(kinds);

	tcase_add_loop_test(tc, with_a_scheduler_the_program_sees_its_limit_less_its_own_memory, 0, (int)LENGTH(views));
	tcase_add_loop_test(tc, another_process_releases_its_cache_on_an_out_of_memory, 0, n);
	tcase_add_loop_test(tc, with_yield_or_socket_off_a_process_neither_asks_nor_releases, 0, (int)LENGTH(refusals));
	tcase_add_test(tc, memory_in_use_elsewhere_stays_and_the_report_names_the_process_asked);
	tcase_add_test(tc, a_process_found_by_two_names_of_one_directory_is_asked_once);
	tcase_add_test(tc, a_stopped_process_does_not_keep_others_from_being_asked);
	tcase_add_test(tc, an_allocation_succeeds_after_the_process_with_the_cache_was_killed);
	tcase_add_loop_test(tc, two_processes_that_ask_each_other_at_once_both_get_an_answer, 0, n);
	tcase_add_loop_test(tc, a_missing_or_invalid_answer_of_a_process_is_ignored, 0, (int)LENGTH(impostors));
	tcase_add_loop_test(
		tc, an_allocation_waits_until_another_process_frees_memory_or_ends, 0, n * (int)LENGTH(waits));
	tcase_add_loop_test(tc, two_processes_of_up_to_14_units_with_22_units_left_for_them_finish, 0, n);
	tcase_add_test(tc, processes_that_wait_for_each_other_fail_with_a_message_that_names_the_other);
	tcase_add_loop_test(tc, an_allocation_fails_at_once_if_a_wait_for_other_processes_is_pointless_or_forbidden, 0,
		(int)LENGTH(no_waits));
	tcase_add_test(tc, an_idle_process_with_the_setting_sleeps_for_an_allocation_of_another_process);
	tcase_add_test(tc, a_process_that_wakes_short_of_memory_has_the_idle_one_that_took_it_sleep_in_turn);
	tcase_add_test(tc, an_allocation_gets_the_memory_of_a_process_that_is_killed_as_it_falls_asleep_for_it);
	tcase_add_test(tc, two_processes_that_ask_each_other_to_sleep_at_once_both_get_an_answer);
	tcase_add_test(tc, another_users_process_is_not_asked);
	tcase_add_test(tc, unresponsive_processes_of_the_same_user_are_asked_once_each);
	if (geteuid() != 0) {
		printf("# other users' processes: not shown, since only root can ask them\n");
		return;
	}
	tcase_add_checked_fixture(tc, make_shared_tmpdir, remove_shared_tmpdir);
	tcase_add_loop_test(
		tc, with_yield_all_root_gets_cached_memory_of_other_users_processes, 0, (int)LENGTH(yields));
	tcase_add_test(tc, the_report_names_the_user_of_each_process_that_was_asked);
	tcase_add_test(tc, root_follows_no_link_in_another_users_socket_directory);
	tcase_add_test(tc, an_unresponsive_process_of_another_user_is_asked_once_for_all_its_sockets);
	tcase_add_test(tc, another_user_is_not_asked_again_after_eight_unresponsive_processes);
}

static void add(TCase *tc)
{
	tcase_add_loop_test(
		tc, other_contexts_of_the_process_release_their_caches_on_an_out_of_memory, 0, (int)LENGTH(kinds));
	if (getenv(EMULATOR))
		printf("# other processes: not in an emulator, where they cannot start one another\n");
	else
		add_processes(tc);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"others", add}, 1);
}
