/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Reserved addresses, and physical memory that is mapped there. Mapped memory is a block, which a
 * device can touch once it has access. Memory of the host can be mapped like that of a device.
 * A reservation has two address ranges: one for the program, and one through which the simulator
 * accesses the mapped memory.
 */

#include <stdlib.h>
#include <sys/mman.h>

#include "capture.h"
#include "race.h"

struct reservation {
	struct reservation *next;
	uint64_t addr;
	size_t bytes;
	char *view;
};

struct mapping {
	struct mapping *next;
	uint64_t addr;
	size_t bytes;
	struct sim_physical *physical;
	struct sim_block *block;
};

static struct reservation *reservations;
static struct mapping *mappings;

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop, int option)
{
	SIM_BEGIN(cuMemGetAllocationGranularity);
	if (!bytes || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = sim.config.granularity_bytes;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(
	CUdeviceptr *ptr, size_t bytes, size_t alignment, CUdeviceptr addr, unsigned long long flags)
{
	size_t unit;
	struct reservation *r;
	char *addresses, *view;

	SIM_BEGIN(cuMemAddressReserve);
	unit = sim.config.granularity_bytes;
	if (!ptr || !bytes || bytes % unit || (alignment & (alignment - 1)) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (alignment > unit)
		unit = alignment;
	/* Reserve one unit more, so that the start can be aligned. */
	addresses = sim_reserve(bytes + unit);
	view = addresses ? sim_reserve(bytes) : NULL;
	if (!view) {
		if (addresses)
			munmap(addresses, bytes + unit);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	r = sim_alloc_zeroed(1, sizeof(*r));
	r->view = view;
	r->addr = ((uintptr_t)addresses + unit - 1) / unit * unit;
	r->bytes = bytes;
	r->next = reservations;
	reservations = r;
	*ptr = r->addr;
	return CUDA_SUCCESS;
}

static bool overlaps(const struct mapping *m, uint64_t addr, size_t bytes)
{
	return m->addr < addr + bytes && addr < m->addr + m->bytes;
}

static bool is_any_mapped(uint64_t addr, size_t bytes)
{
	for (const struct mapping *m = mappings; m; m = m->next)
		if (overlaps(m, addr, bytes))
			return true;
	return false;
}

/* Keeps the address range reserved in the process, so that an address is never handed out again. */
CUresult cuMemAddressFree(CUdeviceptr ptr, size_t bytes)
{
	struct reservation **link = &reservations, *r;

	SIM_BEGIN(cuMemAddressFree);
	while (*link && ((*link)->addr != ptr || (*link)->bytes != bytes))
		link = &(*link)->next;
	r = *link;
	if (!r || is_any_mapped(ptr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	*link = r->next;
	munmap(r->view, r->bytes);
	free(r);
	return CUDA_SUCCESS;
}

static const struct reservation *reservation_of(uint64_t addr, size_t bytes)
{
	for (const struct reservation *r = reservations; r; r = r->next)
		if (addr >= r->addr && addr + bytes <= r->addr + r->bytes)
			return r;
	return NULL;
}

char *sim_virtual_bytes(uint64_t addr)
{
	const struct reservation *r = reservation_of(addr, 1);

	return r ? r->view + (addr - r->addr) : NULL;
}

/* Shows the memory at the addresses through which the simulator accesses it. */
static CUresult show(const struct mapping *m, char *bytes)
{
	if (mmap(bytes, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, sim_physical_fd(m->physical),
		    sim_physical_offset(m->physical)) == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	madvise(bytes, m->bytes, MADV_DONTDUMP);
	return CUDA_SUCCESS;
}

CUresult sim_physical_moved(const struct sim_physical *physical)
{
	for (const struct mapping *m = mappings; m; m = m->next)
		if (m->physical == physical)
			SIM_TRY(show(m, sim_virtual_bytes(m->addr)));
	return CUDA_SUCCESS;
}

/* Maps memory as a block. For memory of the host a real driver names device 0, and so does this one. */
static CUresult make_block(struct mapping *m)
{
	struct sim_device *device = sim_physical_device(m->physical);
	char *bytes = sim_virtual_bytes(m->addr);

	if (!device)
		SIM_TRY(sim_device_of(0, &device));
	SIM_TRY(show(m, bytes));
	m->block = sim_block_enter(SIM_MAPPED, NULL, m->addr, m->bytes);
	m->block->device = device;
	m->block->physical = m->physical;
	return CUDA_SUCCESS;
}

/* Ends a mapped block. Work that the host does not know to be finished could still touch it, which is a race. */
static void end_block(struct mapping *m)
{
	sim_race_unmap(m->addr, m->addr + m->bytes);
	sim_block_free(m->block);
	mmap(sim_virtual_bytes(m->addr), m->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		-1, 0);
}

CUresult cuMemMap(
	CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct sim_physical *physical = sim_physical_of(handle);
	struct mapping *m;

	SIM_BEGIN(cuMemMap);
	if (!physical || !bytes || bytes % sim.config.granularity_bytes || offset || flags ||
		bytes > sim_physical_bytes(physical) || !reservation_of(ptr, bytes) || is_any_mapped(ptr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	m = sim_alloc_zeroed(1, sizeof(*m));
	*m = (struct mapping){.next = mappings, .addr = ptr, .bytes = bytes, .physical = physical};
	if (make_block(m)) {
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	mappings = m;
	sim_physical_map(physical);
	return CUDA_SUCCESS;
}

/* Returns true if the range consists of whole mappings without gaps. */
static bool is_covered(uint64_t addr, size_t bytes)
{
	size_t covered = 0;

	for (const struct mapping *m = mappings; m; m = m->next) {
		if (!overlaps(m, addr, bytes))
			continue;
		if (m->addr < addr || m->addr + m->bytes > addr + bytes)
			return false;
		covered += m->bytes;
	}
	return bytes && covered == bytes;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
	SIM_BEGIN(cuMemUnmap);
	if (!is_covered(ptr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	for (struct mapping **link = &mappings, *m; (m = *link);) {
		if (!overlaps(m, ptr, bytes)) {
			link = &m->next;
			continue;
		}
		*link = m->next;
		end_block(m);
		sim_physical_unmap(m->physical);
		free(m);
	}
	return CUDA_SUCCESS;
}

static void set_access(struct sim_block *block, const CUmemAccessDesc *access)
{
	unsigned bit = 1u << access->location.id;

	block->access = access->flags ? block->access | bit : block->access & ~bit;
}

/* Sets the access of each named device to whole mappings. */
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
	struct sim_device *device;

	SIM_BEGIN(cuMemSetAccess);
	if (!access || !n || !is_covered(ptr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n; i++)
		if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE)
			SIM_TRY(sim_device_of(access[i].location.id, &device));
	for (const struct mapping *m = mappings; m; m = m->next)
		for (size_t i = 0; overlaps(m, ptr, bytes) && i < n; i++)
			if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE)
				set_access(m->block, &access[i]);
	return CUDA_SUCCESS;
}

/* Tells the access of a device to mapped memory. */
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	struct sim_device *device;

	SIM_BEGIN(cuMemGetAccess);
	if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(location->id, &device));
	for (const struct mapping *m = mappings; m; m = m->next) {
		if (!overlaps(m, ptr, 1))
			continue;
		*flags = m->block->access >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	SIM_BEGIN(cuMemRetainAllocationHandle);
	for (const struct mapping *m = mappings; handle && m; m = m->next) {
		if (!overlaps(m, (uint64_t)(uintptr_t)addr, 1))
			continue;
		*handle = sim_physical_retain(m->physical);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}
