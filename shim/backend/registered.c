/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "registered.h"

#include <stdlib.h>

#include "shim/base/fork.h"
#include "shim/base/host_pages.h"
#include "shim/base/log.h"
#include "shim/context/driver_call.h"
#include "shim/driver/driver_table.h"

struct segment {
	uint64_t addr, bytes;
	bool is_portable;                 /* the program has asked for it */
	const struct gp_context *context; /* only compared, never dereferenced */
	struct segment *next;
};

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct segment *segments;    /* a few: each has 16 MiB or more */
static _Atomic uint64_t n_segments; /* without one, nothing needs the lock */

/* The size from which the driver has refused a registration. */
static _Atomic uint64_t refused_bytes = UINT64_MAX;

enum { UNKNOWN, POSSIBLE, IMPOSSIBLE };

/*
 * True if every device of the process reaches registered memory at the host's address: pinned memory is for all
 * contexts. Devices that use the host's page tables have not been measured, and keep the driver's way.
 */
static bool is_possible_on(CUdevice device)
{
	return gp_driver_has(device, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) &&
	       gp_driver_has(device, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) &&
	       !gp_driver_has(device, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
}

static bool is_possible(void)
{
	static _Atomic int known = UNKNOWN;
	int answer = atomic_load(&known), n = 0;

	if (answer != UNKNOWN)
		return answer == POSSIBLE;
	if (!gp_real.cuMemHostRegister_v2 || !gp_real.cuMemHostUnregister || !gp_real.cuMemHostGetDevicePointer_v2 ||
		!gp_real.cuDeviceGetCount || gp_real.cuDeviceGetCount(&n) || n < 1)
		answer = IMPOSSIBLE;
	for (int i = 0; i < n && answer != IMPOSSIBLE; i++)
		answer = is_possible_on(i) ? POSSIBLE : IMPOSSIBLE;
	atomic_store(&known, answer);
	return answer == POSSIBLE;
}

void *gp_registered_prepare(const struct gp_context *context, unsigned kind, uint64_t bytes)
{
	uint64_t threads = gp_state.config.pinned_threads;
	struct gp_host_pages_how how = {.threads = threads == GP_CONFIG_THREADS_AUTO ? 0 : (unsigned)threads};
	bool is_combined = kind != GP_PINNED_ALLOC_HOST && kind & CU_MEMHOSTALLOC_WRITECOMBINED;

	if (bytes < GP_REGISTERED_MIN || bytes > GP_REGISTERED_MAX || !threads || is_combined ||
		bytes >= atomic_load(&refused_bytes) || !is_possible())
		return NULL;
	how.node = gp_driver_numa_node(context->device->index);
	return gp_host_pages_map(bytes, &how);
}

void gp_registered_discard(void *memory, uint64_t bytes)
{
	if (memory)
		gp_host_pages_unmap(memory, bytes);
}

/* True if the devices reach the registered memory at the host's address, as they reach the driver's own. */
static bool is_at_same_address(void *memory)
{
	CUdeviceptr device = 0;

	return !gp_real.cuMemHostGetDevicePointer_v2(&device, memory, 0) && device == (CUdeviceptr)(uintptr_t)memory;
}

/* A size that the driver has refused is not tried again, since touching the memory would only take time. */
static void note_refused(uint64_t bytes)
{
	uint64_t before = atomic_load(&refused_bytes);

	while (bytes < before && !atomic_compare_exchange_weak(&refused_bytes, &before, bytes))
		;
}

static bool register_memory(void *memory, uint64_t bytes)
{
	CUresult r =
		gp_real.cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);

	if (!r && is_at_same_address(memory))
		return true;
	if (!r)
		(void)gp_real.cuMemHostUnregister(memory);
	/* Other errors concern the context or the moment. */
	if (!r || r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_OUT_OF_MEMORY || r == CUDA_ERROR_NOT_SUPPORTED)
		note_refused(bytes);
	gp_log(GP_LOG_DEBUG, "the driver registers no %zu bytes of pinned memory (error %d): it allocates them instead",
		(size_t)bytes, r);
	return false;
}

bool gp_registered_add(struct gp_context *context, unsigned kind, void *memory, uint64_t bytes)
{
	struct segment *segment = malloc(sizeof(*segment));
	bool is_registered = segment && register_memory(memory, bytes);

	if (!is_registered) {
		free(segment);
		gp_host_pages_unmap(memory, bytes);
		return false;
	}
	*segment = (struct segment){.addr = (uint64_t)(uintptr_t)memory,
		.bytes = bytes,
		.is_portable = kind != GP_PINNED_ALLOC_HOST && kind & CU_MEMHOSTALLOC_PORTABLE,
		.context = context};
	gp_mutex_lock(&lock);
	segment->next = segments;
	segments = segment;
	atomic_fetch_add(&n_segments, 1);
	gp_mutex_unlock(&lock);
	return true;
}

/* Returns the link to the segment around the address, or to the end of the list. */
static struct segment **find_locked(uint64_t addr)
{
	struct segment **at = &segments;

	while (*at && addr - (*at)->addr >= (*at)->bytes)
		at = &(*at)->next;
	return at;
}

bool gp_registered_at(uint64_t addr, bool *ret_portable)
{
	const struct segment *segment;

	if (!atomic_load(&n_segments))
		return false;
	gp_mutex_lock(&lock);
	segment = *find_locked(addr);
	if (segment && ret_portable)
		*ret_portable = segment->is_portable;
	gp_mutex_unlock(&lock);
	return segment != NULL;
}

bool gp_registered_begins_at(uint64_t addr)
{
	const struct segment *segment;
	bool is_found;

	if (!atomic_load(&n_segments))
		return false;
	gp_mutex_lock(&lock);
	segment = *find_locked(addr);
	is_found = segment && segment->addr == addr;
	gp_mutex_unlock(&lock);
	return is_found;
}

static struct segment *take_out_locked(struct segment **at)
{
	struct segment *segment = *at;

	*at = segment->next;
	atomic_fetch_sub(&n_segments, 1);
	return segment;
}

static void unmap(struct segment *segment)
{
	gp_host_pages_unmap((void *)(uintptr_t)segment->addr, segment->bytes);
	free(segment);
}

CUresult gp_registered_release(uint64_t addr, uint64_t *ret_bytes)
{
	CUresult r = gp_real.cuMemHostUnregister((void *)(uintptr_t)addr);
	struct segment *segment;

	*ret_bytes = 0;
	if (r)
		return r;
	/* The segment leaves the list before its address can be that of another mapping. */
	gp_mutex_lock(&lock);
	segment = take_out_locked(find_locked(addr));
	gp_mutex_unlock(&lock);
	*ret_bytes = segment->bytes;
	unmap(segment);
	return CUDA_SUCCESS;
}

/* The driver has ended the registrations with the context. The memory ends now, as that of the driver has. */
static void unmap_of_context(struct gp_context *context)
{
	struct segment *ended = NULL;

	gp_mutex_lock(&lock);
	for (struct segment **at = &segments; *at;) {
		struct segment *segment;

		if ((*at)->context != context) {
			at = &(*at)->next;
			continue;
		}
		segment = take_out_locked(at);
		segment->next = ended;
		ended = segment;
	}
	gp_mutex_unlock(&lock);
	while (ended) {
		struct segment *next = ended->next;

		unmap(ended);
		ended = next;
	}
}

static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}

void gp_registered_start(void)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};
	static struct gp_context_watcher watcher = {.after_end = unmap_of_context};

	gp_fork_on_child(&child);
	gp_context_watch(&watcher);
}
