/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The module that asked for a block, without call stacks: the program, a library, or a library that has been closed
 * since.
 */

#include <stdio.h>
#include <string.h>

#include "play.h"

static void ask_leaks(const char *name)
{
	play_keep(play_ask("leaks"));
}

static void play(const char *program, const char *scenario, const char *const *env, void (*at_pause)(const char *name))
{
	play_run(&(struct play){
		.program = program, .words = {scenario}, .env = env, .preload = play_library, .at_pause = at_pause});
	ck_assert_msg(play_status == 0, "expected exit status 0, got %d: %s", play_status, play_err);
}

static void check_in(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part), "expected '%s' in: %s", part, text);
}

/* Returns what an answer says about a caller, or NULL. */
static const char *find(const char *answer, const char *caller)
{
	const char *callers = strstr(answer, "\"callers\":[");
	char text[128];

	ck_assert_msg(callers, "expected callers in: %s", answer);
	snprintf(text, sizeof(text), "\"caller\":\"%s\",", caller);
	return strstr(callers, text);
}

static uint64_t number_of(const char *answer, const char *caller, const char *member)
{
	const char *found = find(answer, caller);

	ck_assert_msg(found, "expected %s in: %s", caller, answer);
	return play_number(found, member);
}

/* The runtimes are separate libraries, except one that is a part of its plug-in. */
START_TEST(each_library_is_reported_as_the_caller_of_its_blocks)
{
	play("app_plugins", "callers", NULL, ask_leaks);
	ck_assert_uint_eq(play_number(play_answers[0], "n_blocks"), 12);
	ck_assert_uint_eq(number_of(play_answers[0], "libruntime_12.so", "blocks"), 6);
	ck_assert_uint_eq(number_of(play_answers[0], "libruntime_12.so", "requested_bytes"), 4 * MIB + 4 * 65536);
	ck_assert_uint_eq(number_of(play_answers[0], "libruntime_12.so", "pinned_bytes"), MIB);
	ck_assert_uint_eq(number_of(play_answers[0], "libruntime_static.so", "blocks"), 5);
	/* The program looked the runtime's function up, so the call does not show who made it. */
	ck_assert_uint_eq(number_of(play_answers[0], "libcudart.so.12", "blocks"), 1);
	ck_assert_ptr_null(find(play_answers[0], "app_plugins"));
	check_in(play_answers[0], "/libruntime_12.so\",\"blocks\":6,");
}
END_TEST

START_TEST(blocks_of_a_closed_library_are_still_reported_under_its_name)
{
	play("app_plugins", "callers", NULL, ask_leaks);
	ck_assert_uint_eq(play_n_answers, 2);
	ck_assert_uint_eq(number_of(play_answers[1], "libruntime_static.so", "blocks"), 5);
	ck_assert_uint_eq(number_of(play_answers[1], "libruntime_12.so", "blocks"), 6);
}
END_TEST

START_TEST(a_library_is_not_mistaken_for_one_closed_earlier_at_its_address)
{
	static const struct {
		const char *name;
		unsigned blocks;
	} libraries[] = {{"libruntime_static.so", 4}, {"libruntime_static_jump.so", 8}, {"libruntime_12.so", 12},
		{"libruntime_13.so", 16}};

	play("app_plugins", "callers-replaced", NULL, ask_leaks);
	for (size_t i = 0; i < LENGTH(libraries); i++)
		ck_assert_uint_eq(number_of(play_answers[0], libraries[i].name, "blocks"), libraries[i].blocks);
	ck_assert_uint_eq(play_number(play_answers[0], "n_blocks"), 40);
}
END_TEST

static const char *const without_runtime_layer[] = {"GPUPOOL_RUNTIME_LAYER=off", NULL};
static const char *const without_thread_caches[] = {"GPUPOOL_THREAD_CACHE=0", NULL};
static const char *const watched[] = {"GPUPOOL_DEBUG=guard", NULL};
static const char *const *const settings[] = {NULL, without_runtime_layer, without_thread_caches, watched};
static const char *const runtimes[] = {"app_runtime_shared", "app_runtime_static"};

START_TEST(the_program_that_calls_a_runtime_is_the_caller_and_not_the_runtime)
{
	const char *program = runtimes[(size_t)_i / LENGTH(settings)];

	play(program, "held", settings[(size_t)_i % LENGTH(settings)], ask_leaks);
	ck_assert_uint_eq(number_of(play_answers[0], program, "blocks"), 8);
	ck_assert_ptr_null(strstr(play_answers[0], "libcudart"));
}
END_TEST

START_TEST(callers_are_looked_up_once_and_not_at_each_call)
{
	play(runtimes[(size_t)_i / LENGTH(settings)], "steady", settings[(size_t)_i % LENGTH(settings)], NULL);
	ck_assert_uint_gt(play_fact("name lookups at first"), 0);
	ck_assert_uint_lt(play_fact("name lookups later"), 10); /* of 200 */
}
END_TEST

static const char *const kinds[] = {"none", "simple", "binned", "split", "vmm"};

START_TEST(pooled_pinned_and_unpooled_memory_has_its_caller_in_every_pool_type)
{
	char setting[64];
	const char *const env[] = {setting, NULL};

	snprintf(setting, sizeof(setting), "GPUPOOL_POOL=%s", kinds[_i]);
	play("app_sites", "leaks", env, ask_leaks);
	ck_assert_uint_eq(number_of(play_answers[0], "app_sites", "blocks"), 12);
	ck_assert_uint_eq(number_of(play_answers[0], "app_sites", "pinned_bytes"), 2 * MIB);
	ck_assert_uint_eq(number_of(play_answers[0], "app_sites", "unpooled_bytes"), 8 * MIB);
	check_in(play_answers[1], "\"callers\":[],");
}
END_TEST

START_TEST(blocks_of_all_threads_have_the_program_as_their_caller)
{
	play("app_sites", "threads", NULL, ask_leaks);
	ck_assert_uint_eq(number_of(play_answers[0], "app_sites", "blocks"), 20);
}
END_TEST

START_TEST(call_stacks_find_the_caller_behind_a_runtime_found_by_dlsym)
{
	const char *const env[] = {"GPUPOOL_STACKS=1", NULL};

	play("app_plugins", "callers", env, ask_leaks);
	ck_assert_uint_eq(number_of(play_answers[0], "app_plugins", "blocks"), 1);
	ck_assert_uint_eq(number_of(play_answers[0], "libruntime_12.so", "blocks"), 6);
	ck_assert_ptr_null(find(play_answers[0], "libcudart.so.12"));
}
END_TEST

static void ask_all(const char *name)
{
	if (strcmp(name, "open") != 0)
		return;
	play_keep(play_ask("blocks"));
	play_keep(play_ask("status callers"));
	play_keep(play_ask("status"));
	play_keep(play_ask("status nobody"));
}

static unsigned count(const char *text, const char *part)
{
	unsigned n = 0;

	while ((text = strstr(text, part))) {
		text += strlen(part);
		n++;
	}
	return n;
}

START_TEST(the_blocks_and_status_requests_name_callers)
{
	play("app_plugins", "callers", NULL, ask_all);
	ck_assert_uint_eq(count(play_answers[0], "\"caller\":\"libruntime_12.so\"}"), 6);
	ck_assert_uint_eq(count(play_answers[0], "\"caller\":\"libruntime_static.so\"}"), 5);
	ck_assert_uint_eq(number_of(play_answers[1], "libruntime_12.so", "blocks"), 6);
	ck_assert_ptr_null(strstr(play_answers[2], "\"callers\":"));
	check_in(play_answers[3], "\"reason\":\"usage\"");
}
END_TEST

static void ask_oom(const char *name)
{
	play_keep(play_ask("oom"));
}

START_TEST(an_out_of_memory_message_names_the_holders_of_the_memory)
{
	const char *const env[] = {"GPUPOOL_LIMIT=256MiB", NULL};

	play("app_sites", "limited", env, ask_oom);
	check_in(play_err, "warn:   held by: app_sites ");
	ck_assert_uint_gt(number_of(play_answers[0], "app_sites", "bytes"), 64 * MIB);
	check_in(play_answers[0], "\"holders\":[],");
}
END_TEST

START_TEST(the_report_at_exit_names_libraries_that_still_hold_memory)
{
	const char *const env[] = {"GPUPOOL_REPORT=exit", NULL};

	play("app_sites", "ends", env, NULL);
	check_in(play_err, "  library: 1.02 MiB in 6 blocks: app_sites\n");
}
END_TEST

static char screens[5][16 * 1024];

static void show(const char *name)
{
	static const char *const words[LENGTH(screens)] = {
		"leaks", "leaks --by=library", "blocks", "status", "status --json | grep -o callers"};

	if (strcmp(name, "closed") != 0)
		return;
	for (size_t i = 0; i < LENGTH(screens); i++)
		ck_assert_int_eq(play_run_stat(words[i], screens[i], sizeof(screens[i])), 0);
}

START_TEST(gpupool_stat_shows_callers_for_leaks_blocks_and_status)
{
	play("app_plugins", "callers", NULL, show);
	for (size_t i = 0; i < 2; i++) {
		check_in(screens[i], "  LIBRARY\n");
		check_in(screens[i], " 6       -  libruntime_12.so\n");
	}
	check_in(screens[2], "  libruntime_static.so\n");
	check_in(screens[3], "\nheld by\n");
	check_in(screens[3], "       6  libruntime_12.so\n");
	check_in(screens[4], "callers");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, each_library_is_reported_as_the_caller_of_its_blocks);
	tcase_add_test(tc, blocks_of_a_closed_library_are_still_reported_under_its_name);
	tcase_add_test(tc, a_library_is_not_mistaken_for_one_closed_earlier_at_its_address);
	tcase_add_loop_test(tc, the_program_that_calls_a_runtime_is_the_caller_and_not_the_runtime, 0,
		(int)(LENGTH(runtimes) * LENGTH(settings)));
	tcase_add_loop_test(
		tc, callers_are_looked_up_once_and_not_at_each_call, 0, (int)(LENGTH(runtimes) * LENGTH(settings)));
	tcase_add_loop_test(
		tc, pooled_pinned_and_unpooled_memory_has_its_caller_in_every_pool_type, 0, (int)LENGTH(kinds));
	tcase_add_test(tc, blocks_of_all_threads_have_the_program_as_their_caller);
	tcase_add_test(tc, call_stacks_find_the_caller_behind_a_runtime_found_by_dlsym);
	tcase_add_test(tc, the_blocks_and_status_requests_name_callers);
	tcase_add_test(tc, an_out_of_memory_message_names_the_holders_of_the_memory);
	tcase_add_test(tc, the_report_at_exit_names_libraries_that_still_hold_memory);
	if (play_stat)
		tcase_add_test(tc, gpupool_stat_shows_callers_for_leaks_blocks_and_status);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, (struct play_tests[]){{"callers", add}}, 1);
}
