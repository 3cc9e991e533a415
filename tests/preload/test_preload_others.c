/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* What others on the device have cached, when memory has run out: other processes, and the process's other contexts. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "play.h"

#define SHARED "SIMGPU_MEMORY=1GiB", "SIMGPU_SHARED=gpu", "GPUPOOL_RESERVE=0"
#define QUIET  "GPUPOOL_LOG=error"

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

/* What a round yielded, by an answer to "status". */
static uint64_t yield_of(const char *status, const char *round)
{
	char key[64];
	const char *at;

	snprintf(key, sizeof(key), "\"name\":\"%s\"", round);
	at = strstr(status, key);
	ck_assert_msg(at, "no round %s in %s", round, status);
	return play_number(at, "yielded_bytes");
}

static void look_at_both(const char *name)
{
	got = yield_of(play_ask_pid((unsigned)play_fact("own pid"), "status"), "processes");
	given = play_number(play_ask_pid((unsigned)play_fact("child's pid"), "status"), "yielded_bytes");
}

START_TEST(another_process_gives_what_it_has_cached)
{
	const char *env[] = {kinds[_i], QUIET, SHARED, NULL};

	play_others("gives", env, look_at_both);
	ck_assert_str_eq(play_err, "");
	ck_assert_uint_eq(play_fact("asked"), 0);
	ck_assert_uint_ge(given, 280 * MIB);
	ck_assert_uint_eq(got, given);
	ck_assert_uint_eq(play_fact("child"), 0);
}
END_TEST

static const char *const refusals[] = {"GPUPOOL_YIELD=off", "GPUPOOL_SOCKET=off"};

START_TEST(who_does_not_want_to_neither_asks_nor_gives)
{
	const char *env[] = {refusals[_i], QUIET, SHARED, NULL};

	play_others("gives", env, NULL);
	ck_assert_uint_eq(play_fact("asked"), 2);
	ck_assert_uint_eq(play_fact("child"), 0);
}
END_TEST

static char report[8192];

static void take_report(const char *name)
{
	snprintf(report, sizeof(report), "%s", play_ask_pid((unsigned)play_fact("own pid"), "oom"));
}

START_TEST(what_another_process_uses_stays_its_own_and_the_report_says_that_it_was_asked)
{
	const char *env[] = {SHARED, NULL};
	const char *asked;

	play_others("has-nothing", env, take_report);
	ck_assert_uint_eq(play_fact("asked"), 2);
	asked = strstr(report, "\"processes\":[{\"pid\":");
	ck_assert_msg(asked, "%s", report);
	ck_assert_ptr_nonnull(strstr(asked, "\"answered\":true,\"released_bytes\":0"));
	ck_assert_ptr_nonnull(strstr(play_err, "asked: process "));
	ck_assert_ptr_nonnull(strstr(play_err, " gave 0"));
}
END_TEST

START_TEST(a_process_whose_socket_is_in_two_places_that_are_one_is_asked_once)
{
	char runtime[64], xdg[64];
	const char *env[] = {runtime, xdg, SHARED, NULL}, *asked;

	snprintf(runtime, sizeof(runtime), "GPUPOOL_RUNTIME_DIR=%s/gpupool", play_dir);
	snprintf(xdg, sizeof(xdg), "XDG_RUNTIME_DIR=%s", play_dir);
	play_others("has-nothing", env, NULL);
	asked = strstr(play_err, "asked: process ");
	ck_assert_msg(asked, "%s", play_err);
	ck_assert_msg(strcspn(asked, ",") > strcspn(asked, "\n"), "%s", play_err);
}
END_TEST

static void look_at_stopped(const char *name)
{
	got = yield_of(play_ask_pid((unsigned)play_fact("own pid"), "status"), "processes");
}

START_TEST(a_process_that_is_stopped_keeps_nobody_from_asking_the_others)
{
	const char *env[] = {QUIET, SHARED, NULL};

	play_others("stopped", env, look_at_stopped);
	ck_assert_uint_eq(play_fact("asked"), 0);
	ck_assert_uint_gt(got, 150 * MIB);
	ck_assert_uint_eq(play_fact("asked again"), 2);
}
END_TEST

START_TEST(a_process_that_was_killed_is_not_in_the_way)
{
	const char *env[] = {QUIET, SHARED, NULL};

	play_others("ended", env, NULL);
	ck_assert_uint_eq(play_fact("asked"), 0);
}
END_TEST

START_TEST(two_processes_that_ask_each_other_at_once_both_get_an_answer)
{
	const char *env[] = {kinds[_i], QUIET, SHARED, NULL};

	play_others("both", env, NULL);
	ck_assert_str_eq(play_err, "");
}
END_TEST

static const struct {
	const char *scenario;
	uint64_t requests;
} impostors[] = {
	{"silent", 1}, /* and is left alone then */
	{"hangs-up", 2},
	{"lies", 2},
	{"boasts", 2},
	{"babbles", 2},
};

START_TEST(an_answer_that_is_none_makes_no_difference)
{
	const char *env[] = {QUIET, SHARED, NULL};

	play_others(impostors[_i].scenario, env, NULL);
	ck_assert_uint_eq(play_fact("asked"), 2);
	ck_assert_uint_eq(play_fact("asked again"), 2);
	ck_assert_uint_eq(play_fact("requests"), impostors[_i].requests);
}
END_TEST

START_TEST(another_users_process_is_not_asked)
{
	const char *env[] = {QUIET, SHARED, NULL};

	play_others("foreign", env, NULL);
	if (!play_fact("is root"))
		return;
	ck_assert_uint_eq(play_fact("asked"), 2);
	ck_assert_uint_eq(play_fact("child"), 0);
}
END_TEST

/* Where another user, too, may make a directory for sockets: as a variable. */
static char everybodys_place[64];

static void make_place(void)
{
	static const char name[] = "TMPDIR=";

	snprintf(everybodys_place, sizeof(everybodys_place), "%s/tmp/gpupool-yield-XXXXXX", name);
	ck_assert_ptr_nonnull(mkdtemp(everybodys_place + strlen(name)));
	ck_assert_int_eq(chmod(everybodys_place + strlen(name), 01777), 0);
}

static void remove_place(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf -- \"%s\"", strchr(everybodys_place, '/'));
	ck_assert_int_eq(system(command), 0);
}

static const struct {
	const char *yield;
	uint64_t asked;
} yields[] = {{"GPUPOOL_YIELD=all", 0}, {"GPUPOOL_YIELD=on", 2}, {"GPUPOOL_YIELD=off", 2}};

START_TEST(root_asks_other_users_processes_if_it_is_told_to_and_they_give)
{
	const char *env[] = {yields[_i].yield, everybodys_place, QUIET, SHARED, NULL};

	play_others("nobody-gives", env, NULL);
	ck_assert_uint_eq(play_fact("asked"), yields[_i].asked);
	ck_assert_uint_eq(play_fact("child"), 0);
}
END_TEST

START_TEST(the_report_says_whose_process_was_asked)
{
	const char *env[] = {"GPUPOOL_YIELD=all", everybodys_place, SHARED, NULL};

	play_others("nobody-has-nothing", env, take_report);
	ck_assert_uint_eq(play_fact("asked"), 2);
	ck_assert_ptr_nonnull(strstr(play_err, " of user 65534 gave 0"));
	ck_assert_msg(strstr(report, "\"uid\":65534,\"answered\":true,\"released_bytes\":0"), "%s", report);
}
END_TEST

START_TEST(a_link_in_another_users_directory_leads_root_nowhere)
{
	const char *env[] = {"GPUPOOL_YIELD=all", everybodys_place, QUIET, SHARED, NULL};

	play_others("nobody-links", env, NULL);
	ck_assert_uint_eq(play_fact("asked"), 2);
	ck_assert_uint_eq(play_fact("requests"), 0);
}
END_TEST

START_TEST(own_silent_processes_are_each_asked_once)
{
	const char *env[] = {QUIET, SHARED, NULL};

	play_others("own-crowd", env, NULL);
	ck_assert_uint_eq(play_fact("connections"), 40);
}
END_TEST

START_TEST(a_silent_process_of_another_user_is_asked_once_however_many_sockets_it_has)
{
	const char *env[] = {"GPUPOOL_YIELD=all", everybodys_place, QUIET, SHARED, NULL};

	play_others("nobody-names", env, NULL);
	ck_assert_uint_eq(play_fact("connections"), 1);
}
END_TEST

START_TEST(another_user_is_left_alone_after_eight_silent_processes)
{
	const char *env[] = {"GPUPOOL_YIELD=all", everybodys_place, QUIET, SHARED, NULL};

	play_others("nobody-crowd", env, NULL);
	ck_assert_uint_eq(play_fact("connections"), 8);
}
END_TEST

static void look_at_contexts(const char *name)
{
	const char *status = play_ask("status");

	given = yield_of(status, "contexts");
	got = yield_of(strstr(status, "\"pinned\":{"), "contexts");
}

START_TEST(other_contexts_of_the_process_give_what_they_have_cached)
{
	const char *env[] = {kinds[_i], QUIET, "SIMGPU_MEMORY=1GiB", "GPUPOOL_RESERVE=0", NULL};

	play_others("contexts", env, look_at_contexts);
	ck_assert_uint_eq(play_fact("asked"), 0);
	ck_assert_uint_ge(given, 280 * MIB);
	ck_assert_uint_eq(play_fact("pinned"), 0);
	ck_assert_uint_ge(got, 36 * MIB);
}
END_TEST

static void add_processes(TCase *tc)
{
	int n = (int)LENGTH(kinds);

	tcase_add_loop_test(tc, another_process_gives_what_it_has_cached, 0, n);
	tcase_add_loop_test(tc, who_does_not_want_to_neither_asks_nor_gives, 0, (int)LENGTH(refusals));
	tcase_add_test(tc, what_another_process_uses_stays_its_own_and_the_report_says_that_it_was_asked);
	tcase_add_test(tc, a_process_whose_socket_is_in_two_places_that_are_one_is_asked_once);
	tcase_add_test(tc, a_process_that_is_stopped_keeps_nobody_from_asking_the_others);
	tcase_add_test(tc, a_process_that_was_killed_is_not_in_the_way);
	tcase_add_loop_test(tc, two_processes_that_ask_each_other_at_once_both_get_an_answer, 0, n);
	tcase_add_loop_test(tc, an_answer_that_is_none_makes_no_difference, 0, (int)LENGTH(impostors));
	tcase_add_test(tc, another_users_process_is_not_asked);
	tcase_add_test(tc, own_silent_processes_are_each_asked_once);
	if (geteuid() != 0) {
		printf("# other users' processes: not shown, since only root can ask them\n");
		return;
	}
	tcase_add_checked_fixture(tc, make_place, remove_place);
	tcase_add_loop_test(
		tc, root_asks_other_users_processes_if_it_is_told_to_and_they_give, 0, (int)LENGTH(yields));
	tcase_add_test(tc, the_report_says_whose_process_was_asked);
	tcase_add_test(tc, a_link_in_another_users_directory_leads_root_nowhere);
	tcase_add_test(tc, a_silent_process_of_another_user_is_asked_once_however_many_sockets_it_has);
	tcase_add_test(tc, another_user_is_left_alone_after_eight_silent_processes);
}

static void add(TCase *tc)
{
	tcase_add_loop_test(
		tc, other_contexts_of_the_process_give_what_they_have_cached, 0, (int)LENGTH(kinds));
	if (getenv(EMULATOR))
		printf("# other processes: not in an emulator, where they cannot start one another\n");
	else
		add_processes(tc);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"others", add}, 1);
}
