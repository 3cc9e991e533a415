/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Devices: their addresses, and their physical memory in chunks. */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ctx.h"
#include "ledger.h"
#include "share.h"

enum {
	PAGE = 4096,
	PUNCH_MIN = 64 * 1024, /* below this, writing zeros is cheaper than faulting pages in again */
};

struct sim_device sim_devices[SIM_MAX_DEVICES];

/* A range that is in use elsewhere is left out, as the kernel then chooses another. */
void *sim_reserve(size_t bytes)
{
	static size_t next;
	void *range;

	if (!next)
		next = sim.config.addresses;
	range = mmap((void *)next, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (range == MAP_FAILED)
		return NULL;
	if (next)
		next += bytes;
	/* A core dump would touch every page, and so take as much real memory as is simulated. */
	madvise(range, bytes, MADV_DONTDUMP);
	return range;
}

/*
 * Each device has addresses for twice its capacity, so that only the amount of free memory decides
 * whether an allocation succeeds. First fit reuses the lowest addresses.
 */
static CUresult device_init(struct sim_device *device, int ordinal)
{
	void *span, *bytes;

	device->ordinal = ordinal;
	device->capacity = sim.config.memory_bytes / SIM_CHUNK * SIM_CHUNK;
	device->span = 2 * device->capacity + SIM_CHUNK;
	device->n_chunks = (unsigned)(2 * device->capacity / SIM_CHUNK);
	device->taken = sim_alloc_zeroed(device->n_chunks + 1, 1);
	device->fd = memfd_create("simgpu", MFD_CLOEXEC);
	if (device->fd < 0 || ftruncate(device->fd, (off_t)device->span))
		return CUDA_ERROR_OUT_OF_MEMORY;
	span = sim_reserve(device->span);
	bytes = mmap(NULL, device->span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, device->fd, 0);
	if (!span || bytes == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	madvise(bytes, device->span, MADV_DONTDUMP);
	device->base = ((uint64_t)(uintptr_t)span + SIM_CHUNK - 1) / SIM_CHUNK * SIM_CHUNK;
	device->bytes = bytes;
	device->primary = sim_ctx_new(device, true, 0);
	return CUDA_SUCCESS;
}

CUresult sim_devices_init(void)
{
	if (!sim_ledger_open()) {
		sim_print("SIMGPU_SHARED=%s cannot be used", sim.config.shared);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (unsigned i = 0; i < sim.config.devices; i++) {
		SIM_TRY(device_init(&sim_devices[i], (int)i));
		sim_pools_init(&sim_devices[i]);
	}
	return CUDA_SUCCESS;
}

CUresult sim_device_of(CUdevice ordinal, struct sim_device **device)
{
	if (ordinal < 0 || ordinal >= (int)sim.config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = &sim_devices[ordinal];
	return CUDA_SUCCESS;
}

CUresult sim_device_charge(struct sim_device *device, size_t bytes)
{
	if ((bytes > device->capacity - device->used && !sim_managed_make_room(device, bytes, NULL)) ||
		!sim_ledger_record(device->ordinal, device->used + bytes, device->capacity))
		return CUDA_ERROR_OUT_OF_MEMORY;
	device->used += bytes;
	return CUDA_SUCCESS;
}

void sim_device_discharge(struct sim_device *device, size_t bytes)
{
	device->used -= bytes;
	sim_ledger_record(device->ordinal, device->used, device->capacity);
}

/* Returns the start of the lowest run of n free chunks, or n_chunks if there is none. */
static unsigned find_run(const struct sim_device *device, size_t n)
{
	size_t run = 0;

	for (unsigned i = device->first_free; i < device->n_chunks; i++) {
		run = device->taken[i] ? 0 : run + 1;
		if (run == n)
			return i + 1 - (unsigned)n;
	}
	return device->n_chunks;
}

static void move_first_free(struct sim_device *device)
{
	while (device->first_free < device->n_chunks && device->taken[device->first_free])
		device->first_free++;
}

static unsigned chunks_of(size_t bytes)
{
	return (unsigned)(bytes / SIM_CHUNK + (bytes % SIM_CHUNK != 0));
}

CUresult sim_device_reserve(struct sim_device *device, size_t bytes, uint64_t *addr)
{
	unsigned first;

	if (bytes > device->n_chunks * SIM_CHUNK)
		return CUDA_ERROR_OUT_OF_MEMORY;
	first = find_run(device, chunks_of(bytes));
	if (first == device->n_chunks)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(device->taken + first, 1, chunks_of(bytes));
	move_first_free(device);
	*addr = device->base + first * SIM_CHUNK;
	return CUDA_SUCCESS;
}

void sim_device_unreserve(struct sim_device *device, uint64_t addr, size_t bytes)
{
	unsigned first = (unsigned)((addr - device->base) / SIM_CHUNK);

	memset(device->taken + first, 0, chunks_of(bytes));
	if (first < device->first_free)
		device->first_free = first;
}

CUresult sim_device_take(struct sim_device *device, size_t bytes, uint64_t *addr)
{
	SIM_TRY(sim_device_reserve(device, bytes, addr));
	if (!sim_device_charge(device, chunks_of(bytes) * SIM_CHUNK))
		return CUDA_SUCCESS;
	sim_device_unreserve(device, *addr, bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_device_scrub(struct sim_device *device, uint64_t addr, size_t bytes)
{
	uint64_t lo = (addr + PAGE - 1) / PAGE * PAGE, hi = (addr + bytes) / PAGE * PAGE;

	if (bytes < PUNCH_MIN || sim_share_is_at(addr) ||
		fallocate(device->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(lo - device->base),
			(off_t)(hi - lo))) {
		memset(sim_bytes_at(addr), 0, bytes);
		return;
	}
	memset(sim_bytes_at(addr), 0, lo - addr);
	memset(sim_bytes_at(hi), 0, addr + bytes - hi);
}

void sim_device_give(struct sim_device *device, uint64_t addr, size_t bytes, bool dirty)
{
	size_t whole = chunks_of(bytes) * SIM_CHUNK;

	if (!sim_share_end(device, addr) && dirty)
		sim_device_scrub(device, addr, whole);
	sim_device_unreserve(device, addr, bytes);
	sim_device_discharge(device, whole);
}

static const struct sim_device *device_at(uint64_t addr)
{
	for (unsigned i = 0; i < sim.config.devices; i++)
		if (sim_devices[i].bytes && addr >= sim_devices[i].base &&
			addr < sim_devices[i].base + sim_devices[i].n_chunks * SIM_CHUNK)
			return &sim_devices[i];
	return NULL;
}

bool sim_address_is_device(uint64_t addr)
{
	return device_at(addr) || sim_virtual_bytes(addr);
}

char *sim_bytes_at(uint64_t addr)
{
	const struct sim_device *device = device_at(addr);
	char *bytes = device ? device->bytes + (addr - device->base) : sim_virtual_bytes(addr);

	return bytes ? bytes : (char *)(uintptr_t)addr;
}
