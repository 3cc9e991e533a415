/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Allocation, frees that wait and frees that do not, and attributes of pointers. */

#include <signal.h>

#include "test_sim.h"

static size_t free_bytes(void)
{
	size_t bytes;

	ok(cuMemGetInfo_v2(&bytes, NULL));
	return bytes;
}

static CUstream busy_stream(void)
{
	CUstream stream = test_stream(CU_STREAM_NON_BLOCKING);

	ok(test_spin(stream, 100 * MS));
	return stream;
}

static uint64_t time_of_free(CUdeviceptr ptr)
{
	uint64_t before = simgpu_now_ns();

	ok(cuMemFree_v2(ptr));
	return simgpu_now_ns() - before;
}

START_TEST(a_free_waits_for_all_work_of_its_context)
{
	static const size_t sizes[] = {512, MIB, 4 * MIB};
	CUdeviceptr ptr;

	test_start();
	ptr = test_alloc(sizes[_i]);
	busy_stream();
	ck_assert_uint_gt(time_of_free(ptr), 95 * MS);
	ck_assert(simgpu_idle(0));
}
END_TEST

START_TEST(a_free_does_not_wait_for_work_of_another_device)
{
	CUcontext other;
	CUdeviceptr ptr;

	test_start_with("SIMGPU_DEVICES", "2");
	ptr = test_alloc(MIB);
	ok(cuDevicePrimaryCtxRetain(&other, 1));
	ok(cuCtxSetCurrent(other));
	test_load_kernels(&test_kernels);
	busy_stream();
	ck_assert_uint_lt(time_of_free(ptr), MS); /* with the other context current */
	ck_assert(!simgpu_idle(1));
}
END_TEST

START_TEST(another_devices_kernel_fails_when_its_peer_memory_is_freed)
{
	CUcontext other;
	CUdeviceptr ptr;

	test_start_with("SIMGPU_DEVICES", "2");
	ptr = test_alloc(MIB);
	ok(cuDevicePrimaryCtxRetain(&other, 1));
	ok(cuCtxSetCurrent(other));
	test_load_kernels(&test_kernels);
	ok(cuCtxEnablePeerAccess(test_ctx, 0));
	ok(test_spin_fill(test_stream(CU_STREAM_NON_BLOCKING), ptr, 1, 1, 100 * MS));
	ck_assert_uint_lt(time_of_free(ptr), MS);
	fails(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	fails(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS); /* sticky */
	ok(cuCtxSetCurrent(test_ctx));
	ok(cuCtxSynchronize());
}
END_TEST

START_TEST(without_peer_access_another_contexts_memory_is_an_illegal_address)
{
	CUcontext other;
	CUdeviceptr ptr;

	test_start();
	ptr = test_alloc(MIB);
	ok(cuCtxCreate_v2(&other, 0, 0));
	test_load_kernels(&test_kernels);
	ok(test_fill(NULL, ptr, 1, 1));
	fails(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(pinned_frees_wait_for_the_gpu_and_allocations_do_not)
{
	void *pinned, *more;
	CUdeviceptr ptr;
	uint64_t before;

	test_start();
	ok(cuMemHostAlloc(&pinned, 4096, 0));
	busy_stream();
	before = simgpu_now_ns();
	ptr = test_alloc(4 * MIB);
	ok(cuMemHostAlloc(&more, 4096, 0));
	ck_assert_uint_lt(simgpu_now_ns() - before, 2 * MS);
	ok(cuMemFreeHost(pinned));
	ck_assert_uint_gt(simgpu_now_ns() - before, 95 * MS);
	ok(cuMemFree_v2(ptr));
}
END_TEST

START_TEST(an_async_free_never_waits_and_releases_the_memory_in_stream_order)
{
	CUstream stream;
	size_t full, before;
	CUdeviceptr ptr;
	uint64_t start;

	test_start();
	full = free_bytes();
	ptr = test_alloc(64 * MIB);
	before = free_bytes();
	ck_assert_uint_eq(full - before, 64 * MIB);
	busy_stream();
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	start = simgpu_now_ns();
	ok(cuMemFreeAsync(ptr, stream));
	fails(cuMemFree_v2(ptr), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemFreeAsync(ptr, stream), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(simgpu_invalid_uses(), 1);
	ck_assert_uint_eq(free_bytes(), before);
	ok(cuStreamSynchronize(stream));
	ck_assert_uint_lt(simgpu_now_ns() - start, MS);
	ck_assert_uint_eq(free_bytes(), full);
}
END_TEST

START_TEST(both_kinds_of_free_take_both_kinds_of_memory)
{
	CUdeviceptr ptr;

	test_start();
	ok(cuMemAllocAsync(&ptr, MIB, NULL));
	ok(cuMemFree_v2(ptr));
	ptr = test_alloc(MIB);
	ok(cuMemFreeAsync(ptr, NULL));
	ok(cuCtxSynchronize());
	fails(cuMemFree_v2(ptr), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(the_drivers_memory_pool_keeps_freed_memory_until_it_is_trimmed)
{
	CUmemoryPool pool;
	CUdeviceptr ptr, big;
	uint64_t reserved;

	test_start_with("SIMGPU_MEMORY", "64M");
	ok(cuDeviceGetDefaultMemPool(&pool, 0));
	ok(cuMemAllocAsync(&ptr, 32 * MIB, NULL));
	ok(cuMemFreeAsync(ptr, NULL));
	simgpu_advance(MS);
	fails(cuMemAlloc_v2(&big, 48 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	ok(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	ck_assert_uint_eq(reserved, 32 * MIB);
	ok(cuMemPoolTrimTo(pool, 0));
	ok(cuMemAlloc_v2(&big, 48 * MIB));
}
END_TEST

START_TEST(small_blocks_share_a_chunk_and_large_ones_are_aligned)
{
	CUdeviceptr a, b, c;
	size_t before, size;
	CUdeviceptr base;

	test_start();
	before = simgpu_allocated_bytes(0);
	a = test_alloc(1);
	b = test_alloc(513);
	c = test_alloc(1);
	ck_assert_uint_eq(b - a, 512);
	ck_assert_uint_eq(c - b, 1024);
	ck_assert_uint_eq(simgpu_allocated_bytes(0) - before, 2 * MIB);
	ok(cuMemGetAddressRange_v2(&base, &size, b + 700));
	ck_assert_uint_eq(base, b);
	ck_assert_uint_eq(size, 1024);
	before = simgpu_allocated_bytes(0);
	a = test_alloc(MIB + 1);
	ck_assert_uint_eq(a % (2 * MIB), 0);
	ck_assert_uint_eq(simgpu_allocated_bytes(0) - before, 2 * MIB);
}
END_TEST

START_TEST(bad_allocations_and_bad_frees_return_invalid_value)
{
	CUdeviceptr ptr = 42, live;
	int local;

	test_start();
	live = test_alloc(4 * MIB);
	fails(cuMemAlloc_v2(&ptr, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(ptr, 0);
	fails(cuMemAlloc_v2(NULL, 64), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemFree_v2(live + 512), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemFree_v2((CUdeviceptr)(uintptr_t)&local), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemFree_v2(0));
	ok(cuMemFree_v2(live));
	fails(cuMemFree_v2(live), CUDA_ERROR_INVALID_VALUE);
	ok(cuCtxSetCurrent(NULL));
	fails(cuMemAlloc_v2(&ptr, 64), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

START_TEST(null_frees_and_zero_sizes_succeed_where_they_do_in_the_driver)
{
	void *pinned = &pinned;
	CUdeviceptr ptr = 42;
	unsigned flags;

	test_start();
	ok(cuMemFreeHost(NULL));
	ok(cuMemFreeAsync(0, NULL));
	ok(cuMemHostAlloc(&pinned, 0, 0));
	ck_assert_ptr_null(pinned);
	ok(cuMemAllocAsync(&ptr, 0, NULL));
	ck_assert_uint_eq(ptr, 0);
	ok(cuMemHostAlloc(&pinned, 100, 0));
	ok(cuMemHostGetFlags(&flags, pinned));
	ck_assert_uint_eq(flags, CU_MEMHOSTALLOC_DEVICEMAP);
}
END_TEST

START_TEST(the_device_capacity_is_a_limit_and_freed_memory_is_available_again)
{
	CUdeviceptr ptr = 7;

	test_start_with("SIMGPU_MEMORY", "64M");
	fails(cuMemAlloc_v2(&ptr, 64 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(ptr, 0);
	for (int i = 0; i < 100; i++)
		ok(cuMemFree_v2(test_alloc(free_bytes())));
	ck_assert_uint_gt(free_bytes(), 48 * MIB);
}
END_TEST

static const struct scrubbed {
	size_t bytes;
	bool is_exported; /* exported, so that a separate file holds it */
} scrubbed[] = {{4096}, {66 * 1024 + 512}, {MIB}, {MIB, true}, {3 * MIB}, {3 * MIB, true}};

/* The whole block is scrubbed, and no other block in its chunk. */
START_TEST(new_memory_is_zero_and_freed_memory_is_scrubbed)
{
	const struct scrubbed *what = &scrubbed[_i];
	CUdeviceptr before, first, after, again, wrong;
	CUipcMemHandle handle;

	test_start();
	wrong = test_alloc(8);
	before = test_alloc(512);
	first = test_alloc(what->bytes);
	after = test_alloc(512);
	if (what->is_exported)
		ok(cuIpcGetMemHandle(&handle, first));
	ck_assert_uint_eq(test_word(first), 0);
	ok(test_fill(NULL, before, 512 / 4, 0xbe));
	ok(test_fill(NULL, first, what->bytes / 4, 0xdeadbeef));
	ok(test_fill(NULL, after, 512 / 4, 0xaf));
	ck_assert_uint_eq(test_word(first), 0xdeadbeef);
	ok(cuMemFree_v2(first));
	again = test_alloc(what->bytes);
	ck_assert_uint_eq(again, first);
	/* Before its first write a new block reads as zero, even if it has old contents. */
	ok(test_fill(NULL, again, 1, 1));
	ok(test_count_wrong(NULL, again + 4, what->bytes / 4 - 1, 0, wrong));
	ok(test_count_wrong(NULL, before, 512 / 4, 0xbe, wrong));
	ok(test_count_wrong(NULL, after, 512 / 4, 0xaf, wrong));
	ck_assert_uint_eq(test_word(wrong), 0);
}
END_TEST

START_TEST(a_huge_allocation_costs_nothing_until_it_is_written)
{
	CUdeviceptr ptr, wrong;

	test_start_with("SIMGPU_MEMORY", "100G");
	ptr = test_alloc(64 * 1024 * MIB);
	wrong = test_alloc(8);
	ok(cuMemsetD8_v2(ptr, 0, 64 * 1024 * MIB));
	ok(test_count_wrong(NULL, ptr, 1024 * MIB, 0, wrong));
	ck_assert_uint_eq(test_word(wrong), 0);
}
END_TEST

START_TEST(a_host_access_to_device_memory_raises_sigsegv)
{
	signal(SIGSEGV, SIG_DFL); /* sanitizers install a handler */
	test_start();
	*(volatile char *)(uintptr_t)test_alloc(4096) = 1;
}
END_TEST

START_TEST(the_pitch_of_an_allocation_is_a_multiple_of_512)
{
	CUdeviceptr ptr;
	size_t pitch;

	test_start();
	ok(cuMemAllocPitch_v2(&ptr, &pitch, 513, 100, 4));
	ck_assert_uint_eq(pitch, 1024);
	fails(cuMemAllocPitch_v2(&ptr, &pitch, 513, 100, 3), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(pointer_attributes_describe_the_block)
{
	unsigned sync = 1, tokens_sync = 0;
	unsigned long long tokens[2];
	uint64_t id, next_id;
	int type, ordinal = -1, attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	size_t size = 1;
	void *pinned, *into[] = {&type, &size};
	CUdeviceptr ptr;
	CUcontext ctx;

	test_start();
	ptr = test_alloc(4 * MIB);
	ok(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
	ck_assert_ptr_eq(ctx, test_ctx);
	ok(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr + 5));
	ck_assert_int_eq(ordinal, 0);
	ok(cuPointerGetAttributes(2, attributes, into, ptr));
	ck_assert_int_eq(type, CU_MEMORYTYPE_DEVICE);
	ck_assert_uint_eq(size, 4 * MIB);
	ok(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	ck_assert_uint_eq(sync, 0);
	ok(cuPointerGetAttribute(tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, ptr));
	ok(cuPointerGetAttribute(&tokens_sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	ck_assert_uint_eq(tokens_sync, 1);
	ok(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
	ok(cuMemFree_v2(ptr));
	fails(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(test_alloc(4 * MIB), ptr);
	ok(cuPointerGetAttribute(&next_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
	ck_assert_uint_ne(id, next_id);
	ok(cuMemHostAlloc(&pinned, 100, CU_MEMHOSTALLOC_WRITECOMBINED));
	ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)pinned));
	ck_assert_int_eq(type, CU_MEMORYTYPE_HOST);
	ok(cuPointerGetAttributes(2, attributes, into, (CUdeviceptr)(uintptr_t)&type));
	ck_assert_int_eq(type, 0);
	ck_assert_uint_eq(size, 4 * MIB); /* unchanged */
}
END_TEST

START_TEST(registered_host_memory_cannot_be_freed_by_the_driver)
{
	static char buffer[8192];

	test_start();
	ok(cuMemHostRegister_v2(buffer, sizeof(buffer), 0));
	fails(cuMemHostRegister_v2(buffer, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	fails(cuMemFreeHost(buffer), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemHostUnregister(buffer));
	fails(cuMemHostUnregister(buffer), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}
END_TEST

/* As measured on an H100, for the beginning of an allocation and an address in it. */
START_TEST(allocated_host_memory_is_neither_registered_nor_unregistered)
{
	char *pinned;

	test_start();
	ok(cuMemHostAlloc((void **)&pinned, 8192, 0));
	fails(cuMemHostRegister_v2(pinned, 8192, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemHostRegister_v2(pinned + 4096, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemHostUnregister(pinned), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemHostUnregister(pinned + 4096), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemFreeHost(pinned));
}
END_TEST

/* As measured. A copy may end in memory of the host that CUDA does not know. */
START_TEST(a_copy_across_two_registrations_is_refused)
{
	static _Alignas(4096) char buffer[3 * 4096];
	CUdeviceptr ptr;

	test_start();
	ok(cuMemAlloc_v2(&ptr, sizeof(buffer)));
	ok(cuMemHostRegister_v2(buffer, 4096, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	ok(cuMemHostRegister_v2(buffer + 4096, 4096, 0));
	fails(cuMemcpyHtoD_v2(ptr, buffer, 4097), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemcpyDtoH_v2(buffer, ptr, 8192), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemcpyHtoD_v2(ptr, buffer, 4096));
	ok(cuMemcpyHtoD_v2(ptr, buffer + 4096, 8192));
	ok(cuMemHostUnregister(buffer + 4096));
	ok(cuMemcpyHtoD_v2(ptr, buffer, 8192));
	ok(cuMemHostUnregister(buffer));
}
END_TEST

static const struct {
	unsigned flags, seen;
	CUresult r;
} registrations[] = {{0, 2, 0}, {1, 3, 0}, {3, 3, 0}, {16, 0, CUDA_ERROR_INVALID_VALUE}};

START_TEST(a_registration_reports_its_own_flags_and_that_it_is_mapped)
{
	static char buffer[4096];
	unsigned seen = 0;

	test_start();
	fails(cuMemHostRegister_v2(buffer, sizeof(buffer), registrations[_i].flags), registrations[_i].r);
	if (registrations[_i].r)
		return;
	ok(cuMemHostGetFlags(&seen, buffer));
	ck_assert_uint_eq(seen, registrations[_i].seen);
	fails(cuMemHostRegister_v2(buffer + 64, 64, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}
END_TEST

START_TEST(managed_memory_is_accessible_to_host_and_device)
{
	CUdeviceptr ptr;

	test_start();
	ok(cuMemAllocManaged(&ptr, 4096, 1));
	ok(test_fill(NULL, ptr, 1024, 5));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(*(uint32_t *)(uintptr_t)ptr, 5);
	ok(cuMemFree_v2(ptr));
}
END_TEST

START_TEST(arrays_and_physical_allocations_count_as_used_memory)
{
	CUDA_ARRAY_DESCRIPTOR shape = {.Width = 1024, .Height = 1024, .Format = 0x20, .NumChannels = 4};
	CUmemAllocationProp prop = {.type = 1, .location = {.type = 1, .id = 0}};
	CUmemGenericAllocationHandle handle;
	size_t before;
	CUarray array;

	test_start();
	before = free_bytes();
	ok(cuArrayCreate_v2(&array, &shape));
	ok(cuMemCreate(&handle, 8 * MIB, &prop, 0));
	ck_assert_uint_eq(before - free_bytes(), 24 * MIB);
	fails(cuMemCreate(&handle, MIB, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuArrayDestroy(array));
	ok(cuMemRelease(handle));
	fails(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(before, free_bytes());
}
END_TEST

START_TEST(physical_memory_lives_until_its_last_handle_and_mapping)
{
	CUmemAllocationProp prop = {.type = 1, .location = {.type = 1, .id = 0}, .requestedHandleTypes = 1};
	CUmemAccessDesc access = {.location = {.type = 1, .id = 0}, .flags = 3};
	CUmemGenericAllocationHandle handle, again, imported;
	CUdeviceptr ptr;
	size_t before;
	int fd;

	test_start();
	before = free_bytes();
	ok(cuMemCreate(&handle, 8 * MIB, &prop, 0));
	ok(cuMemAddressReserve(&ptr, 16 * MIB, 0, 0, 0));
	fails(cuMemMap(ptr + 12 * MIB, 8 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemMap(ptr, 8 * MIB, 0, handle, 0));
	fails(cuMemMap(ptr + 2 * MIB, 8 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemMap(ptr + 8 * MIB, 4 * MIB, 0, handle, 0));
	ok(cuMemSetAccess(ptr, 12 * MIB, &access, 1));
	ok(cuMemExportToShareableHandle(&fd, handle, 1, 0));
	ok(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, 1));
	ok(cuMemRelease(handle));
	ok(cuMemRelease(imported));
	fails(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(before - free_bytes(), 8 * MIB);
	ok(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(ptr + MIB)));
	ck_assert_uint_eq(again, handle);
	fails(cuMemUnmap(ptr, 6 * MIB), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemAddressFree(ptr, 16 * MIB), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemUnmap(ptr, 12 * MIB));
	ck_assert_uint_eq(before - free_bytes(), 8 * MIB);
	ok(cuMemRelease(again));
	ck_assert_uint_eq(before, free_bytes());
	ok(cuMemAddressFree(ptr, 16 * MIB));
}
END_TEST

START_TEST(an_allocation_handle_returns_its_creation_properties)
{
	CUmemAllocationProp prop = {.type = 1, .location = {.type = 1, .id = 0}, .requestedHandleTypes = 1}, ret_prop;
	CUmemGenericAllocationHandle handle;

	test_start();
	ok(cuMemCreate(&handle, 2 * MIB, &prop, 0));
	memset(&ret_prop, 0xff, sizeof(ret_prop));
	ok(cuMemGetAllocationPropertiesFromHandle(&ret_prop, handle));
	ck_assert_mem_eq(&ret_prop, &prop, sizeof(prop));
	fails(cuMemGetAllocationPropertiesFromHandle(NULL, handle), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemRelease(handle));
	fails(cuMemGetAllocationPropertiesFromHandle(&ret_prop, handle), CUDA_ERROR_INVALID_VALUE);
	prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
	prop.requestedHandleTypes = 0;
	ok(cuMemCreate(&handle, 2 * MIB, &prop, 0));
	ok(cuMemGetAllocationPropertiesFromHandle(&ret_prop, handle));
	ck_assert_mem_eq(&ret_prop, &prop, sizeof(prop));
	ok(cuMemRelease(handle));
}
END_TEST

START_TEST(multicast_is_not_supported_by_any_device)
{
	CUmemGenericAllocationHandle handle = 0;
	uint64_t prop[4] = {0};
	int can = 1;

	test_start();
	ok(cuDeviceGetAttribute(&can, 132, 0));
	ck_assert_int_eq(can, 0);
	fails(cuMulticastCreate(&handle, prop), CUDA_ERROR_NOT_SUPPORTED);
	fails(cuMulticastCreate(&handle, NULL), CUDA_ERROR_INVALID_VALUE);
	fails(cuMulticastCreate(NULL, prop), CUDA_ERROR_INVALID_VALUE);
	fails(cuMulticastAddDevice(handle, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cuMulticastBindMem(handle, 0, handle, 0, 2 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cuMulticastUnbind(handle, 0, 0, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(a_destroyed_memory_pool_lives_until_its_last_block_is_freed)
{
	CUmemPoolProps props = {.allocType = 1, .location = {.type = 1, .id = 0}};
	CUmemoryPool pool, current;
	uint64_t keep = UINT64_MAX;
	size_t before;
	CUdeviceptr a, b;

	test_start();
	before = free_bytes();
	ok(cuMemPoolCreate(&pool, &props));
	ok(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	ok(cuDeviceSetMemPool(0, pool));
	ok(cuMemAllocFromPoolAsync(&a, 4 * MIB, pool, NULL));
	ok(cuMemAllocAsync(&b, 8 * MIB, NULL));
	ok(cuMemFreeAsync(a, NULL));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(before - free_bytes(), 12 * MIB);
	ok(cuMemPoolTrimTo(pool, 0));
	ck_assert_uint_eq(before - free_bytes(), 8 * MIB);
	ok(cuMemPoolDestroy(pool));
	fails(cuMemAllocFromPoolAsync(&a, 4 * MIB, pool, NULL), CUDA_ERROR_INVALID_VALUE);
	ok(cuDeviceGetMemPool(&current, 0));
	ck_assert_ptr_ne(current, pool);
	ok(cuMemFreeAsync(b, NULL));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(before, free_bytes());
}
END_TEST

START_TEST(a_use_of_freed_memory_is_an_illegal_address)
{
	CUdeviceptr ptr;

	test_start();
	ptr = test_alloc(4 * MIB);
	ok(cuMemFree_v2(ptr));
	fails(cuMemsetD8_v2(ptr, 1, 1), CUDA_ERROR_INVALID_VALUE);
	ok(test_fill(NULL, ptr, 1, 1));
	fails(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_uint_eq(simgpu_invalid_uses(), 1);
	fails(cuMemAlloc_v2(&ptr, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
	fails(cuMemFree_v2(ptr), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(an_async_free_that_does_not_follow_a_use_is_a_race)
{
	CUstream user, freer;
	CUdeviceptr ptr;

	test_start();
	ok(cuMemAllocAsync(&ptr, 4 * MIB, NULL));
	ok(cuCtxSynchronize());
	user = test_stream(CU_STREAM_NON_BLOCKING);
	freer = test_stream(CU_STREAM_NON_BLOCKING);
	ok(test_spin_fill(user, ptr, 1, 1, MS));
	ok(cuMemFreeAsync(ptr, freer));
	ck_assert_uint_eq(simgpu_races(), 1);
	simgpu_expect_races(1);
}
END_TEST

static TCase *wait_cases(void)
{
	TCase *tc = tcase_create("waiting");

	tcase_add_loop_test(tc, a_free_waits_for_all_work_of_its_context, 0, 3);
	tcase_add_test(tc, a_free_does_not_wait_for_work_of_another_device);
	tcase_add_test(tc, another_devices_kernel_fails_when_its_peer_memory_is_freed);
	tcase_add_test(tc, without_peer_access_another_contexts_memory_is_an_illegal_address);
	tcase_add_test(tc, pinned_frees_wait_for_the_gpu_and_allocations_do_not);
	tcase_add_test(tc, an_async_free_never_waits_and_releases_the_memory_in_stream_order);
	tcase_add_test(tc, both_kinds_of_free_take_both_kinds_of_memory);
	tcase_add_test(tc, the_drivers_memory_pool_keeps_freed_memory_until_it_is_trimmed);
	tcase_add_test(tc, a_use_of_freed_memory_is_an_illegal_address);
	tcase_add_test(tc, an_async_free_that_does_not_follow_a_use_is_a_race);
	return tc;
}

static TCase *block_cases(void)
{
	TCase *tc = tcase_create("blocks");

	tcase_add_test(tc, small_blocks_share_a_chunk_and_large_ones_are_aligned);
	tcase_add_test(tc, bad_allocations_and_bad_frees_return_invalid_value);
	tcase_add_test(tc, null_frees_and_zero_sizes_succeed_where_they_do_in_the_driver);
	tcase_add_test(tc, the_device_capacity_is_a_limit_and_freed_memory_is_available_again);
	tcase_add_loop_test(tc, new_memory_is_zero_and_freed_memory_is_scrubbed, 0, LENGTH(scrubbed));
	tcase_add_test(tc, a_huge_allocation_costs_nothing_until_it_is_written);
	tcase_add_test_raise_signal(tc, a_host_access_to_device_memory_raises_sigsegv, SIGSEGV);
	tcase_add_test(tc, the_pitch_of_an_allocation_is_a_multiple_of_512);
	tcase_add_test(tc, pointer_attributes_describe_the_block);
	tcase_add_test(tc, registered_host_memory_cannot_be_freed_by_the_driver);
	tcase_add_test(tc, allocated_host_memory_is_neither_registered_nor_unregistered);
	tcase_add_test(tc, a_copy_across_two_registrations_is_refused);
	tcase_add_loop_test(tc, a_registration_reports_its_own_flags_and_that_it_is_mapped, 0,
		(int)(sizeof(registrations) / sizeof(*registrations)));
	tcase_add_test(tc, managed_memory_is_accessible_to_host_and_device);
	tcase_add_test(tc, arrays_and_physical_allocations_count_as_used_memory);
	tcase_add_test(tc, physical_memory_lives_until_its_last_handle_and_mapping);
	tcase_add_test(tc, an_allocation_handle_returns_its_creation_properties);
	tcase_add_test(tc, multicast_is_not_supported_by_any_device);
	tcase_add_test(tc, a_destroyed_memory_pool_lives_until_its_last_block_is_freed);
	return tc;
}

int main(void)
{
	static TCase *(*const cases[])(void) = {wait_cases, block_cases};

	return test_run("simulated GPU: memory", cases, sizeof(cases) / sizeof(*cases));
}
