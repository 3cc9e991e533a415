/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "app_virtual.h"

CUmemAllocationProp array_properties = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
CUmemAccessDesc array_access = {
	.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
int array_n_peers = 1;
bool array_reserves_first;

static CUresult reserve(struct array *a)
{
	return cuMemAddressReserve(&a->ptr, a->bytes, 2 * MIB, 0, 0);
}

static CUresult create(struct array *a)
{
	return cuMemCreate(&a->handle, a->bytes, &array_properties, 0);
}

static CUresult map(const struct array *a)
{
	CUresult r = cuMemMap(a->ptr, a->bytes, 0, a->handle, 0);

	for (int i = 0; i < array_n_peers && !r; i++) {
		CUmemAccessDesc access = array_access;

		access.location.id = i;
		r = cuMemSetAccess(a->ptr, a->bytes, &access, 1);
		if (r)
			(void)cuMemUnmap(a->ptr, a->bytes);
	}
	return r;
}

CUresult array_try(struct array *a, size_t bytes)
{
	CUresult r;

	*a = (struct array){.bytes = bytes};
	r = array_reserves_first ? reserve(a) : create(a);
	if (!r)
		r = array_reserves_first ? create(a) : reserve(a);
	if (!r)
		r = map(a);
	if (r && a->handle)
		(void)cuMemRelease(a->handle);
	if (r && a->ptr)
		(void)cuMemAddressFree(a->ptr, bytes);
	return r;
}

void array_make(struct array *a, size_t bytes)
{
	APP_MUST(array_try(a, bytes));
}

void array_drop(const struct array *a)
{
	CUmemGenericAllocationHandle again;
	size_t bytes;

	APP_MUST(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)a->ptr));
	APP_MUST(cuMemRelease(again));
	APP_MUST(cuMemGetAddressRange_v2(NULL, &bytes, a->ptr));
	APP_MUST(cuMemUnmap(a->ptr, bytes));
	APP_MUST(cuMemRelease(a->handle));
	APP_MUST(cuMemAddressFree(a->ptr, bytes));
}

void array_destroy(const struct array *a)
{
	APP_MUST(cuCtxSynchronize());
	array_drop(a);
}
