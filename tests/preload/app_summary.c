/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Processes that end in different ways, for the summary of gpupool-run. */

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "app_driver.h"
#include "common/summary.h"
#include "tests/sim/ledger.h"

enum { ROUNDS = 50, CHILDREN = 100, TRIES = 20000 };

static void allocate(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		APP_MUST(cuMemFree_v2(app_alloc(64 * KIB)));
}

static void figures(void)
{
	void *host;

	app_start();
	allocate(ROUNDS);
	APP_MUST(cuMemHostAlloc(&host, MIB, 0));
	APP_MUST(cuMemFreeHost(host));
}

/* The counters of a context are gone when the process ends. */
static void reset(void)
{
	figures();
	app_result("cuDevicePrimaryCtxReset", cuDevicePrimaryCtxReset_v2(0));
}

static void no_allocation(void)
{
	app_start();
}

static void fails(void)
{
	CUdeviceptr ptr;

	app_start();
	allocate(1);
	app_result("a large allocation", cuMemAlloc_v2(&ptr, 64 * MIB));
}

/* Returns the page of gpupool-run that the library has mapped. */
static struct gp_summary_page *find_page(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start = 0;
	char line[512];

	while (maps && !start && fgets(line, sizeof(line), maps))
		if (strstr(line, "/memfd:gpupool-run"))
			start = strtoul(line, NULL, 16);
	if (maps)
		fclose(maps);
	return (struct gp_summary_page *)start;
}

static uint64_t written_allocations(const struct gp_summary_page *page)
{
	uint64_t n = 0;

	for (int i = 0; i < GP_SUMMARY_SLOTS; i++)
		if (page->slots[i].pid == (uint64_t)getpid())
			n = page->slots[i].copies[page->slots[i].count % 2].allocations;
	return n;
}

/* Waits until the page has that many allocations of this process. */
static void await_written(uint64_t n)
{
	const struct timespec ms = {.tv_nsec = 1000000};
	const struct gp_summary_page *page = find_page();

	for (int i = 0; page && i < TRIES; i++) {
		if (written_allocations(page) == n)
			return;
		nanosleep(&ms, NULL);
	}
	app_result("the page was not written", 1);
	exit(71);
}

static void killed(void)
{
	app_start();
	allocate(ROUNDS);
	await_written(ROUNDS);
	raise(SIGKILL);
}

/* Writes untrue figures into every slot, or nothing but ones. */
static void lie(bool is_plausible)
{
	struct gp_summary_page *page;

	figures();
	page = find_page();
	if (!page)
		exit(74);
	memset(page, 0xff, sizeof(*page));
	for (int i = 0; is_plausible && i < GP_SUMMARY_SLOTS; i++) {
		page->slots[i].pid = (uint64_t)getpid() + (uint64_t)(i % 2);
		page->slots[i].copies[1].stage = GP_SUMMARY_FINAL;
	}
	_exit(0);
}

static void lie_plausibly(void)
{
	lie(true);
}

static void lie_wildly(void)
{
	lie(false);
}

static void at_once(void)
{
	app_start();
	allocate(ROUNDS);
	await_written(ROUNDS);
	_exit(5);
}

static void exec_self(void)
{
	app_start();
	allocate(ROUNDS);
	await_written(ROUNDS);
	execl("/proc/self/exe", "app_summary", "figures", (char *)NULL);
	exit(72);
}

/* Holds memory until the stand-in for NVML has been read twice in the meantime. */
static void held(void)
{
	const struct timespec ms = {.tv_nsec = 1000000};
	int fd = open(getenv("SIMGPU_SHARED"), O_RDONLY | O_CLOEXEC);
	uint64_t reads = 0, first = UINT64_MAX;

	app_start();
	(void)app_alloc(64 * MIB);
	for (int i = 0; i < TRIES && (first == UINT64_MAX || reads < first + 2); i++) {
		if (pread(fd, &reads, sizeof(reads), offsetof(struct sim_ledger_file, n_reads)) != sizeof(reads))
			exit(73);
		first = first == UINT64_MAX ? reads : first;
		nanosleep(&ms, NULL);
	}
	app_result("memory was held", reads >= first + 2);
}

/* Each child uses CUDA itself. The parent does not. */
static void children(void)
{
	for (int i = 0; i < CHILDREN; i++) {
		int status;
		pid_t child;

		fflush(stdout);
		child = fork();
		if (child == 0) {
			app_start();
			allocate(2);
			exit(0);
		}
		if (waitpid(child, &status, 0) != child || status)
			app_result("a child", status);
	}
}

/* The child of a process that uses CUDA cannot use it, and counts for nothing. */
static void forked(void)
{
	pid_t child;

	figures();
	fflush(stdout);
	child = fork();
	if (child == 0)
		exit(0);
	waitpid(child, NULL, 0);
}

const struct app_scenario app_scenarios[] = {
	{"figures", figures},
	{"reset", reset},
	{"no-allocation", no_allocation},
	{"fails", fails},
	{"killed", killed},
	{"at-once", at_once},
	{"exec", exec_self},
	{"held", held},
	{"lie-plausibly", lie_plausibly},
	{"lie-wildly", lie_wildly},
	{"children", children},
	{"forked", forked},
	{0},
};
