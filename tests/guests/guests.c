/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "guests.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 8 };

/* True for the report of an out-of-memory error, and for a counter page: both stay on purpose. */
static bool stays(const char *name)
{
	const char *suffix = strrchr(name, '.');

	return suffix && (!strcmp(suffix, ".oom") || !strcmp(suffix, ".page"));
}

const char *guests_left(void)
{
	static char left[4096];
	DIR *dir = opendir(play_dir);
	const struct dirent *entry;

	ck_assert_ptr_nonnull(dir);
	left[0] = '\0';
	while ((entry = readdir(dir))) {
		const char *name = entry->d_name;

		if (!strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, "out") || !strcmp(name, "err") ||
			stays(name))
			continue;
		ck_assert_uint_lt(strlen(left) + strlen(name) + 2, sizeof(left));
		strcat(strcat(left, name), " ");
	}
	closedir(dir);
	return left;
}

void guests_same(const struct play *play)
{
	play_same(play);
	ck_assert_msg(!*guests_left(), "expected %s %s to leave no file, found %s", play->program, play->words[0],
		guests_left());
}

void guests_check_pooled(void)
{
	ck_assert_uint_le(play_fact("cuMemAlloc_v2"), FEW);
	ck_assert_uint_le(play_fact("cuMemHostAlloc"), FEW);
	ck_assert_uint_eq(play_fact("races"), 0);
}

int guests_skip(const char *reason)
{
	printf("1..0 # SKIP %s\n", reason);
	return EXIT_SUCCESS;
}
