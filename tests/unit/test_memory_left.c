/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The memory of the host that a process may still touch, by files as the kernel writes them. */

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base.h"
#include "shim/base/memory_left.h"
#include "tests/suite.h"

/* 1600 MiB in all, of which 100 MiB stay, and 1000 MiB are available. */
#define MEMINFO "MemTotal: 1638400 kB\nMemFree: 5 kB\nMemAvailable: 1024000 kB\n"
#define MACHINE 900
#define SELF    "/proc/thread-self/cgroup"
#define V1      "/sys/fs/cgroup/memory"
#define V2      "/sys/fs/cgroup"
#define GIB     "1073741824\n"
#define MANY    "268435456\n"
#define FEW     "104857600\n"

static const struct {
	const char *what;
	unsigned left_mib;
	struct {
		const char *path, *text;
	} files[10];
} rows[] = {
	{"no files at all", 0, {{NULL, NULL}}},
	{"the machine alone", MACHINE, {{"/proc/meminfo", MEMINFO}}},
	{"a machine that is full", 0, {{"/proc/meminfo", "MemTotal: 1638400 kB\nMemAvailable: 100 kB\n"}}},
	{"a kernel without MemAvailable", 0, {{"/proc/meminfo", "MemTotal: 1638400 kB\nMemFree: 1024000 kB\n"}}},
	{"a group of the second version", 1024 - 256 - 512,
		{{"/proc/meminfo", MEMINFO}, {SELF, "0::/a/b\n"}, {V2 "/a/b/memory.max", GIB},
			{V2 "/a/b/memory.current", MANY}}},
	{"a group without a limit", MACHINE,
		{{"/proc/meminfo", MEMINFO}, {SELF, "0::/a/b\n"}, {V2 "/a/b/memory.max", "max\n"},
			{V2 "/a/b/memory.current", MANY}}},
	{"a parent with a limit", 1024 - 256 - 512,
		{{"/proc/meminfo", MEMINFO}, {SELF, "0::/a/b\n"}, {V2 "/a/b/memory.max", "max\n"},
			{V2 "/a/memory.max", GIB}, {V2 "/a/memory.current", MANY}}},
	{"a group whose files may be dropped", 1024 - 156 - 512,
		{{"/proc/meminfo", MEMINFO}, {SELF, "0::/\n"}, {V2 "/memory.max", GIB}, {V2 "/memory.current", MANY},
			{V2 "/memory.stat", "anon 1\nactive_file 7\ninactive_file " FEW "x 2\n"}}},
	{"a group near its limit", 0,
		{{"/proc/meminfo", MEMINFO}, {SELF, "0::/a\n"}, {V2 "/a/memory.max", MANY},
			{V2 "/a/memory.current", "260046848\n"}}},
	{"a group of which only the root is visible", 1024 - 256 - 512,
		{{"/proc/meminfo", MEMINFO}, {SELF, "0::/../../pod\n"}, {V2 "/memory.max", GIB},
			{V2 "/memory.current", MANY}, {V2 "/pod/memory.max", "1\n"},
			{V2 "/pod/memory.current", "1\n"}}},
	{"a group of the first version", 1024 - 256 - 512,
		{{"/proc/meminfo", MEMINFO}, {SELF, "5:cpu,cpuacct:/x\n4:hugetlb,memory:/a/b\n0::/\n"},
			{V1 "/a/b/memory.limit_in_bytes", GIB}, {V1 "/a/b/memory.usage_in_bytes", MANY}}},
	{"a group of the first version in a container", 1024 - 156 - 512,
		{{"/proc/meminfo", MEMINFO}, {SELF, "4:memory:/docker/0123\n"}, {V1 "/memory.limit_in_bytes", GIB},
			{V1 "/memory.usage_in_bytes", MANY},
			{V1 "/memory.stat", "cache 1\ninactive_file 1\ntotal_inactive_file " FEW}}},
	{"a group of the first version without a limit", MACHINE,
		{{"/proc/meminfo", MEMINFO}, {SELF, "4:memory:/a\n"},
			{V1 "/a/memory.limit_in_bytes", "9223372036854771712\n"},
			{V1 "/a/memory.usage_in_bytes", MANY}}},
	{"another controller", MACHINE,
		{{"/proc/meminfo", MEMINFO}, {SELF, "4:memory2,cpu:/a\n"}, {V1 "/a/memory.limit_in_bytes", "1\n"},
			{V1 "/a/memory.usage_in_bytes", "1\n"}}},
	{"the second version beside the first", 1024 - 256 - 512,
		{{"/proc/meminfo", MEMINFO}, {SELF, "0::/a\n"}, {V2 "/unified/a/memory.max", GIB},
			{V2 "/unified/a/memory.current", MANY}}},
	{"a line that is cut off", MACHINE, {{"/proc/meminfo", MEMINFO}, {SELF, "0:\n7\n:\n"}}},
};

static char root[] = "/tmp/gpupool-left-XXXXXX";

static void make(const char *path, const char *text)
{
	char name[512];
	FILE *file;

	snprintf(name, sizeof(name), "%s%s", root, path);
	for (char *at = name + strlen(root) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		(void)mkdir(name, 0700);
		*at = '/';
	}
	file = fopen(name, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

START_TEST(the_memory_left_is_the_least_of_the_machine_and_of_each_group)
{
	char command[64];
	uint64_t left;

	ck_assert_ptr_nonnull(mkdtemp(root));
	for (int i = 0; rows[_i].files[i].path; i++)
		make(rows[_i].files[i].path, rows[_i].files[i].text);
	left = gp_memory_left(root, GP_MEMORY_FOR_PROGRAM);
	snprintf(command, sizeof(command), "rm -r %s", root);
	ck_assert_int_eq(system(command), 0);
	ck_assert_msg(left == rows[_i].left_mib * GP_MIB, "%s: %zu MiB", rows[_i].what, (size_t)(left / GP_MIB));
}
END_TEST

START_TEST(a_sixteenth_of_a_group_stays_if_the_user_wants_the_memory)
{
	char command[64];
	uint64_t left;

	ck_assert_ptr_nonnull(mkdtemp(root));
	make("/proc/meminfo", MEMINFO);
	make(SELF, "0::/a\n");
	make(V2 "/a/memory.max", GIB);
	make(V2 "/a/memory.current", MANY);
	left = gp_memory_left(root, GP_MEMORY_FOR_USER);
	snprintf(command, sizeof(command), "rm -r %s", root);
	ck_assert_int_eq(system(command), 0);
	ck_assert_uint_eq(left / GP_MIB, 1024 - 256 - 64);
}
END_TEST

START_TEST(the_memory_of_this_machine_is_known)
{
	uint64_t left = gp_memory_left("", GP_MEMORY_FOR_PROGRAM);

	ck_assert_uint_lt(left, (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memory_left");
	TCase *tc = tcase_create("memory_left");

	ADD_ROWS(tc, rows, the_memory_left_is_the_least_of_the_machine_and_of_each_group);
	tcase_add_test(tc, a_sixteenth_of_a_group_stays_if_the_user_wants_the_memory);
	tcase_add_test(tc, the_memory_of_this_machine_is_known);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
