/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory that does not come from cuMemAlloc: managed memory, and access to the memory of pools. */

#include "test_sim.h"

static size_t free_bytes(void)
{
	size_t available, total;

	ok(cuMemGetInfo_v2(&available, &total));
	return available;
}

static CUdeviceptr managed(size_t bytes)
{
	CUdeviceptr ptr;

	ok(cuMemAllocManaged(&ptr, bytes, 1));
	return ptr;
}

START_TEST(managed_memory_occupies_the_device_only_once_touched_and_can_be_evicted)
{
	CUdeviceptr a, b, c;
	size_t before;

	test_start_with("SIMGPU_MEMORY", "64M");
	before = free_bytes();
	a = managed(40 * MIB);
	b = managed(40 * MIB);
	c = managed(200 * MIB);
	ck_assert_uint_eq(free_bytes(), before);
	ok(test_fill(NULL, a, 40 * MIB / 4, 1));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(before - free_bytes(), 40 * MIB);
	ok(test_fill(NULL, b, 40 * MIB / 4, 2));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(free_bytes(), 0);
	ok(test_fill(NULL, c, 1, 3));
	ok(cuMemFree_v2(test_alloc(30 * MIB)));
	ck_assert_uint_eq(free_bytes(), 30 * MIB);
	ck_assert_uint_eq(test_word(a), 1);
	ck_assert_uint_eq(test_word(b + 40 * MIB - 4), 2);
	ck_assert_uint_eq(test_word(c), 3);
	ok(cuMemFree_v2(a));
	ok(cuMemFree_v2(b));
	ok(cuMemFree_v2(c));
	ck_assert_uint_eq(free_bytes(), before);
}
END_TEST

/* Returns the time that a fill of 16 MiB takes. */
static uint64_t fill_ns(CUdeviceptr ptr)
{
	uint64_t before = simgpu_now_ns();

	ok(test_fill(NULL, ptr, 16 * MIB / 4, 1));
	ok(cuCtxSynchronize());
	return simgpu_now_ns() - before;
}

START_TEST(a_migration_of_managed_memory_takes_time)
{
	uint64_t first, again;
	CUdeviceptr ptr;

	test_start();
	ptr = managed(16 * MIB);
	first = fill_ns(ptr);
	again = fill_ns(ptr);
	ck_assert_uint_eq(first - again, 16 * 40000);
}
END_TEST

START_TEST(a_device_that_lacks_a_feature_reports_that)
{
	int value = -1;

	test_start_with("SIMGPU_LACKS", "89,115");
	ok(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
	ck_assert_int_eq(value, 0);
	ok(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
	ck_assert_int_eq(value, 0);
	ok(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	ck_assert_int_eq(value, 1);
}
END_TEST

static const struct {
	int flags; /* access of the other device */
	CUresult copied, filled;
} accesses[] = {{CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_SUCCESS, CUDA_SUCCESS},
	{CU_MEM_ACCESS_FLAGS_PROT_NONE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_ILLEGAL_ADDRESS}};

START_TEST(other_devices_can_access_a_memory_pool_only_if_it_allows_that)
{
	CUmemPoolProps props = {.allocType = 1, .location = {.type = 1, .id = 0}};
	CUmemAccessDesc access = {.location = {.type = 1, .id = 1}, .flags = accesses[_i].flags};
	CUmemoryPool pool;
	CUcontext owner, other;
	CUdeviceptr ptr, own;

	test_start_with("SIMGPU_DEVICES", "2");
	ok(cuCtxGetCurrent(&owner));
	ok(cuMemPoolCreate(&pool, &props));
	ok(cuMemAllocFromPoolAsync(&ptr, 4 * MIB, pool, NULL));
	ok(cuCtxSynchronize());
	ok(cuMemPoolSetAccess(pool, &access, 1));
	access.location.id = 0;
	fails(cuMemPoolSetAccess(pool, &access, 1), CUDA_ERROR_INVALID_DEVICE);
	ok(cuDevicePrimaryCtxRetain(&other, 1));
	ok(cuCtxSetCurrent(other));
	ok(cuMemAlloc_v2(&own, MIB));
	fails(cuMemcpyDtoDAsync_v2(own, ptr, MIB, NULL), accesses[_i].copied);
	fails(cuMemcpyDtoDAsync_v2(ptr, own, MIB, NULL), accesses[_i].copied);
	ok(cuMemcpyPeerAsync(own, other, ptr, owner, MIB, NULL));
	test_load_kernels(&test_kernels);
	ok(test_fill(NULL, ptr, 1, 1));
	fails(cuCtxSynchronize(), accesses[_i].filled);
}
END_TEST

static TCase *memory_cases(void)
{
	TCase *tc = tcase_create("other memory");

	tcase_add_test(tc, managed_memory_occupies_the_device_only_once_touched_and_can_be_evicted);
	tcase_add_test(tc, a_migration_of_managed_memory_takes_time);
	tcase_add_test(tc, a_device_that_lacks_a_feature_reports_that);
	tcase_add_loop_test(tc, other_devices_can_access_a_memory_pool_only_if_it_allows_that, 0,
		(int)(sizeof(accesses) / sizeof(*accesses)));
	return tc;
}

int main(void)
{
	static TCase *(*const cases[])(void) = {memory_cases};

	return test_run("simulated GPU: other memory", cases, 1);
}
