/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Memory of the host that several threads touch. The clock, the threads and madvise() are stand-ins, so that each
 * answer of the kernel is possible on any machine.
 */

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/base.h"
#include "shim/base/clock.h"
#include "shim/base/host_pages.h"
#include "shim/base/memory_left.h"
#include "shim/base/own_thread.h"
#include "tests/suite.h"

#define BYTES (38 * GP_MIB) /* ten parts, the last of them smaller */

enum { POPULATE_WRITE = 23, COLLAPSE = 25 };

static uint64_t now_ns, collapse_ns, populate_ns; /* collapse_ns and populate_ns: what each call takes */
static unsigned n_threads;                        /* that were asked for */
static unsigned n_collapsed, n_small, n_huge;     /* calls */
static int fails, fails_with;                     /* the advice that fails */
static bool always_succeeds;                      /* the others do, as they do not with every kernel */

uint64_t gp_clock_now_ns(void *unused)
{
	return now_ns;
}

unsigned gp_own_threads_run(void *(*body)(void *arg), void *arg, unsigned n)
{
	n_threads = n;
	body(arg);
	return 1;
}

int madvise(void *memory, size_t bytes, int advice)
{
	n_collapsed += advice == COLLAPSE;
	n_small += advice == MADV_NOHUGEPAGE;
	n_huge += advice == MADV_HUGEPAGE;
	now_ns += advice == COLLAPSE ? collapse_ns : advice == POPULATE_WRITE && bytes > 4096 ? populate_ns : 0;
	if (advice == fails) {
		errno = fails_with;
		return -1;
	}
	if (always_succeeds && (advice == COLLAPSE || advice == POPULATE_WRITE))
		return 0;
	return (int)syscall(SYS_madvise, memory, bytes, advice);
}

static uint64_t left = UINT64_MAX; /* memory of the host before any of it is touched */
static unsigned n_asked;
static enum gp_memory_for for_whom;

/* Other processes take memory while this one touches its own. */
uint64_t gp_memory_left(const char *root, enum gp_memory_for whom)
{
	for_whom = whom;
	return n_asked++ ? left / 2 : left;
}

static char *map(unsigned threads)
{
	return gp_host_pages_map(BYTES, &(struct gp_host_pages_how){.threads = threads, .node = -1});
}

/* Returns how many of the pages are there; the test fails if they are not mapped. */
static size_t count_pages(char *memory, uint64_t bytes)
{
	static unsigned char seen[BYTES / 4096];
	size_t n = 0;

	ck_assert_int_eq(mincore(memory, bytes, seen), 0);
	for (uint64_t i = 0; i < bytes / (uint64_t)sysconf(_SC_PAGESIZE); i++)
		n += seen[i] & 1;
	return n;
}

static void check_whole(char *memory)
{
	ck_assert_ptr_nonnull(memory);
	ck_assert_uint_eq((uintptr_t)memory % (2 * GP_MIB), 0);
	ck_assert_uint_eq(count_pages(memory, BYTES), BYTES / (uint64_t)sysconf(_SC_PAGESIZE));
	for (uint64_t i = 0; i < BYTES; i += 4093)
		ck_assert_int_eq(memory[i], 0);
	memory[0] = memory[BYTES - 1] = 1;
}

/* The kernel may lack an advice, or have no huge page left. */
static const struct {
	int fails, with;
} answers[] = {
	{-1, 0},
	{COLLAPSE, EINVAL},
	{COLLAPSE, EAGAIN},
	{COLLAPSE, ENOMEM},
	{POPULATE_WRITE, EINVAL},
	{MADV_HUGEPAGE, EINVAL},
};

START_TEST(all_pages_are_present_zero_and_aligned_with_every_answer_of_the_kernel)
{
	char *memory;

	fails = answers[_i].fails;
	fails_with = answers[_i].with;
	errno = 77;
	memory = map(0);
	check_whole(memory);
	gp_host_pages_unmap(memory, BYTES);
	ck_assert_int_eq(errno, 77);
	ck_assert_int_ne(mincore(memory, BYTES, (unsigned char[BYTES / 4096]){0}), 0);
}
END_TEST

/* The kernel refuses huge pages for good, or for pages that something else uses at that moment. */
static const struct {
	int with;
	bool is_for_good;
} refusals[] = {{EINVAL, true}, {ENOMEM, true}, {EBUSY, true}, {EAGAIN, false}};

START_TEST(huge_pages_that_the_kernel_refuses_for_good_are_not_asked_for_again)
{
	fails = COLLAPSE;
	fails_with = refusals[_i].with;
	always_succeeds = true;
	ck_assert_ptr_nonnull(map(1));
	ck_assert_uint_eq(n_small, refusals[_i].is_for_good);
	ck_assert_uint_eq(n_collapsed == 1, refusals[_i].is_for_good);
}
END_TEST

START_TEST(memory_that_cannot_be_had_leaves_nothing_behind)
{
	static const int errors[] = {ENOMEM, EFAULT, EHWPOISON};
	struct rlimit limit;
	char *memory;

	fails = POPULATE_WRITE;
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		fails_with = errors[i];
		ck_assert_ptr_null(map(0));
	}
	fails = -1;
	/* There is room for one mapping, which shows that none is left. */
	memory = map(0);
	ck_assert_ptr_nonnull(memory);
	gp_host_pages_unmap(memory, BYTES);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
	limit.rlim_cur = 16 * GP_MIB;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
	errno = 77;
	ck_assert_ptr_null(map(0));
	ck_assert_int_eq(errno, 77);
	ck_assert_ptr_null(gp_host_pages_map(0, &(struct gp_host_pages_how){.node = -1}));
	ck_assert_ptr_null(gp_host_pages_map(UINT64_MAX, &(struct gp_host_pages_how){.node = -1}));
	ck_assert_ptr_null(gp_host_pages_map((uint64_t)1 << 60, &(struct gp_host_pages_how){.node = -1}));
}
END_TEST

START_TEST(memory_that_the_host_does_not_have_is_not_touched)
{
	fails = -1;
	left = BYTES - 1;
	ck_assert_ptr_null(map(0));
	ck_assert_uint_eq(n_threads, 0);
	n_asked = 0;
	left = BYTES;
	check_whole(map(0));
}
END_TEST

START_TEST(memory_that_others_take_meanwhile_ends_the_touching)
{
	struct gp_host_pages_how how = {.node = -1};

	fails = -1;
	left = 600 * GP_MIB;
	how.is_own = true;
	ck_assert_ptr_null(gp_host_pages_map(left, &how));
	ck_assert_uint_eq(n_asked, 2);
	ck_assert_int_eq(for_whom, GP_MEMORY_FOR_USER);
	how.is_own = false;
	n_asked = 0;
	left = 2 * 600 * GP_MIB;
	ck_assert_ptr_nonnull(gp_host_pages_map(600 * GP_MIB, &how));
	ck_assert_uint_eq(n_asked, 3);
	ck_assert_int_eq(for_whom, GP_MEMORY_FOR_PROGRAM);
}
END_TEST

enum { MS = 1000000 };

/* The kernel may have to move memory to make huge pages. Or all memory is slow, as a virtual machine's is at first. */
static const struct {
	uint64_t collapse_ns, populate_ns;
	unsigned n_collapsed, n_small, n_huge;
} paces[] = {
	{0, 0, 5, 0, 1},
	{19 * MS, 0, 5, 0, 1},          /* the last part, of three huge pages, may take 20 ms */
	{1000 * MS, 0, 1, 1, 1},        /* small pages are faster */
	{1000 * MS, 200 * MS, 1, 1, 1}, /* they are faster by a factor of six */
	{0, 1000 * MS, 4, 1, 2},        /* they are as slow, so huge pages go on after one part */
	{1000 * MS, 500 * MS, 4, 1, 2},
};

START_TEST(no_huge_pages_are_asked_for_once_they_take_much_longer_than_small_ones)
{
	fails = -1;
	always_succeeds = true;
	collapse_ns = paces[_i].collapse_ns;
	populate_ns = paces[_i].populate_ns;
	ck_assert_ptr_nonnull(map(1));
	ck_assert_uint_eq(n_collapsed, paces[_i].n_collapsed);
	ck_assert_uint_eq(n_small, paces[_i].n_small);
	ck_assert_uint_eq(n_huge, paces[_i].n_huge);
}
END_TEST

START_TEST(the_number_of_threads_follows_the_processors_the_size_and_the_setting)
{
	unsigned processors = gp_host_processors();
	cpu_set_t set;
	int first = 0;

	fails = -1;
	check_whole(map(0));
	ck_assert_uint_eq(n_threads, processors == 1 ? 1 : gp_min(processors, 10));
	check_whole(map(2));
	ck_assert_uint_eq(n_threads, processors == 1 ? 1 : 2);
	check_whole(map(64));
	ck_assert_uint_eq(n_threads, processors == 1 ? 1 : 10);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	while (!CPU_ISSET(first, &set))
		first++;
	CPU_ZERO(&set);
	CPU_SET(first, &set);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(set), &set), 0);
	ck_assert_uint_eq(gp_host_processors(), 1);
	check_whole(map(0));
	ck_assert_uint_eq(n_threads, 1);
	check_whole(map(8));
	ck_assert_uint_eq(n_threads, 1);
}
END_TEST

START_TEST(a_node_that_does_not_exist_is_ignored)
{
	static const int nodes[] = {0, 1023, 1024, INT32_MAX, -7};

	fails = -1;
	for (size_t i = 0; i < sizeof(nodes) / sizeof(*nodes); i++) {
		char *memory = gp_host_pages_map(BYTES, &(struct gp_host_pages_how){.node = nodes[i]});

		check_whole(memory);
		gp_host_pages_unmap(memory, BYTES);
	}
}
END_TEST

START_TEST(a_forked_child_and_its_parent_see_the_same_pages)
{
	volatile char *memory;
	pid_t child;
	int status;

	fails = -1;
	memory = map(0);
	ck_assert_ptr_nonnull((char *)memory);
	memory[5] = 1;
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		bool is_seen = memory[5] == 1;

		memory[BYTES - 1] = 2;
		_exit(is_seen ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(memory[BYTES - 1], 2);
}
END_TEST

/* Returns whether the kernel shares the pages of the mapping with children. */
static bool is_shared(const char *memory)
{
	char line[512], flags[512] = "";
	unsigned long first, end;
	bool is_it = false;
	FILE *maps = fopen("/proc/self/maps", "r");

	ck_assert_ptr_nonnull(maps);
	while (!is_it && fgets(line, sizeof(line), maps))
		is_it = sscanf(line, "%lx-%lx %511s", &first, &end, flags) == 3 && first <= (uintptr_t)memory &&
			(uintptr_t)memory < end;
	fclose(maps);
	ck_assert(is_it);
	return flags[3] == 's';
}

START_TEST(only_memory_of_the_program_is_shared_with_children)
{
	struct gp_host_pages_how how = {.node = -1};
	char *memory;

	fails = -1;
	memory = gp_host_pages_map(BYTES, &how);
	check_whole(memory);
	ck_assert(is_shared(memory));
	how.is_own = true;
	memory = gp_host_pages_map(BYTES, &how);
	check_whole(memory);
	ck_assert(!is_shared(memory));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("host_pages");
	TCase *tc = tcase_create("host_pages");

	tcase_set_timeout(tc, 60);
	ADD_ROWS(tc, answers, all_pages_are_present_zero_and_aligned_with_every_answer_of_the_kernel);
	ADD_ROWS(tc, refusals, huge_pages_that_the_kernel_refuses_for_good_are_not_asked_for_again);
	tcase_add_test(tc, memory_that_cannot_be_had_leaves_nothing_behind);
	tcase_add_test(tc, memory_that_the_host_does_not_have_is_not_touched);
	tcase_add_test(tc, memory_that_others_take_meanwhile_ends_the_touching);
	ADD_ROWS(tc, paces, no_huge_pages_are_asked_for_once_they_take_much_longer_than_small_ones);
	tcase_add_test(tc, the_number_of_threads_follows_the_processors_the_size_and_the_setting);
	tcase_add_test(tc, a_node_that_does_not_exist_is_ignored);
	tcase_add_test(tc, a_forked_child_and_its_parent_see_the_same_pages);
	tcase_add_test(tc, only_memory_of_the_program_is_shared_with_children);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
