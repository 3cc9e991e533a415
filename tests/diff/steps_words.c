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
static bool has_succeeded(CUresult r)
{
	if (r == CUDA_ERROR_OUT_OF_MEMORY)
		app_result("allocation", r);
	else
		CONTEXT_MUST(r);
	return !r;
}

static void spin(struct site *site)
{
	context_wait_flag(&site->context, site->spinning, flag_address(), 1);
}

static void release(struct site *site)
{
	context_set_flag(&site->context, site->releasing, flag_address(), 1);
}

static void host_release(struct site *site)
{
	(void)site;
	atomic_store(site_flag, 1);
}

/* Launches work that lasts a while, and writes at its end to the block that is freed next. */
static void busy(struct site *site)
{
	context_spin_fill(&site->context, site->working, site->held[site->n_held - 1], TOUCHED, 0xdead, BUSY_MS * MS);
}

static void busy_host(struct site *site)
{
	CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)site->held_host[site->n_held_host - 1];

	context_spin_fill(&site->context, site->working, ptr, TOUCHED, 0xdead, BUSY_MS * MS);
}

static void free_block(struct site *site)
{
	CONTEXT_MUST(cuMemFree_v2(site->held[--site->n_held]));
}

static void free_async(struct site *site)
{
	CONTEXT_MUST(cuMemFreeAsync(site->held[--site->n_held], site->working));
}

/* Submits work on a block to the stream of the spinning kernel, and frees the block in that stream. */
static void free_behind(struct site *site)
{
	CUdeviceptr ptr = site->held[--site->n_held];

	context_fill(&site->context, site->spinning, ptr, TOUCHED, 0xdead);
	CONTEXT_MUST(cuMemFreeAsync(ptr, site->spinning));
}

static void fill_and_keep(struct site *site, CUdeviceptr ptr)
{
	static uint32_t n_values;
	uint32_t value = ++n_values;

	context_fill(&site->context, site->releasing, ptr, TOUCHED, value);
	site->values[site->n_got] = value;
	site->got[site->n_got++] = ptr;
}

static void alloc(struct site *site, size_t bytes)
{
	CUdeviceptr ptr;

	if (has_succeeded(cuMemAlloc_v2(&ptr, bytes)))
		fill_and_keep(site, ptr);
}

static void malloc_block(struct site *site)
{
	alloc(site, block_bytes);
}

/* Allocates a block without launching work on it. */
static void take(struct site *site)
{
	CUdeviceptr ptr;

	if (has_succeeded(cuMemAlloc_v2(&ptr, block_bytes)))
		site->taken[site->n_taken++] = ptr;
}

/* Leaves small blocks in the thread cache, if there is one. */
static void churn(struct site *site)
{
	CUdeviceptr ptr[CHURNED];

	for (unsigned i = 0; i < CHURNED; i++)
		ptr[i] = context_alloc(&site->context, STEPS_SMALL);
	for (unsigned i = 0; i < CHURNED; i++)
		CONTEXT_MUST(cuMemFree_v2(ptr[i]));
}

static void malloc_big(struct site *site)
{
	alloc(site, 3 * block_bytes);
}

static void malloc_managed(struct site *site)
{
	CUdeviceptr ptr;

	if (has_succeeded(cuMemAllocManaged(&ptr, block_bytes, ATTACH_GLOBAL)))
		fill_and_keep(site, ptr);
}

/* Allocates and frees in stream order, without a wait. */
static void malloc_async(struct site *site)
{
	CUdeviceptr ptr;

	if (has_succeeded(cuMemAllocAsync(&ptr, block_bytes, site->releasing)))
		CONTEXT_MUST(cuMemFreeAsync(ptr, site->releasing));
}

static void free_host(struct site *site)
{
	CONTEXT_MUST(cuMemFreeHost(site->held_host[--site->n_held_host]));
}

static void malloc_host(struct site *site)
{
	void *ptr;

	if (!has_succeeded(cuMemHostAlloc(&ptr, HOST_BYTES, CU_MEMHOSTALLOC_PORTABLE)))
		return;
	memset(ptr, 1, TOUCHED);
	site->got_host[site->n_got_host++] = ptr;
}

static void stream(struct site *site)
{
	site->releasing = context_stream(&site->context);
}

static void info(struct site *site)
{
	size_t free_bytes, total_bytes;

	(void)site;
	CONTEXT_MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
}

static void capture(struct site *site)
{
	site->capturing = context_stream(&site->context);
	CONTEXT_MUST(cuStreamBeginCapture_v2(site->capturing, CAPTURE_RELAXED));
	context_fill(&site->context, site->capturing, site->held[0], TOUCHED, 1);
}

static void end_capture(struct site *site)
{
	CUgraph graph;

	CONTEXT_MUST(cuStreamEndCapture(site->capturing, &graph));
	CONTEXT_MUST(cuGraphDestroy(graph));
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
	context_enter(&site->context);
}

/* Ends the context, and with it all of its memory. */
static void close_context(struct site *site)
{
	if (steps_second_device != sites[0].context.device)
		CONTEXT_MUST(cuDevicePrimaryCtxReset_v2(site->context.device));
	else
		CONTEXT_MUST(cuCtxDestroy_v2(site->context.ctx));
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
	{"close", close_context},
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

	if (steps_second_device != sites[0].context.device)
		context_open(&second->context, steps_second_device);
	else
		context_create(&second->context, steps_second_device);
	site_prepare(second, false);
}

void site_set_bytes(size_t bytes)
{
	for (struct site *site = sites; bytes != block_bytes && site < sites + LENGTH(sites); site++)
		while (site->n_held)
			CONTEXT_MUST(cuMemFree_v2(site->held[--site->n_held]));
	block_bytes = bytes;
}

void site_hold(struct site *site)
{
	context_enter(&site->context);
	while (site->n_held < SITE_HELD)
		site->held[site->n_held++] = context_alloc(&site->context, block_bytes);
	for (; site->n_held_host < SITE_HELD; site->n_held_host++)
		CONTEXT_MUST(cuMemHostAlloc(&site->held_host[site->n_held_host], HOST_BYTES, CU_MEMHOSTALLOC_PORTABLE));
}

void site_prepare(struct site *site, bool is_alone)
{
	site->is_open = true;
	if (!is_alone) {
		site->spinning = context_stream(&site->context);
		site->releasing = context_stream(&site->context);
		site->working = context_stream(&site->context);
	}
	site_hold(site);
}

size_t site_end(struct site *site)
{
	size_t wrong = 0;

	if (!site->is_open)
		return 0;
	for (unsigned i = 0; i < site->n_got; i++)
		wrong += context_count_wrong(&site->context, site->got[i], TOUCHED, site->values[i]);
	context_enter(&site->context);
	CONTEXT_MUST(cuCtxSynchronize());
	while (site->n_got)
		CONTEXT_MUST(cuMemFree_v2(site->got[--site->n_got]));
	while (site->n_taken)
		CONTEXT_MUST(cuMemFree_v2(site->taken[--site->n_taken]));
	while (site->n_got_host)
		CONTEXT_MUST(cuMemFreeHost(site->got_host[--site->n_got_host]));
	while (site == &sites[0] && n_all)
		CONTEXT_MUST(cuMemFree_v2(all[--n_all]));
	return wrong;
}
