/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The child of gpupool-stat that reads the files of a process: its permissions and limits, and the effect of its
 * failure on the parent. A fake parser, chosen by the name of the object, does what a real one might do. Time is
 * simulated.
 */

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/emulator.h"
#include "tests/suite.h"
#include "tools/answer/stat_symbols.h"
#include "tools/answer/stat_symbols_dw.h"

enum { STRANGER = 65533, STEP_BYTES = 64 << 20, STEPS_MAX = 4096 };

enum object { NAMES, ABORTS, EXITS, IS_SILENT, TAKES_MEMORY, SHOWS_USER, SHOWS_FILES, GAINS_RIGHTS, IS_CUT, N_OBJECTS };

static json_t *objects;
static bool is_waiting; /* for a child that does not answer */
static int64_t now_ns;

int fuzz_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int fuzz_clock_gettime(clockid_t clock, struct timespec *ret_time);

int fuzz_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	if (!is_waiting || !fds->events)
		return poll(fds, n, -1);
	now_ns += timeout_ms * INT64_C(1000000);
	return 0;
}

int fuzz_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	*ret_time = (struct timespec){now_ns / 1000000000, now_ns % 1000000000};
	return 0;
}

/* In the child. */

struct symbol_files {
	bool is_cut;
};

struct symbol_files *symbol_files_new(const json_t *list, pid_t pid)
{
	return calloc(1, sizeof(struct symbol_files));
}

bool symbol_files_are_cut(const struct symbol_files *files)
{
	return files->is_cut;
}

static int count_memory(void)
{
	int n = 0;

	while (n < STEPS_MAX && malloc(STEP_BYTES))
		n++;
	return n;
}

static int count_descriptors(void)
{
	DIR *entries = opendir("/proc/self/fd");
	int n = 0;

	while (entries && readdir(entries))
		n++;
	return n - 3; /* ".", ".." and the descriptor of this directory */
}

bool symbol_files_at(struct symbol_files *files, size_t object, uint64_t address, char *text, size_t size)
{
	uid_t real, effective, saved;
	gid_t real_group, effective_group, saved_group;

	switch ((enum object)object) {
	case NAMES:
		snprintf(text, size, "name %d", (int)address);
		return true;
	case ABORTS:
		abort();
	case EXITS:
		exit(0);
	case IS_SILENT:
		for (;;)
			pause();
	case TAKES_MEMORY:
		snprintf(text, size, "%d", count_memory());
		return true;
	case SHOWS_USER:
		getresuid(&real, &effective, &saved);
		getresgid(&real_group, &effective_group, &saved_group);
		snprintf(text, size, "%d %d %d groups %d %d %d and %d", (int)real, (int)effective, (int)saved,
			real_group != 0, effective_group != 0, saved_group != 0, getgroups(0, NULL));
		return true;
	case SHOWS_FILES:
		snprintf(text, size, "%d", count_descriptors());
		return true;
	case GAINS_RIGHTS:
		snprintf(text, size, "%d %d", setuid(0), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
		return true;
	case IS_CUT:
		files->is_cut = true;
		return false;
	default:
		return false;
	}
}

/* In the parent. */

static void setup(void)
{
	objects = json_array();
	for (int i = 0; i < N_OBJECTS; i++)
		json_array_append_new(objects, json_object());
	is_waiting = false;
}

static void teardown(void)
{
	json_decref(objects);
	/* Every child was waited for. */
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
}

static void check_text(struct stat_symbols *symbols, enum object object, uint64_t address, const char *expected)
{
	char text[256];

	ck_assert_msg(stat_symbols_at(symbols, object, address, text, sizeof(text)), "expected a text for object %d",
		(int)object);
	ck_assert_str_eq(text, expected);
}

START_TEST(the_symbol_child_answers_many_questions)
{
	struct stat_symbols *symbols = stat_symbols_new(objects, 1, geteuid());
	char expected[32], text[8];

	for (int i = 0; i < 100; i++) {
		snprintf(expected, sizeof(expected), "name %d", i);
		check_text(symbols, NAMES, (uint64_t)i, expected);
	}
	ck_assert(stat_symbols_at(symbols, NAMES, 123456, text, sizeof(text)));
	ck_assert_str_eq(text, "name 12");
	ck_assert(!stat_symbols_at(symbols, N_OBJECTS, 0, text, sizeof(text)));
	ck_assert_ptr_null(stat_symbols_problem(symbols));
	stat_symbols_free(symbols);
}
END_TEST

static const enum object deaths[] = {ABORTS, EXITS, IS_SILENT};

START_TEST(a_symbol_child_that_dies_or_hangs_leaves_a_reason)
{
	struct stat_symbols *symbols = stat_symbols_new(objects, 1, geteuid());
	char text[64];

	check_text(symbols, NAMES, 7, "name 7");
	is_waiting = deaths[_i] == IS_SILENT;
	ck_assert(!stat_symbols_at(symbols, deaths[_i], 0, text, sizeof(text)));
	is_waiting = false;
	ck_assert_str_eq(text, "");
	ck_assert_ptr_nonnull(stat_symbols_problem(symbols));
	/* The child is not started again. */
	ck_assert(!stat_symbols_at(symbols, NAMES, 7, text, sizeof(text)));
	stat_symbols_free(symbols);
}
END_TEST

START_TEST(the_symbol_lookup_time_of_a_user_is_shared_by_its_processes_for_a_minute)
{
	struct stat_symbols *first = stat_symbols_new(objects, 1, geteuid());
	struct stat_symbols *second = stat_symbols_new(objects, 2, geteuid());
	struct stat_symbols *third = stat_symbols_new(objects, 3, geteuid());
	char text[64];

	is_waiting = true;
	ck_assert(!stat_symbols_at(first, IS_SILENT, 0, text, sizeof(text)));
	is_waiting = false;
	now_ns -= INT64_C(30000000000);
	ck_assert(!stat_symbols_at(second, NAMES, 7, text, sizeof(text)));
	ck_assert_ptr_nonnull(stat_symbols_problem(second));
	now_ns += INT64_C(130000000000);
	check_text(third, NAMES, 7, "name 7");
	stat_symbols_free(first);
	stat_symbols_free(second);
	stat_symbols_free(third);
}
END_TEST

START_TEST(too_many_symbol_files_are_reported_but_do_not_end_the_child)
{
	struct stat_symbols *symbols = stat_symbols_new(objects, 1, geteuid());
	char text[64];

	ck_assert(!stat_symbols_at(symbols, IS_CUT, 0, text, sizeof(text)));
	ck_assert_ptr_nonnull(strstr(stat_symbols_problem(symbols), "too many or too large"));
	check_text(symbols, NAMES, 7, "name 7");
	stat_symbols_free(symbols);
}
END_TEST

/* A sanitizer ends the program where malloc() would fail. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
START_TEST(the_memory_of_the_symbol_child_is_limited)
{
	struct stat_symbols *symbols = stat_symbols_new(objects, 1, geteuid());
	char text[64];

	if (getenv(EMULATOR)) {
		printf("# skipped: an emulator does not limit memory\n");
		stat_symbols_free(symbols);
		return;
	}
	ck_assert(stat_symbols_at(symbols, TAKES_MEMORY, 0, text, sizeof(text)));
	ck_assert_int_gt(atoi(text), 0);
	ck_assert_int_le(atoi(text), 64);
	stat_symbols_free(symbols);
}
END_TEST
#endif

START_TEST(the_symbol_child_has_only_its_socket_and_the_standard_streams)
{
	struct stat_symbols *symbols = stat_symbols_new(objects, 1, geteuid());
	FILE *file = tmpfile();

	ck_assert_ptr_nonnull(file);
	check_text(symbols, SHOWS_FILES, 0, "4");
	stat_symbols_free(symbols);
	fclose(file);
}
END_TEST

START_TEST(the_symbol_child_of_root_becomes_the_user_of_the_process_for_good)
{
	struct stat_symbols *symbols = stat_symbols_new(objects, 1, STRANGER);

	check_text(symbols, SHOWS_USER, 0, "65533 65533 65533 groups 1 1 1 and 0");
	check_text(symbols, GAINS_RIGHTS, 0, "-1 1");
	stat_symbols_free(symbols);
}
END_TEST

START_TEST(a_symbol_child_that_cannot_become_the_user_reads_nothing)
{
	struct stat_symbols *symbols;
	char text[64];

	ck_assert_int_eq(seteuid(STRANGER), 0);
	symbols = stat_symbols_new(objects, 1, 65532);
	ck_assert(!stat_symbols_at(symbols, NAMES, 0, text, sizeof(text)));
	ck_assert_ptr_nonnull(stat_symbols_problem(symbols));
	stat_symbols_free(symbols);
	/* A sanitizer inspects the program at its end, and needs these permissions. */
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(prctl(PR_SET_DUMPABLE, 1), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stat_symbols");
	TCase *tc = tcase_create("child");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, the_symbol_child_answers_many_questions);
	ADD_ROWS(tc, deaths, a_symbol_child_that_dies_or_hangs_leaves_a_reason);
	tcase_add_test(tc, the_symbol_lookup_time_of_a_user_is_shared_by_its_processes_for_a_minute);
	tcase_add_test(tc, too_many_symbol_files_are_reported_but_do_not_end_the_child);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	tcase_add_test(tc, the_memory_of_the_symbol_child_is_limited);
#endif
	tcase_add_test(tc, the_symbol_child_has_only_its_socket_and_the_standard_streams);
	if (geteuid() == 0) {
		tcase_add_test(tc, the_symbol_child_of_root_becomes_the_user_of_the_process_for_good);
		tcase_add_test(tc, a_symbol_child_that_cannot_become_the_user_reads_nothing);
	} else {
		printf("# skipped: files of another user need root\n");
	}
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
