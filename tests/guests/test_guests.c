/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Programs of all manners, from the well-behaved to the brutal, never notice the library that serves them. */

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guests.h"

static const char *const settings[][3] = {
	{"GPUPOOL_POOL=split", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=binned", "GPUPOOL_REUSE=completed", NULL},
	{"GPUPOOL_POOL=split", "LD_BIND_NOW=1", NULL},
};

static const struct guest {
	const char *program, *scenario;
	bool is_real; /* not in an emulator: it starts no programs, keeps signals and orphans to itself, writes files */
} guests[] = {
	{"guest_process", "daemonise", true},
	{"guest_process", "close-all"},
	{"guest_process", "exec", true},
	{"guest_process", "exec-from-thread", true},
	{"guest_process", "fork-then-exec", true},
	{"guest_process", "children", true},
	{"guest_signals", "handlers"},
	{"guest_signals", "defaults"},
	{"guest_signals", "blocked", true},
	{"guest_signals", "open-in-one"},
	{"guest_signals", "interrupted"},
	{"guest_threads", "small-stacks"},
	{"guest_threads", "cancelled"},
	{"guest_threads", "ends"},
	{"guest_limits", "no-socket"},
	{"guest_limits", "no-thread"},
	{"guest_limits", "no-statx"},
	{"guest_limits", "no-barrier"},
	{"guest_limits", "no-opening"},
	{"guest_limits", "no-descriptors"},
	{"guest_limits", "lowered"},
	{"guest_limits", "first-three"},
	{"guest_limits", "no-files", true},
	{"guest_limits", "little-memory"},
	{"guest_plugins", "come-and-go"},
	{"guest_plugins", "one-goes"},
	{"guest_ends", "from-thread"},
	{"guest_ends", "busy-exit"},
	{"guest_ends", "in-late-thread"},
	{"guest_ends", "fork-at-end"},
};

static bool is_emulated(const char *scenario)
{
	if (!getenv(EMULATOR))
		return false;
	printf("# %s: not in an emulator\n", scenario);
	return true;
}

START_TEST(a_guest_cannot_tell_that_it_is_served)
{
	const struct guest *guest = &guests[_i % (int)LENGTH(guests)];

	if (guest->is_real && is_emulated(guest->scenario))
		return;
	guests_same(&(struct play){.program = guest->program,
		.words = {guest->scenario},
		.env = settings[_i / (int)LENGTH(guests)]});
}
END_TEST

/* Nothing of ours runs in these ends, so the name of the socket stays, until another process starts. */
static const char *const sudden[] = {"quick", "at-once", "aborted", "killed", "busy-quick"};

START_TEST(a_sudden_end_is_as_sudden_as_without_us)
{
	play_same(&(struct play){.program = "guest_ends", .words = {sudden[_i]}});
	ck_assert_str_ne(guests_left(), "");
	guests_same(&(struct play){.program = "guest_process", .words = {"after-exec"}});
}
END_TEST

/*
 * A process whose main thread has called pthread_exit() lives as long as any other thread. On an H200 such a program
 * stays without the library as well, because of the driver's threads; here the driver has one only once it has called a
 * host function.
 */
START_TEST(a_process_whose_main_thread_has_ended_takes_signals_as_without_us_where_the_driver_has_a_thread)
{
	if (is_emulated("signal-without-main"))
		return;
	play_same(&(struct play){.program = "guest_ends", .words = {"signal-without-main"}});
	ck_assert_ptr_nonnull(strstr(play_out, "a child without its main thread: 143\n"));
}
END_TEST

START_TEST(a_process_whose_main_thread_has_ended_stays_where_only_the_socket_has_a_thread)
{
	static const char *const off[] = {"GPUPOOL_SOCKET=off", NULL};
	struct play play = {.program = "guest_ends", .words = {"end-without-main"}};

	if (is_emulated("end-without-main"))
		return;
	play.preload = play_library;
	play_run(&play);
	ck_assert_msg(strstr(play_out, "it stays\n"), "%s", play_out);
	play.preload = NULL;
	play.env = off;
	play_same(&play);
	ck_assert_msg(strstr(play_out, "it ends: 0\n"), "%s", play_out);
}
END_TEST

static const struct guest pooled[] = {
	{"guest_process", "exec", true},
	{"guest_process", "fork-then-exec", true},
	{"guest_limits", "no-socket"},
	{"guest_limits", "no-thread"},
	{"guest_limits", "no-barrier"},
	{"guest_limits", "no-opening"},
	{"guest_limits", "no-descriptors"},
	{"guest_limits", "lowered"},
	{"guest_limits", "little-memory"},
	{"guest_plugins", "one-goes"},
};

START_TEST(whatever_is_forbidden_memory_still_comes_from_the_pool)
{
	if (pooled[_i].is_real && is_emulated(pooled[_i].scenario))
		return;
	guests_same(&(struct play){.program = pooled[_i].program, .words = {pooled[_i].scenario}});
	guests_check_pooled();
}
END_TEST

START_TEST(a_process_without_cuda_has_nothing_of_ours_but_the_library)
{
	guests_same(&(struct play){.program = "guest_plain", .words = {"describe"}});
	if (is_emulated("the number of threads, of which it has some of its own"))
		return;
	ck_assert_ptr_nonnull(strstr(play_out, "1 threads"));
}
END_TEST

/* The pool in whatever way it was compiled, and a wrapper in whatever way that was. */
static const char *const lookups[][2] = {
	{"../preload/app_lookup_at_0", "errors"},
	{"../preload/app_lookup_at_0", "next"},
	{"../preload/app_lookup_at_0", "without-cuda"},
	{"../preload/app_lookup_at_0", "reopened"},
	{"../preload/app_lookup_at_2", "errors"},
	{"../preload/app_lookup_at_2", "next"},
	{"../preload/app_lookup_at_2", "without-cuda"},
	{"../preload/app_lookup_at_2", "reopened"},
	{"../preload/app_ways", "dlsym"},
	{"../preload/app_ways", "lookup4"},
	{"../preload/app_ways", "lookup5"},
	{"guest_threads", "ends"},
};

START_TEST(a_library_that_no_compiler_has_improved_is_not_noticed_either)
{
	char library[PATH_MAX];

	snprintf(library, sizeof(library), "%s/libgpupool.so", play_app_dir);
	guests_same(&(struct play){
		.program = lookups[_i][0], .words = {lookups[_i][1]}, .preload = library});
}
END_TEST

/* Exceptions through destructors that free, in threads too; and one that nobody catches. */
static const char *const throws[] = {"caught", "uncaught"};

START_TEST(a_cpp_program_throws_and_never_notices)
{
	if (!HAS_CPP) {
		printf("# guest_throw: there was no C++ compiler\n");
		return;
	}
	play_same(&(struct play){.program = "guest_throw", .words = {throws[_i]}, .env = settings[0]});
	ck_assert_int_eq(play_status, _i ? 128 + 6 : 0);
	if (!_i)
		ck_assert_str_eq(guests_left(), "");
}
END_TEST

/* Not even to say what there is to say. */
START_TEST(a_file_at_its_limit_ends_no_program)
{
	static const char *const misspelt[] = {"GPUPOOL_LIMT=1GiB", NULL};

	if (is_emulated("no-files"))
		return;
	guests_same(&(struct play){.program = "guest_limits", .words = {"no-files"}, .env = misspelt});
	ck_assert_int_eq(play_status, 13);
}
END_TEST

/* Where sockets might go, and cannot; the warning that says so is not wanted here. */
static const char *const places[][5] = {
	{"GPUPOOL_RUNTIME_DIR=", "TMPDIR=/nowhere", "GPUPOOL_LOG=error", NULL},
	{"GPUPOOL_RUNTIME_DIR=", "XDG_RUNTIME_DIR=/nowhere", "TMPDIR=/proc/self", "GPUPOOL_LOG=error", NULL},
	{"GPUPOOL_RUNTIME_DIR=", "XDG_RUNTIME_DIR=/dev/null", "TMPDIR=/dev/null/", "GPUPOOL_LOG=error", NULL},
	{"GPUPOOL_RUNTIME_DIR=/proc/sys", "XDG_RUNTIME_DIR=relative", "TMPDIR=", "GPUPOOL_LOG=error", NULL},
	{"GPUPOOL_RUNTIME_DIR=/sys/kernel", "XDG_RUNTIME_DIR=", "TMPDIR=relative/", "GPUPOOL_LOG=error", NULL},
};

START_TEST(without_a_place_for_the_socket_there_is_a_pool_all_the_same)
{
	guests_same(&(struct play){.program = "guest_process", .words = {"after-exec"}, .env = places[_i]});
	guests_check_pooled();
}
END_TEST

/* 120 KiB is nearly the longest that a variable can be. */
static char long_text[120 * 1024];
static const char *const long_names[] = {"UNKNOWN=", "GPUPOOL_LOG_FILE=/", "GPUPOOL_UNKNOWN_", "TMPDIR=/",
	"XDG_RUNTIME_DIR=/", "GPUPOOL_LOG=", "LONG="};

START_TEST(an_environment_of_any_length_does_no_harm)
{
	const char *env[] = {long_text, "GPUPOOL_RUNTIME_DIR=", "TMPDIR=/nowhere", NULL, NULL};

	memset(long_text, 'x', sizeof(long_text) - 1);
	memcpy(long_text, long_names[_i], strlen(long_names[_i]));
	play_run(&(struct play){
		.program = "guest_process", .words = {"after-exec"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	guests_check_pooled();
	ck_assert_uint_lt(strlen(play_err), 1024);
}
END_TEST

static const struct guest sharing[] = {
	{"guest_process", "fork-then-exec", true},
	{"guest_threads", "ends"},
	{"guest_plugins", "come-and-go"},
	{"guest_plain", "describe"},
	{"../preload/app_lookup_at_0", "errors"},
	{"../preload/app_lookup_at_2", "next"},
	{"../preload/app_lookup_at_2", "without-cuda"},
	{"../preload/app_ways", "lookup5"},
};

/* Runs it with somebody else's library alone, and with that and ours. */
static void share(const struct play *play, const char *other_name, bool is_other_first)
{
	char other[PATH_MAX], alone[PATH_MAX + 16], both[2 * PATH_MAX];
	const char *env[] = {alone, "GPUPOOL_LOG=off", play->env ? play->env[0] : NULL, NULL};
	struct play shared = *play;

	snprintf(other, sizeof(other), "%s/%s", play_app_dir, other_name);
	snprintf(alone, sizeof(alone), "LD_PRELOAD=%s", other);
	snprintf(both, sizeof(both), "%s %s", is_other_first ? other : play_library,
		is_other_first ? play_library : other);
	shared.env = env;
	shared.preload = both;
	guests_same(&shared);
}

START_TEST(a_preloaded_malloc_before_or_after_us_is_none_the_wiser)
{
	const struct guest *guest = &sharing[_i / 2];

	if (guest->is_real && is_emulated(guest->scenario))
		return;
	share(&(struct play){.program = guest->program, .words = {guest->scenario}}, "libguest_malloc.so", _i % 2);
}
END_TEST

/* Its constructor allocates before anything of the program's has run, and its destructor frees at the end. */
START_TEST(a_preloaded_library_may_use_cuda_before_anybody_else)
{
	share(&(struct play){.program = "guest_threads", .words = {"ends"}}, "libplugin.so", _i % 2);
	share(&(struct play){.program = "guest_process", .words = {"after-exec"}}, "libplugin.so", _i % 2);
	guests_check_pooled();
}
END_TEST

/* Each request alone, and all from some request on. */
static const char *const starving[] = {"STARVE=1", "STARVE=2", "STARVE=3", "STARVE=4", "STARVE=5", "STARVE=6",
	"STARVE=7", "STARVE=8", "STARVE=1+", "STARVE=2+", "STARVE=3+", "STARVE=4+", "STARVE=5+", "STARVE=6+",
	"STARVE=8+", "STARVE=12+"};
static const char *const starved[][2] = {
	{"guest_process", "after-exec"},
	{"guest_threads", "ends"},
	{"../preload/app_memory", "loop"},
	{"../preload/app_memory", "mixed"},
};

START_TEST(where_the_library_gets_no_memory_the_program_still_does)
{
	const char *const *guest = starved[_i / (int)LENGTH(starving)];
	const char *env[] = {starving[_i % (int)LENGTH(starving)], NULL};

	share(&(struct play){.program = guest[0], .words = {guest[1]}, .env = env}, "libguest_starve.so", true);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(
		tc, a_guest_cannot_tell_that_it_is_served, 0, (int)(LENGTH(settings) * LENGTH(guests)));
	tcase_add_loop_test(tc, a_sudden_end_is_as_sudden_as_without_us, 0, (int)LENGTH(sudden));
	tcase_add_test(
		tc, a_process_whose_main_thread_has_ended_takes_signals_as_without_us_where_the_driver_has_a_thread);
	tcase_add_test(tc, a_process_whose_main_thread_has_ended_stays_where_only_the_socket_has_a_thread);
	tcase_add_loop_test(
		tc, whatever_is_forbidden_memory_still_comes_from_the_pool, 0, (int)LENGTH(pooled));
	tcase_add_test(tc, a_process_without_cuda_has_nothing_of_ours_but_the_library);
	tcase_add_loop_test(
		tc, a_library_that_no_compiler_has_improved_is_not_noticed_either, 0, (int)LENGTH(lookups));
	tcase_add_test(tc, a_file_at_its_limit_ends_no_program);
	tcase_add_loop_test(tc, a_cpp_program_throws_and_never_notices, 0, (int)LENGTH(throws));
	tcase_add_loop_test(
		tc, without_a_place_for_the_socket_there_is_a_pool_all_the_same, 0, (int)LENGTH(places));
	tcase_add_loop_test(tc, an_environment_of_any_length_does_no_harm, 0, (int)LENGTH(long_names));
	tcase_add_loop_test(
		tc, a_preloaded_malloc_before_or_after_us_is_none_the_wiser, 0, 2 * (int)LENGTH(sharing));
	tcase_add_loop_test(tc, a_preloaded_library_may_use_cuda_before_anybody_else, 0, 2);
	tcase_add_loop_test(tc, where_the_library_gets_no_memory_the_program_still_does, 0,
		(int)(LENGTH(starved) * LENGTH(starving)));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"guests", add}, 1);
}
