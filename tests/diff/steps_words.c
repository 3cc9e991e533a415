/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "steps_words.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	TOUCHED = 4096, /* bytes of a block that kernels write */
	BUSY_MS = 1,    /* how long "busy" works */
	ALL_MAX = 4096,
	CHURNED = 70, /* small blocks, more than a thread cache keeps of a size */
	CAPTURE_RELAXED = 2,
	ATTACH_GLOBAL = 1,
};
#define HOST_BYTES (4 * MIB) /* of each pinned block */

struct site sites[2];
_Atomic uint32_t *site_flag;

static size_t block_bytes;
static CUdeviceptr all[ALL_MAX]; /* the blocks of "take-all" */
static unsigned n_all;

static CUdeviceptr flag_address(void)
{
	return (CUdeviceptr)(uintptr_t)site_flag;
}

/* Returns true if an allocation succeeded. If memory ran out, prints that as an answer. */
static bool is_given(CUresult r)
{
	if (r == CUDA_ERROR_OUT_OF_MEMORY)
		app_result("allocation", r);
	else
		PLACE_MUST(r);
	return !r;
}

static void spin(struct site *site)
{
	place_wait_flag(&site->place, site->spinning, flag_address(), 1);
}

static void release(struct site *site)
{
	place_set_flag(&site->place, site->releasing, flag_address(), 1);
}

static void host_release(struct site *site)
{
	(void)site;
	atomic_store(site_flag, 1);
}

/* Launches work that lasts a while, and writes at its end to the block that is freed next. */
static void busy(struct site *site)
{
	place_spin_fill(&site->place, site->working, site->held[site->n_held - 1], TOUCHED, 0xdead, BUSY_MS * MS);
}

static void busy_host(struct site *site)
{
	CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)site->held_host[site->n_held_host - 1];

	place_spin_fill(&site->place, site->working, ptr, TOUCHED, 0xdead, BUSY_MS * MS);
}

static void free_block(struct site *site)
{
	PLACE_MUST(cuMemFree_v2(site->held[--site->n_held]));
}

static void free_async(struct site *site)
{
	PLACE_MUST(cuMemFreeAsync(site->held[--site->n_held], site->working));
}

/* Submits work on a block to the stream of the spinning kernel, and frees the block in that stream. */
static void free_behind(struct site *site)
{
	CUdeviceptr ptr = site->held[--site->n_held];

	place_fill(&site->place, site->spinning, ptr, TOUCHED, 0xdead);
	PLACE_MUST(cuMemFreeAsync(ptr, site->spinning));
}

static void keep(struct site *site, CUdeviceptr ptr)
{
	static uint32_t n_values;
	uint32_t value = ++n_values;

	place_fill(&site->place, site->releasing, ptr, TOUCHED, value);
	site->values[site->n_got] = value;
	site->got[site->n_got++] = ptr;
}

static void alloc(struct site *site, size_t bytes)
{
	CUdeviceptr ptr;

	if (is_given(cuMemAlloc_v2(&ptr, bytes)))
		keep(site, ptr);
}

static void malloc_block(struct site *site)
{
	alloc(site, block_bytes);
}

/* Allocates a block without launching work on it. */
static void take(struct site *site)
{
	CUdeviceptr ptr;

	if (is_given(cuMemAlloc_v2(&ptr, block_bytes)))
		site->taken[site->n_taken++] = ptr;
}

/* Leaves small blocks in the thread cache, if there is one. */
static void churn(struct site *site)
{
	CUdeviceptr ptr[CHURNED];

	for (unsigned i = 0; i < CHURNED; i++)
		ptr[i] = place_alloc(&site->place, STEPS_SMALL);
	for (unsigned i = 0; i < CHURNED; i++)
		PLACE_MUST(cuMemFree_v2(ptr[i]));
}

static void malloc_big(struct site *site)
{
	alloc(site, 3 * block_bytes);
}

static void malloc_managed(struct site *site)
{
	CUdeviceptr ptr;

	if (is_given(cuMemAllocManaged(&ptr, block_bytes, ATTACH_GLOBAL)))
		keep(site, ptr);
}

/* Allocates and frees in stream order, without a wait. */
static void malloc_async(struct site *site)
{
	CUdeviceptr ptr;

	if (is_given(cuMemAllocAsync(&ptr, block_bytes, site->releasing)))
		PLACE_MUST(cuMemFreeAsync(ptr, site->releasing));
}

static void free_host(struct site *site)
{
	PLACE_MUST(cuMemFreeHost(site->held_host[--site->n_held_host]));
}

static void malloc_host(struct site *site)
{
	void *ptr;

	if (!is_given(cuMemHostAlloc(&ptr, HOST_BYTES, CU_MEMHOSTALLOC_PORTABLE)))
		return;
	memset(ptr, 1, TOUCHED);
	site->got_host[site->n_got_host++] = ptr;
}

static void stream(struct site *site)
{
	site->releasing = place_stream(&site->place);
}

static void info(struct site *site)
{
	size_t free_bytes, total_bytes;

	(void)site;
	PLACE_MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
}

static void capture(struct site *site)
{
	site->capturing = place_stream(&site->place);
	PLACE_MUST(cuStreamBeginCapture_v2(site->capturing, CAPTURE_RELAXED));
	place_fill(&site->place, site->capturing, site->held[0], TOUCHED, 1);
}

static void end_capture(struct site *site)
{
	CUgraph graph;

	PLACE_MUST(cuStreamEndCapture(site->capturing, &graph));
	PLACE_MUST(cuGraphDestroy(graph));
}

/* Allocates all of the device's memory, until no block fits any more. */
static void take_all(struct site *site)
{
	size_t bytes = (size_t)1 << 38;

	(void)site;
	while (bytes >= block_bytes && n_all < ALL_MAX) {
		if (cuMemAlloc_v2(&all[n_all], bytes) == CUDA_SUCCESS)
			n_all++;
		else
			bytes = bytes / 2 < block_bytes && bytes > block_bytes ? block_bytes : bytes / 2;
	}
}

/* Connects to this process's control socket. Returns -1 if there is none because the library is not loaded. */
static int connect_to_self(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = getenv("GPUPOOL_RUNTIME_DIR");
	DIR *dir = path ? opendir(path) : NULL;
	const struct dirent *entry;
	char pid[32];
	int fd = -1;

	if (!dir)
		return -1;
	snprintf(pid, sizeof(pid), "%d.", (int)getpid());
	while ((entry = readdir(dir)) && strncmp(entry->d_name, pid, strlen(pid)) != 0)
		;
	if (entry && snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", path, entry->d_name) <
			     (int)sizeof(address.sun_path))
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	closedir(dir);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Sends a request, and waits for its answer. */
static void ask(const char *request)
{
	char answer[512] = "";
	int fd = connect_to_self();
	ssize_t n = fd < 0 ? 0 : write(fd, request, strlen(request));

	while (n > 0 && answer[n - 1] != '\n')
		n = read(fd, answer, sizeof(answer));
	if (fd >= 0)
		close(fd);
}

static void reclaim(struct site *site)
{
	(void)site;
	ask("reclaim\n");
	ask("reclaim pinned\n");
}

static void open_second(struct site *site)
{
	sites_open_second();
	place_enter(&site->place);
}

/* Ends the place's context, and with it all of its memory. */
static void close_place(struct site *site)
{
	if (steps_second_device != sites[0].place.device)
		PLACE_MUST(cuDevicePrimaryCtxReset_v2(site->place.device));
	else
		PLACE_MUST(cuCtxDestroy_v2(site->place.ctx));
	*site = (struct site){0};
}

static const struct word {
	const char *text;
	word_fn run;
} vocabulary[] = {
	{"spin", spin},
	{"release", release},
	{"host-release", host_release},
	{"busy", busy},
	{"busy-host", busy_host},
	{"free", free_block},
	{"free-async", free_async},
	{"free-behind", free_behind},
	{"malloc", malloc_block},
	{"take", take},
	{"churn", churn},
	{"malloc-big", malloc_big},
	{"malloc-managed", malloc_managed},
	{"malloc-async", malloc_async},
	{"free-host", free_host},
	{"malloc-host", malloc_host},
	{"stream", stream},
	{"info", info},
	{"capture", capture},
	{"end-capture", end_capture},
	{"take-all", take_all},
	{"reclaim", reclaim},
	{"open", open_second},
	{"close", close_place},
};

word_fn word_find(const char *text, size_t length)
{
	for (size_t i = 0; i < LENGTH(vocabulary); i++)
		if (strlen(vocabulary[i].text) == length && strncmp(vocabulary[i].text, text, length) == 0)
			return vocabulary[i].run;
	return NULL;
}

void sites_open_second(void)
{
	struct site *second = &sites[1];

	if (steps_second_device != sites[0].place.device)
		place_open(&second->place, steps_second_device);
	else
		place_create(&second->place, steps_second_device);
	site_prepare(second, false);
}

void site_set_bytes(size_t bytes)
{
	for (struct site *site = sites; bytes != block_bytes && site < sites + LENGTH(sites); site++)
		while (site->n_held)
			PLACE_MUST(cuMemFree_v2(site->held[--site->n_held]));
	block_bytes = bytes;
}

void site_hold(struct site *site)
{
	place_enter(&site->place);
	while (site->n_held < SITE_HELD)
		site->held[site->n_held++] = place_alloc(&site->place, block_bytes);
	for (; site->n_held_host < SITE_HELD; site->n_held_host++)
		PLACE_MUST(cuMemHostAlloc(&site->held_host[site->n_held_host], HOST_BYTES, CU_MEMHOSTALLOC_PORTABLE));
}

void site_prepare(struct site *site, bool is_alone)
{
	site->is_open = true;
	if (!is_alone) {
		site->spinning = place_stream(&site->place);
		site->releasing = place_stream(&site->place);
		site->working = place_stream(&site->place);
	}
	site_hold(site);
}

size_t site_end(struct site *site)
{
	size_t wrong = 0;

	if (!site->is_open)
		return 0;
	for (unsigned i = 0; i < site->n_got; i++)
		wrong += place_count_wrong(&site->place, site->got[i], TOUCHED, site->values[i]);
	place_enter(&site->place);
	PLACE_MUST(cuCtxSynchronize());
	while (site->n_got)
		PLACE_MUST(cuMemFree_v2(site->got[--site->n_got]));
	while (site->n_taken)
		PLACE_MUST(cuMemFree_v2(site->taken[--site->n_taken]));
	while (site->n_got_host)
		PLACE_MUST(cuMemFreeHost(site->got_host[--site->n_got_host]));
	while (site == &sites[0] && n_all)
		PLACE_MUST(cuMemFree_v2(all[--n_all]));
	return wrong;
}
