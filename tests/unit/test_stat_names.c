/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * gpupool-stat leaks looks up function names in the files that a process names. The files are copies of this
 * program, and the function is one of this program.
 */

#include "stat_peer.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { STRANGER = 65533, ANSWER_BYTES = 1 << 20 };

static char file[128];

/* The name that is found in the files. */
void named_function_of_the_test(void);
__attribute__((noinline)) void named_function_of_the_test(void)
{
	__asm__ volatile("");
}

static uint64_t address_in_file(void)
{
	Dl_info info;

	ck_assert_int_ne(dladdr((void *)(uintptr_t)named_function_of_the_test, &info), 0);
	return (uintptr_t)named_function_of_the_test - (uintptr_t)info.dli_fbase;
}

static void copy_program(const char *filter, uid_t uid, mode_t mode)
{
	char command[512];

	snprintf(file, sizeof(file), "%s/program", peer_dir);
	snprintf(command, sizeof(command), "%s <'%s' >'%s'", filter, stat_self(), file);
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(chown(file, uid, (gid_t)-1), 0);
	ck_assert_int_eq(chmod(file, mode), 0);
}

/* Returns an answer with a call site in the last of n_objects, all of which are the file. */
static const char *make_answer(int n_objects)
{
	static char text[ANSWER_BYTES];
	size_t n = (size_t)sprintf(text,
		"{\"schema\":\"gpupool.leaks/1\",\"pid\":7,\"n_blocks\":1,\"bytes\":512,"
		"\"sites\":[{\"blocks\":1,\"bytes\":512,\"frames\":[[%d,%" PRIu64 "]]}],\"objects\":[",
		n_objects - 1, address_in_file() + 1);

	for (int i = 0; i < n_objects; i++)
		n += (size_t)sprintf(text + n, "%s{\"path\":\"%s\",\"build_id\":null}", i ? "," : "", file);
	strcpy(text + n, "]}");
	return text;
}

static bool is_named(pid_t pid)
{
	ck_assert_int_eq(STAT("leaks", stat_word(pid)), 0);
	if (!strstr(stat_out, "named_function_of_the_test"))
		stat_check_in(stat_out, "program+0x");
	return strstr(stat_out, "named_function_of_the_test") != NULL;
}

START_TEST(leaks_names_a_function_of_a_file)
{
	copy_program("cat", geteuid(), 0400);
	ck_assert(is_named(peer_start(PEER_ANSWERS, make_answer(1))));
	ck_assert_str_eq(stat_err, "");
}
END_TEST

START_TEST(leaks_does_not_unpack_a_compressed_file)
{
	copy_program("gzip", geteuid(), 0400);
	ck_assert(!is_named(peer_start(PEER_ANSWERS, make_answer(1))));
	ck_assert_str_eq(stat_err, "");
}
END_TEST

/* A sanitizer reserves more addresses than any limit allows. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
START_TEST(leaks_reads_a_file_once_that_is_named_thousands_of_times)
{
	struct rlimit limit = {256 << 20, 256 << 20};
	pid_t pid;

	copy_program("cat", geteuid(), 0400);
	pid = peer_start(PEER_ANSWERS, make_answer(4000));
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
	ck_assert_msg(is_named(pid), "expected the name of the function in: %s%s", stat_out, stat_err);
}
END_TEST
#endif

START_TEST(leaks_leaves_out_files_that_are_too_large_with_a_message)
{
	char expected[128];
	pid_t pid;

	copy_program("cat", geteuid(), 0600);
	if (truncate(file, (off_t)4 << 30) != 0) {
		stat_skip("a file of 4 GiB cannot be made here");
		return;
	}
	pid = peer_start(PEER_ANSWERS, make_answer(1));
	ck_assert(!is_named(pid));
	snprintf(expected, sizeof(expected),
		"gpupool-stat: pid %d: some names of functions are missing: its files are too many or too large.\n",
		(int)pid);
	stat_check_in(stat_err, expected);
}
END_TEST

/* The owner of the file, which only its owner may read. */
static const struct {
	uid_t owner;
	bool is_named;
} owners[] = {{STRANGER, true}, {0, false}};

START_TEST(root_reads_the_files_of_a_process_with_the_permissions_of_its_user)
{
	copy_program("cat", owners[_i].owner, 0400);
	ck_assert_int_eq(chown(peer_dir, STRANGER, (gid_t)-1), 0);
	ck_assert_int_eq(is_named(peer_start_as(STRANGER, make_answer(1))), owners[_i].is_named);
	ck_assert_str_eq(stat_err, "");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, leaks_names_a_function_of_a_file);
	tcase_add_test(tc, leaks_does_not_unpack_a_compressed_file);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	tcase_add_test(tc, leaks_reads_a_file_once_that_is_named_thousands_of_times);
#endif
	tcase_add_test(tc, leaks_leaves_out_files_that_are_too_large_with_a_message);
	if (geteuid() == 0)
		tcase_add_loop_test(
			tc, root_reads_the_files_of_a_process_with_the_permissions_of_its_user, 0, LENGTH(owners));
	else
		stat_skip("files of another user need root");
}

int main(int argc, char **argv)
{
	return stat_main(argc, argv, "stat_names", add);
}
