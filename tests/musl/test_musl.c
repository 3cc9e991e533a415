/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Programs that are linked with musl, with the library in LD_PRELOAD, as a container may set it for all its programs.
 * The programs behave as without the library, which prints no message.
 */

#include <stdio.h>
#include <string.h>

#include "tests/preload/play.h"

static const struct {
	const char *scenario;
	int status;
} rows[] = {
	{"hello", 3},
	{"lookups", 0},
	{"plugins", 0},
	{"driver", 0},
	{"forks", 0},
	{"files", 0},
	{"threads", 0},
	{"network", 0},
	{"signals", 128 + 6},
	{"api-calls", 0},
};

static const char *const settings[][4] = {
	{NULL},
	{"GPUPOOL_LOG=debug", "GPUPOOL_REPORT=1", "GPUPOOL_STACKS=16", NULL},
	{"GPUPOOL_LIMT=1GiB", "GPUPOOL_POOL=nonsense", NULL},
	{"GPUPOOL=0", NULL},
};

START_TEST(a_musl_program_behaves_as_without_the_library_and_gets_no_message)
{
	const struct play play = {
		.program = "guest_musl",
		.words = {rows[_i % (int)LENGTH(rows)].scenario},
		.env = settings[_i / (int)LENGTH(rows)],
	};

	play_same(&play);
	ck_assert_str_eq(play_err, "");
	ck_assert_int_eq(play_status, rows[_i % (int)LENGTH(rows)].status);
	ck_assert_str_ne(play_out, "");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_musl_program_behaves_as_without_the_library_and_gets_no_message, 0,
		(int)(LENGTH(rows) * LENGTH(settings)));
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "none")) {
		puts("1..0 # SKIP there is no musl-gcc (Debian: musl-tools)");
		return 0;
	}
	return play_main(argc, argv, &(struct play_tests){"musl", add}, 1);
}
