/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Reserved addresses, and physical memory mapped there. It only counts: kernels cannot touch it, and
 * access rights are not kept.
 */

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "capture.h"

struct reservation {
	struct reservation *next;
	uint64_t addr;
	size_t bytes;
};

struct mapping {
	struct mapping *next;
	uint64_t addr;
	size_t bytes;
	struct sim_physical *physical;
};

static struct reservation *reservations;
static struct mapping *mappings;

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop, int option)
{
	SIM_BEGIN(cuMemGetAllocationGranularity);
	if (!bytes || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = SIM_CHUNK;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(
	CUdeviceptr *ptr, size_t bytes, size_t alignment, CUdeviceptr addr, unsigned long long flags)
{
	struct reservation *r;
	void *place;

	SIM_BEGIN(cuMemAddressReserve);
	if (!ptr || !bytes || bytes % SIM_CHUNK || flags)
		return CUDA_ERROR_INVALID_VALUE;
	/* One chunk more, to align within. */
	place = mmap(NULL, bytes + SIM_CHUNK, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (place == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = sim_alloc_zeroed(1, sizeof(*r));
	r->addr = ((uintptr_t)place + SIM_CHUNK - 1) / SIM_CHUNK * SIM_CHUNK;
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

/* The address space itself is kept: an address never comes again. */
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
	free(r);
	return CUDA_SUCCESS;
}

static bool is_reserved(uint64_t addr, size_t bytes)
{
	for (const struct reservation *r = reservations; r; r = r->next)
		if (addr >= r->addr && addr + bytes <= r->addr + r->bytes)
			return true;
	return false;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
	unsigned long long flags)
{
	struct sim_physical *physical = sim_physical_of(handle);
	struct mapping *m;

	SIM_BEGIN(cuMemMap);
	if (!physical || !bytes || bytes % SIM_CHUNK || offset || flags ||
		bytes > sim_physical_bytes(physical) || !is_reserved(ptr, bytes) ||
		is_any_mapped(ptr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	m = sim_alloc_zeroed(1, sizeof(*m));
	*m = (struct mapping){mappings, ptr, bytes, physical};
	mappings = m;
	sim_physical_map(physical);
	return CUDA_SUCCESS;
}

/* Whole mappings that together are the range. */
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
		sim_physical_unmap(m->physical);
		free(m);
	}
	return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t bytes, const void *access, size_t n)
{
	SIM_BEGIN(cuMemSetAccess);
	return access && n && is_covered(ptr, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
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

/* A descriptor that says which memory it stands for, in this process. */
CUresult cuMemExportToShareableHandle(
	void *shareable, CUmemGenericAllocationHandle handle, int type, unsigned long long flags)
{
	struct sim_physical *physical = sim_physical_of(handle);
	int fd;

	SIM_BEGIN(cuMemExportToShareableHandle);
	if (!shareable || !physical || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags)
		return CUDA_ERROR_INVALID_VALUE;
	fd = memfd_create("simgpu-physical", MFD_CLOEXEC);
	if (fd < 0 || write(fd, &handle, sizeof(handle)) != sizeof(handle))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*(int *)shareable = fd;
	return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(
	CUmemGenericAllocationHandle *handle, void *shareable, int type)
{
	struct sim_physical *physical;

	SIM_BEGIN(cuMemImportFromShareableHandle);
	if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
		pread((int)(intptr_t)shareable, handle, sizeof(*handle), 0) != sizeof(*handle))
		return CUDA_ERROR_INVALID_VALUE;
	physical = sim_physical_of(*handle);
	if (!physical)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = sim_physical_retain(physical);
	return CUDA_SUCCESS;
}
