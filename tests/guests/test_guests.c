/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Programs of all kinds, from well-behaved to hostile, behave the same with the library and get memory from its pool.
 */

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
	bool is_real; /* not in an emulator, which starts no programs, keeps signals and orphans, and writes files */
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
	{"guest_plugins", "open-and-close"},
	{"guest_plugins", "close-one-of-two"},
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

START_TEST(a_guest_program_behaves_as_without_the_library)
{
	const struct guest *guest = &guests[_i % (int)LENGTH(guests)];

	if (guest->is_real && is_emulated(guest->scenario))
		return;
	guests_same(&(struct play){
		.program = guest->program, .words = {guest->scenario}, .env = settings[_i / (int)LENGTH(guests)]});
}
END_TEST

/* No code of the library runs in these ends, so the name of the socket stays until another process starts. */
static const char *const abrupt_ends[] = {"quick", "at-once", "aborted", "killed", "busy-quick"};

START_TEST(an_abrupt_end_of_a_process_is_the_same_as_without_the_library)
{
	play_same(&(struct play){.program = "guest_ends", .words = {abrupt_ends[_i]}});
	ck_assert_str_ne(guests_left(), "");
	guests_same(&(struct play){.program = "guest_process", .words = {"after-exec"}});
}
END_TEST

/*
 * A process whose main thread has called pthread_exit() lives as long as any other thread. On an H200 such a
 * program stays without the library as well, because of the driver's threads. Here the driver has a thread only
 * once it has called a host function.
 */
START_TEST(without_its_main_thread_a_process_takes_signals_as_without_the_library)
{
	if (is_emulated("signal-without-main"))
		return;
	play_same(&(struct play){.program = "guest_ends", .words = {"signal-without-main"}});
	ck_assert_ptr_nonnull(strstr(play_out, "a child without its main thread: 143\n"));
}
END_TEST

START_TEST(without_its_main_thread_a_process_is_kept_alive_by_the_socket_thread)
{
	static const char *const off[] = {"GPUPOOL_SOCKET=off", NULL};
	struct play play = {.program = "guest_ends", .words = {"end-without-main"}};

	if (is_emulated("end-without-main"))
		return;
	play.preload = play_library;
	play_run(&play);
	ck_assert_msg(strstr(play_out, "it stays\n"), "expected the line 'it stays' in: %s", play_out);
	play.preload = NULL;
	play.env = off;
	play_same(&play);
	ck_assert_msg(strstr(play_out, "it ends: 0\n"), "expected the line 'it ends: 0' in: %s", play_out);
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
	{"guest_plugins", "close-one-of-two"},
};

START_TEST(memory_comes_from_the_pool_even_if_system_calls_are_forbidden)
{
	if (pooled[_i].is_real && is_emulated(pooled[_i].scenario))
		return;
	guests_same(&(struct play){.program = pooled[_i].program, .words = {pooled[_i].scenario}});
	guests_check_pooled();
}
END_TEST

START_TEST(a_process_without_CUDA_is_unchanged_except_for_the_mapped_library)
{
	guests_same(&(struct play){.program = "guest_plain", .words = {"describe"}});
	if (is_emulated("the number of threads, of which it has some of its own"))
		return;
	ck_assert_ptr_nonnull(strstr(play_out, "1 threads"));
}
END_TEST

/* A library built without optimisation, with programs built with and without it. */
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

START_TEST(programs_behave_the_same_with_a_library_built_without_optimisation)
{
	char library[PATH_MAX];

	snprintf(library, sizeof(library), "%s/libgpupool.so", play_app_dir);
	guests_same(&(struct play){.program = lookups[_i][0], .words = {lookups[_i][1]}, .preload = library});
}
END_TEST

/* Exceptions pass through destructors that free memory, also in threads. One exception is not caught. */
static const char *const throws[] = {"caught", "uncaught"};

START_TEST(a_cpp_program_with_exceptions_behaves_as_without_the_library)
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

/* The limit also keeps the library from printing its message. */
START_TEST(a_message_beyond_the_file_size_limit_does_not_end_the_program)
{
	static const char *const misspelt[] = {"GPUPOOL_LIMT=1GiB", NULL};

	if (is_emulated("no-files"))
		return;
	guests_same(&(struct play){.program = "guest_limits", .words = {"no-files"}, .env = misspelt});
	ck_assert_int_eq(play_status, 13);
}
END_TEST

/* Settings in which no directory is usable for sockets. The log level hides the warning about that. */
static const char *const dir_settings[][5] = {
	{"GPUPOOL_RUNTIME_DIR=", "TMPDIR=/nowhere", "GPUPOOL_LOG=error", NULL},
	{"GPUPOOL_RUNTIME_DIR=", "XDG_RUNTIME_DIR=/nowhere", "TMPDIR=/proc/self", "GPUPOOL_LOG=error", NULL},
	{"GPUPOOL_RUNTIME_DIR=", "XDG_RUNTIME_DIR=/dev/null", "TMPDIR=/dev/null/", "GPUPOOL_LOG=error", NULL},
	{"GPUPOOL_RUNTIME_DIR=/proc/sys", "XDG_RUNTIME_DIR=relative", "TMPDIR=", "GPUPOOL_LOG=error", NULL},
	{"GPUPOOL_RUNTIME_DIR=/sys/kernel", "XDG_RUNTIME_DIR=", "TMPDIR=relative/", "GPUPOOL_LOG=error", NULL},
};

START_TEST(without_a_directory_for_the_socket_the_pool_still_works)
{
	guests_same(&(struct play){.program = "guest_process", .words = {"after-exec"}, .env = dir_settings[_i]});
	guests_check_pooled();
}
END_TEST

/* 120 KiB is nearly the maximum length of a variable. */
static char long_text[120 * 1024];
static const char *const long_names[] = {
	"UNKNOWN=", "GPUPOOL_LOG_FILE=/", "GPUPOOL_UNKNOWN_", "TMPDIR=/", "XDG_RUNTIME_DIR=/", "GPUPOOL_LOG=", "LONG="};

START_TEST(very_long_environment_variables_do_not_disturb_a_program)
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

START_TEST(a_guest_program_behaves_the_same_while_its_figures_are_kept_for_a_summary)
{
	const struct guest *guest = &guests[_i];
	char variable[PLAY_VARIABLE_MAX];
	const char *env[] = {variable, "GPUPOOL_LOG=off", NULL};

	if (guest->is_real && is_emulated(guest->scenario))
		return;
	play_make_page(variable);
	guests_same(&(struct play){.program = guest->program, .words = {guest->scenario}, .env = env});
}
END_TEST

static const struct guest sharing[] = {
	{"guest_process", "fork-then-exec", true},
	{"guest_threads", "ends"},
	{"guest_plugins", "open-and-close"},
	{"guest_plain", "describe"},
	{"../preload/app_lookup_at_0", "errors"},
	{"../preload/app_lookup_at_2", "next"},
	{"../preload/app_lookup_at_2", "without-cuda"},
	{"../preload/app_ways", "lookup5"},
};

/* Runs a guest with the other library alone, and then with both libraries. */
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

START_TEST(programs_behave_the_same_beside_another_preloaded_malloc)
{
	const struct guest *guest = &sharing[_i / 2];

	if (guest->is_real && is_emulated(guest->scenario))
		return;
	share(&(struct play){.program = guest->program, .words = {guest->scenario}}, "libguest_malloc.so", _i % 2);
}
END_TEST

/* The plug-in's constructor allocates before any code of the program runs, and its destructor frees at the end. */
START_TEST(another_preloaded_library_can_use_CUDA_in_its_constructor)
{
	share(&(struct play){.program = "guest_threads", .words = {"ends"}}, "libplugin.so", _i % 2);
	share(&(struct play){.program = "guest_process", .words = {"after-exec"}}, "libplugin.so", _i % 2);
	guests_check_pooled();
}
END_TEST

/* The requests that fail: a single one, or all from a number on. */
static const char *const starving[] = {"STARVE=1", "STARVE=2", "STARVE=3", "STARVE=4", "STARVE=5", "STARVE=6",
	"STARVE=7", "STARVE=8", "STARVE=1+", "STARVE=2+", "STARVE=3+", "STARVE=4+", "STARVE=5+", "STARVE=6+",
	"STARVE=8+", "STARVE=12+"};
static const char *const starved[][2] = {
	{"guest_process", "after-exec"},
	{"guest_threads", "ends"},
	{"../preload/app_memory", "loop"},
	{"../preload/app_memory", "mixed"},
};

START_TEST(the_program_gets_memory_even_if_malloc_fails_for_the_library)
{
	const char *const *guest = starved[_i / (int)LENGTH(starving)];
	const char *env[] = {starving[_i % (int)LENGTH(starving)], NULL};

	share(&(struct play){.program = guest[0], .words = {guest[1]}, .env = env}, "libguest_starve.so", true);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(
		tc, a_guest_program_behaves_as_without_the_library, 0, (int)(LENGTH(settings) * LENGTH(guests)));
	tcase_add_loop_test(
		tc, an_abrupt_end_of_a_process_is_the_same_as_without_the_library, 0, (int)LENGTH(abrupt_ends));
	tcase_add_test(tc, without_its_main_thread_a_process_takes_signals_as_without_the_library);
	tcase_add_test(tc, without_its_main_thread_a_process_is_kept_alive_by_the_socket_thread);
	tcase_add_loop_test(tc, memory_comes_from_the_pool_even_if_system_calls_are_forbidden, 0, (int)LENGTH(pooled));
	tcase_add_test(tc, a_process_without_CUDA_is_unchanged_except_for_the_mapped_library);
	tcase_add_loop_test(
		tc, programs_behave_the_same_with_a_library_built_without_optimisation, 0, (int)LENGTH(lookups));
	tcase_add_test(tc, a_message_beyond_the_file_size_limit_does_not_end_the_program);
	tcase_add_loop_test(tc, a_cpp_program_with_exceptions_behaves_as_without_the_library, 0, (int)LENGTH(throws));
	tcase_add_loop_test(tc, without_a_directory_for_the_socket_the_pool_still_works, 0, (int)LENGTH(dir_settings));
	tcase_add_loop_test(tc, very_long_environment_variables_do_not_disturb_a_program, 0, (int)LENGTH(long_names));
	tcase_add_loop_test(
		tc, a_guest_program_behaves_the_same_while_its_figures_are_kept_for_a_summary, 0, (int)LENGTH(guests));
	tcase_add_loop_test(tc, programs_behave_the_same_beside_another_preloaded_malloc, 0, 2 * (int)LENGTH(sharing));
	tcase_add_loop_test(tc, another_preloaded_library_can_use_CUDA_in_its_constructor, 0, 2);
	tcase_add_loop_test(tc, the_program_gets_memory_even_if_malloc_fails_for_the_library, 0,
		(int)(LENGTH(starved) * LENGTH(starving)));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"guests", add}, 1);
}
