/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The threads take one part of the memory after another. The kernel gives huge pages at the first touch for private
 * memory nearly everywhere, and for shared memory only where the administrator has set it up so, which is rare
 * (shmem_enabled). Elsewhere a thread touches one byte of each huge page of its part, and asks the kernel to make huge
 * pages of them (MADV_COLLAPSE, Linux 6.1; Linux 6.18 refuses it for shared memory if shmem_enabled is "never"). Then
 * it touches the part, which takes small pages where there are no huge ones.
 *
 * The kernel may have to move other memory to make a huge page, for any length of time. So after a part whose huge
 * pages took longer than they save, no thread asks for them. But all memory may be slow, as in a virtual machine whose
 * host has to provide it first. So the thread that was slow compares that part with its next one, of small pages, and
 * unless these are much faster, all threads ask for huge ones again.
 */

#include "host_pages.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "memory_left.h"
#include "own_thread.h"
#include "pool/base.h"

/* <sys/mman.h> of old C libraries lacks MADV_POPULATE_WRITE, and that of glibc 2.36 still lacks MADV_COLLAPSE. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE_PAGE  (2 * GP_MIB)
#define CHECK      (256 * GP_MIB) /* touched before the memory that is left is looked at again: some 10 ms */
#define PART_MIN   (4 * GP_MIB)
#define PART_MAX   (32 * GP_MIB) /* a few calls for each GiB: each call of MADV_COLLAPSE costs some 50 us at first */
#define SMALL_PAGE (4 * GP_KIB)  /* no machine has smaller ones */

/* For each huge page of a part: ten times what a thread takes for it, and several times what small pages take. */
#define STALL_NS 5000000

/* Huge pages may take at most N times what small ones take: the driver registers and copies them faster. */
enum { WORTH = 4 };

/* Parts for each thread, so that all threads end at nearly the same time. */
enum { PARTS = 4 };

/* Processors that sched_getaffinity() may report. */
enum { PROCESSORS_MAX = 8192, NODES_MAX = 1024 };

struct touch {
	char *memory;
	uint64_t bytes, part_bytes;
	enum gp_memory_for whom;
	_Atomic uint64_t next;     /* the offset of the next part */
	_Atomic bool has_failed;   /* some memory could not be obtained */
	_Atomic bool is_small;     /* ask for no huge pages */
	_Atomic uint64_t stall_ns; /* what huge pages may take, for each of them */
	_Atomic bool is_old;       /* the kernel does not know MADV_POPULATE_WRITE */
};

/*
 * From here on no thread makes huge pages, and the kernel makes none at a touch. The mapping stays one. Returns false
 * if that was so already.
 */
static bool make_small(struct touch *touch)
{
	if (atomic_exchange(&touch->is_small, true))
		return false;
	(void)madvise(touch->memory, touch->bytes, MADV_NOHUGEPAGE);
	return true;
}

/* A part of huge pages took stalled_ns for each of them, and the next one, of small pages, took small_ns. */
static void compare(struct touch *touch, uint64_t stalled_ns, uint64_t small_ns)
{
	if (small_ns * WORTH < stalled_ns)
		return;
	atomic_store(&touch->stall_ns, small_ns * WORTH);
	(void)madvise(touch->memory, touch->bytes, MADV_HUGEPAGE);
	atomic_store(&touch->is_small, false);
}

static void touch_every(char *memory, uint64_t bytes, uint64_t step)
{
	for (uint64_t i = 0; i < bytes; i += step)
		((volatile char *)memory)[i] = 0;
}

/*
 * Touches the part with small pages, or with huge ones where it has them. MADV_POPULATE_WRITE returns an error where
 * a touch would end the process.
 */
static void populate(struct touch *touch, char *part, uint64_t bytes)
{
	if (!atomic_load(&touch->is_old)) {
		if (madvise(part, bytes, MADV_POPULATE_WRITE) == 0)
			return;
		if (errno != EINVAL) {
			atomic_store(&touch->has_failed, true);
			return;
		}
		atomic_store(&touch->is_old, true);
	}
	touch_every(part, bytes, SMALL_PAGE);
}

/* Makes huge pages of the part. A kernel that cannot do so, or has no huge page left, is not asked again. */
static void collapse(struct touch *touch, char *part, uint64_t bytes)
{
	bool is_done = true;

	bytes -= bytes % HUGE_PAGE;
	for (uint64_t i = 0; i < bytes && is_done; i += HUGE_PAGE)
		is_done = madvise(part + i, SMALL_PAGE, MADV_POPULATE_WRITE) == 0;
	/* EAGAIN is the error for a page that something else uses at this moment. The others are huge then. */
	if (is_done && bytes)
		is_done = madvise(part, bytes, MADV_COLLAPSE) == 0 || errno == EAGAIN;
	if (!is_done)
		(void)make_small(touch);
}

/* Returns what the part took, for each huge page or as many bytes. */
static uint64_t touch_part(struct touch *touch, char *part, uint64_t bytes)
{
	uint64_t started = gp_clock_now_ns(NULL);

	if (!atomic_load(&touch->is_small))
		collapse(touch, part, bytes);
	populate(touch, part, bytes);
	return (gp_clock_now_ns(NULL) - started) / (bytes / HUGE_PAGE + 1);
}

/* Looks again from time to time, since other processes may prepare memory at the same time. */
static bool is_left(const struct touch *touch, uint64_t at)
{
	return at < CHECK || at % CHECK >= touch->part_bytes || gp_memory_left("", touch->whom) >= touch->bytes - at;
}

static void *touch_parts(void *arg)
{
	struct touch *touch = arg;
	uint64_t stalled_ns = 0; /* what huge pages took, if this thread made the next part small */

	while (!atomic_load(&touch->has_failed)) {
		uint64_t at = atomic_fetch_add(&touch->next, touch->part_bytes), took_ns;

		if (at >= touch->bytes)
			break;
		if (!is_left(touch, at)) {
			atomic_store(&touch->has_failed, true);
			break;
		}
		took_ns = touch_part(touch, touch->memory + at, gp_min(touch->part_bytes, touch->bytes - at));
		if (stalled_ns)
			compare(touch, stalled_ns, took_ns);
		stalled_ns = took_ns > atomic_load(&touch->stall_ns) && make_small(touch) ? took_ns : 0;
	}
	return NULL;
}

unsigned gp_host_processors(void)
{
	unsigned long set[PROCESSORS_MAX / (8 * sizeof(unsigned long))] = {0};
	long n = syscall(SYS_sched_getaffinity, 0, sizeof(set), set);
	unsigned processors = 0;

	for (size_t i = 0; n > 0 && i < sizeof(set) / sizeof(*set); i++)
		processors += (unsigned)__builtin_popcountl(set[i]);
	return processors ? processors : 1;
}

/* On one processor further threads would only take turns. */
static unsigned threads_for(const struct gp_host_pages_how *how, uint64_t bytes)
{
	unsigned processors = gp_host_processors();
	uint64_t threads = how->threads ? how->threads : gp_min(processors, GP_HOST_PAGES_THREADS_MAX);

	return processors == 1 ? 1 : (unsigned)gp_min(threads, (bytes + PART_MIN - 1) / PART_MIN);
}

static uint64_t part_for(uint64_t bytes, unsigned threads)
{
	uint64_t part = bytes / (PARTS * threads) / HUGE_PAGE * HUGE_PAGE;

	return gp_min(gp_max(part, PART_MIN), PART_MAX);
}

/*
 * Prefers the node, rather than insisting on it: the kernel would end the process where the node has no memory left.
 * A policy of the program (numactl) holds for the driver's own memory, and so for this. A sandbox may refuse the calls.
 */
static void prefer_node(char *memory, uint64_t bytes, int node)
{
	unsigned long nodes[NODES_MAX / (8 * sizeof(unsigned long))] = {0};
	int policy = -1;

	if (node < 0 || node >= NODES_MAX || syscall(SYS_get_mempolicy, &policy, NULL, 0, NULL, 0) ||
		policy != MPOL_DEFAULT)
		return;
	nodes[(unsigned)node / (8 * sizeof(*nodes))] = 1UL << ((unsigned)node % (8 * sizeof(*nodes)));
	(void)syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, nodes, NODES_MAX, 0);
}

/* Reserves addresses that begin at a huge page. */
static char *map_aligned(uint64_t bytes, bool is_own)
{
	uint64_t reserved = bytes + HUGE_PAGE, before;
	int flags = MAP_ANONYMOUS | (is_own ? MAP_PRIVATE : MAP_SHARED);
	char *memory = mmap(NULL, reserved, PROT_READ | PROT_WRITE, flags, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	before = -(uint64_t)(uintptr_t)memory % HUGE_PAGE;
	if (before)
		munmap(memory, before);
	munmap(memory + before + bytes, HUGE_PAGE - before);
	return memory + before;
}

static uint64_t in_pages(uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

static enum gp_memory_for whom_of(const struct gp_host_pages_how *how)
{
	return how->is_own ? GP_MEMORY_FOR_USER : GP_MEMORY_FOR_PROGRAM;
}

/* Returns false if some of the memory could not be obtained. */
static bool touch_all(char *memory, uint64_t bytes, const struct gp_host_pages_how *how)
{
	unsigned threads = threads_for(how, bytes);
	struct touch touch = {.memory = memory,
		.bytes = bytes,
		.part_bytes = part_for(bytes, threads),
		.whom = whom_of(how),
		.stall_ns = STALL_NS};

	prefer_node(memory, bytes, how->node);
	(void)madvise(memory, bytes, MADV_HUGEPAGE);
	if (how->is_own) {
		(void)madvise(memory, bytes, MADV_DONTFORK);
		(void)madvise(memory, bytes, MADV_DONTDUMP);
	}
	return gp_own_threads_run(touch_parts, &touch, threads) && !atomic_load(&touch.has_failed);
}

void *gp_host_pages_map(uint64_t bytes, const struct gp_host_pages_how *how)
{
	uint64_t mapped = bytes && bytes < UINT64_MAX / 2 ? in_pages(bytes) : 0;
	int kept = errno;
	char *memory = mapped && mapped <= gp_memory_left("", whom_of(how)) ? map_aligned(mapped, how->is_own) : NULL;

	if (memory && !touch_all(memory, mapped, how)) {
		munmap(memory, mapped);
		memory = NULL;
	}
	errno = kept;
	return memory;
}

void gp_host_pages_unmap(void *memory, uint64_t bytes)
{
	int kept = errno;

	munmap(memory, in_pages(bytes));
	errno = kept;
}
