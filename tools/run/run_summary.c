/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "run_summary.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "run_say.h"

enum { READ_TRIES = 100 };

#define FILE_NAME "gpupool-run"

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Tells pages of processes with the same number apart. It need not be secret. */
static uint64_t make_key(void)
{
	uint64_t key = 0;

	return getrandom(&key, sizeof(key), GRND_NONBLOCK) == (ssize_t)sizeof(key) ? key : now_ns();
}

/* Makes the file as large as the page. A limit on file sizes raises a signal, which would end this process. */
static int set_size(int fd)
{
	static const struct timespec at_once;
	sigset_t one, before;
	int error = 0;

	sigemptyset(&one);
	sigaddset(&one, SIGXFSZ);
	sigprocmask(SIG_BLOCK, &one, &before);
	if (ftruncate(fd, sizeof(struct gp_summary_page)) < 0) {
		error = errno;
		(void)sigtimedwait(&one, NULL, &at_once);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	return error;
}

static int make_page(struct run_summary *summary)
{
	char text[64];
	int error;

	summary->fd = memfd_create(FILE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (summary->fd < 0)
		return errno;
	error = set_size(summary->fd);
	if (!error && fcntl(summary->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		error = errno;
	if (error)
		goto close_fd;
	summary->page = mmap(NULL, sizeof(*summary->page), PROT_READ | PROT_WRITE, MAP_SHARED, summary->fd, 0);
	if (summary->page == MAP_FAILED) {
		error = errno;
		goto close_fd;
	}
	summary->page->magic = GP_SUMMARY_MAGIC;
	summary->page->version = GP_SUMMARY_VERSION;
	summary->page->bytes = sizeof(*summary->page);
	summary->page->key = make_key();
	snprintf(text, sizeof(text), "%d.%d.%" PRIu64, (int)getpid(), summary->fd, summary->page->key);
	if (setenv(GP_SUMMARY_VARIABLE, text, 1) == 0)
		return 0;
	error = errno;
	munmap(summary->page, sizeof(*summary->page));
close_fd:
	close(summary->fd);
	return error;
}

bool run_summary_is_nested(void)
{
	static const char wanted[] = "/memfd:" FILE_NAME " ";
	const char *outer = getenv(GP_SUMMARY_VARIABLE);
	char path[64], target[sizeof(wanted)] = "";
	unsigned pid, fd;

	if (!outer || sscanf(outer, "%u.%u.", &pid, &fd) != 2)
		return false;
	/* The variable stays in processes that outlive the other gpupool-run. */
	snprintf(path, sizeof(path), "/proc/%u/fd/%u", pid, fd);
	return readlink(path, target, sizeof(target) - 1) > 0 && strcmp(target, wanted) == 0;
}

bool run_summary_init(struct run_summary *summary)
{
	int error = make_page(summary);

	if (error)
		run_warn("-q runs CMD without a summary.", "there will be no summary: %s.", strerror(error));
	return error == 0;
}

/*
 * Copies figures that another process may write meanwhile. Later loads stay behind a load that acquires, as they would
 * behind a fence, which the thread sanitiser does not know.
 */
static void copy_figures(struct gp_summary *ret, const struct gp_summary *shared)
{
	typedef uint64_t __attribute__((may_alias)) word;
	const word *from = (const word *)(const void *)shared;
	word *to = (word *)(void *)ret;

	_Static_assert(sizeof(*ret) % sizeof(word) == 0, "the figures are whole words");
	for (size_t i = 0; i < sizeof(*ret) / sizeof(word); i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
}

/* Copies the newest figures of a slot. Returns false if there are none, or if they change all the time. */
static bool read_slot(const struct gp_summary_slot *slot, struct gp_summary *ret)
{
	for (int i = 0; i < READ_TRIES; i++) {
		uint64_t count = atomic_load_explicit(&slot->count, memory_order_acquire);

		if (!count)
			return false;
		copy_figures(ret, &slot->copies[count % 2]);
		if (atomic_load_explicit(&slot->count, memory_order_relaxed) == count)
			return ret->stage > GP_SUMMARY_NONE && ret->stage <= GP_SUMMARY_FINAL;
	}
	return false;
}

/* True if the process has an earlier slot, from before an exec. */
static bool is_known(const struct gp_summary_page *page, uint64_t n)
{
	uint64_t pid = atomic_load(&page->slots[n].pid);

	for (uint64_t i = 0; i < n; i++)
		if (atomic_load(&page->slots[i].pid) == pid)
			return true;
	return false;
}

struct sums {
	struct gp_summary own, children;
	uint64_t n_children, n_without_slot;
};

static void read_page(const struct gp_summary_page *page, pid_t pid, struct sums *sums)
{
	uint64_t n = atomic_load(&page->n_claimed);
	struct gp_summary one;

	*sums = (struct sums){.n_without_slot = n > GP_SUMMARY_SLOTS ? n - GP_SUMMARY_SLOTS : 0};
	for (uint64_t i = 0; i < n && i < GP_SUMMARY_SLOTS; i++) {
		bool is_own = atomic_load(&page->slots[i].pid) == (uint64_t)pid;

		if (!read_slot(&page->slots[i], &one))
			continue;
		gp_summary_add(is_own ? &sums->own : &sums->children, &one);
		sums->n_children += !is_own && !is_known(page, i);
	}
}

void run_summary_total(const struct run_summary *summary, struct gp_summary *ret)
{
	struct sums sums;

	read_page(summary->page, 0, &sums);
	*ret = sums.children;
}

void run_summary_deinit(struct run_summary *summary)
{
	munmap(summary->page, sizeof(*summary->page));
	close(summary->fd);
}

static void add_own(struct gp_summary_lines *lines, const struct gp_summary *own, const char *command, pid_t pid)
{
	const char *slash = strrchr(command, '/');
	const char *name = slash && slash[1] ? slash + 1 : command;

	if (own->stage == GP_SUMMARY_NONE) {
		gp_summary_line(lines, "gpupool was loaded into %.64s (process %d) but saw no CUDA", name, (int)pid);
	} else if (own->stage == GP_SUMMARY_CUDA) {
		gp_summary_line(lines,
			"gpupool was loaded into %.64s (process %d), which used CUDA but allocated no memory from it",
			name, (int)pid);
	} else if (own->stage == GP_SUMMARY_ALLOCATED && !own->allocations) {
		gp_summary_line(lines,
			"gpupool served %.64s (process %d), which ended before its first figures were written", name,
			(int)pid);
	} else {
		gp_summary_line(lines, "gpupool served %.64s (process %d):", name, (int)pid);
		gp_summary_figures(lines, own, true, now_ns());
	}
}

void run_summary_print(const struct run_summary *summary, const char *command, pid_t pid)
{
	struct gp_summary_lines lines = {0};
	struct sums sums;
	bool is_own;

	read_page(summary->page, pid, &sums);
	add_own(&lines, &sums.own, command, pid);
	gp_summary_children(&lines, sums.n_children, &sums.children);
	if (sums.n_without_slot)
		gp_summary_line(&lines, "  not counted     %" PRIu64 " more processes", sums.n_without_slot);
	is_own = sums.own.ooms || sums.own.own_pool[0];
	gp_summary_advice(&lines, is_own ? &sums.own : &sums.children, is_own ? (uint64_t)pid : 0);
	for (unsigned i = 0; i < lines.n; i++)
		run_say("%s", lines.text[i]);
}
