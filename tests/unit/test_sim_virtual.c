/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory mapped at reserved addresses: who can touch it, what moves with it, and what it takes to unmap it. */

#include "test_sim.h"

static const CUmemAllocationProp on_device = {.type = 1, .location = {.type = 1, .id = 0}};
static CUdeviceptr base;

static void reserve(void)
{
	test_start();
	ok(cuMemAddressReserve(&base, 64 * MIB, 0, 0, 0));
}

static CUmemGenericAllocationHandle create(size_t bytes)
{
	CUmemGenericAllocationHandle handle;

	ok(cuMemCreate(&handle, bytes, &on_device, 0));
	return handle;
}

static void allow(CUdeviceptr ptr, size_t bytes, int device, int flags)
{
	const CUmemAccessDesc access = {.location = {.type = 1, .id = device}, .flags = flags};

	ok(cuMemSetAccess(ptr, bytes, &access, 1));
}

static CUmemGenericAllocationHandle map(CUdeviceptr ptr, size_t bytes)
{
	CUmemGenericAllocationHandle handle = create(bytes);

	ok(cuMemMap(ptr, bytes, 0, handle, 0));
	allow(ptr, bytes, 0, 3);
	return handle;
}

START_TEST(neighbouring_mappings_are_one_to_whoever_touches_them)
{
	const size_t words = MIB / 4;
	uint32_t word = 0;

	reserve();
	map(base, 2 * MIB);
	map(base + 2 * MIB, 4 * MIB);
	ok(test_fill(NULL, base + MIB + MIB / 2, words, 7));
	ok(cuMemcpyDtoH_v2(&word, base + 2 * MIB + MIB / 2 - 4, 4));
	ck_assert_uint_eq(word, 7);
	ok(cuMemcpyDtoD_v2(base, base + 2 * MIB - 8, 16));
	ck_assert_uint_eq(test_word(base + 12), 7);
	fails(cuMemcpyDtoH_v2(&word, base + 6 * MIB - 2, 4), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(simgpu_invalid_uses(), 0);
}
END_TEST

START_TEST(what_was_written_moves_with_the_memory)
{
	CUmemGenericAllocationHandle handle;

	reserve();
	handle = map(base, 2 * MIB);
	ok(test_fill(NULL, base, 16, 5));
	ok(cuCtxSynchronize());
	ok(cuMemUnmap(base, 2 * MIB));
	ok(cuMemMap(base + 8 * MIB, 2 * MIB, 0, handle, 0));
	allow(base + 8 * MIB, 2 * MIB, 0, 3);
	ck_assert_uint_eq(test_word(base + 8 * MIB), 5);
	/* Somebody else's is blank. */
	map(base, 2 * MIB);
	ck_assert_uint_eq(test_word(base), 0);
	ck_assert_uint_eq(simgpu_races(), 0);
}
END_TEST

static void touch(void)
{
	ok(test_fill(NULL, base, 16, 5));
	fails(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_uint_eq(simgpu_invalid_uses(), 1);
}

START_TEST(nobody_touches_what_is_mapped_without_access)
{
	reserve();
	ok(cuMemMap(base, 2 * MIB, 0, create(2 * MIB), 0));
	touch();
}
END_TEST

START_TEST(access_can_be_taken_away)
{
	reserve();
	map(base, 2 * MIB);
	allow(base, 2 * MIB, 0, 0);
	touch();
}
END_TEST

START_TEST(what_is_unmapped_cannot_be_touched)
{
	reserve();
	map(base, 2 * MIB);
	ok(cuMemUnmap(base, 2 * MIB));
	touch();
}
END_TEST

/* What the host knows of the work when it unmaps its memory. */
static void knows_nothing(CUevent event)
{
}

static void has_waited(CUevent event)
{
	ok(cuEventSynchronize(event));
}

static void has_asked(CUevent event)
{
	while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
		;
}

static void has_ordered(CUevent event)
{
	ok(cuCtxWaitEvent(test_ctx, event));
}

static const struct {
	void (*learn)(CUevent event);
	unsigned n_races;
} knowledge[] = {{knows_nothing, 1}, {has_waited, 0}, {has_asked, 0}, {has_ordered, 1}};

START_TEST(memory_is_unmapped_only_when_the_host_knows_that_its_work_is_done)
{
	CUevent event;

	reserve();
	event = test_event();
	map(base, 2 * MIB);
	map(base + 2 * MIB, 2 * MIB);
	ok(test_fill(NULL, base, 16, 5));
	ok(cuCtxRecordEvent(test_ctx, event));
	/* Work on other memory is no matter. */
	ok(test_spin_fill(test_stream(CU_STREAM_NON_BLOCKING), base + 2 * MIB, 16, 5, MS));
	knowledge[_i].learn(event);
	ok(cuMemUnmap(base, 2 * MIB));
	ck_assert_uint_eq(simgpu_races(), knowledge[_i].n_races);
	simgpu_expect_races(knowledge[_i].n_races);
}
END_TEST

START_TEST(mapped_memory_is_told_apart_from_the_drivers_own)
{
	CUipcMemHandle ipc;
	CUcontext owner = test_ctx;
	int ordinal = -1, legacy = -1;

	reserve();
	map(base, 2 * MIB);
	fails(cuMemFree_v2(base), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemFreeAsync(base, NULL), CUDA_ERROR_INVALID_VALUE);
	fails(cuIpcGetMemHandle(&ipc, base), CUDA_ERROR_INVALID_VALUE);
	ok(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, base));
	ck_assert_ptr_null(owner);
	ok(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, base));
	ck_assert_int_eq(ordinal, 0);
	ok(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, base));
	ck_assert_int_eq(legacy, 0);
	fails(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, base + 2 * MIB), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(what_is_mapped_outlives_its_context)
{
	CUmemGenericAllocationHandle handle;
	CUcontext ctx;
	size_t before, now, total;

	reserve();
	ok(cuCtxCreate_v2(&ctx, 0, 0));
	ok(cuMemGetInfo_v2(&before, &total));
	handle = map(base, 8 * MIB);
	ok(cuCtxDestroy_v2(ctx));
	ok(cuCtxSetCurrent(test_ctx));
	ok(cuMemGetInfo_v2(&now, &total));
	ck_assert_uint_lt(now, before);
	ok(cuMemUnmap(base, 8 * MIB));
	ok(cuMemRelease(handle));
	ok(cuMemAddressFree(base, 64 * MIB));
	ok(cuMemGetInfo_v2(&now, &total));
	ck_assert_uint_ge(now, before);
}
END_TEST

static TCase *virtual_cases(void)
{
	TCase *tc = tcase_create("mapped memory");

	tcase_add_test(tc, neighbouring_mappings_are_one_to_whoever_touches_them);
	tcase_add_test(tc, what_was_written_moves_with_the_memory);
	tcase_add_test(tc, nobody_touches_what_is_mapped_without_access);
	tcase_add_test(tc, access_can_be_taken_away);
	tcase_add_test(tc, what_is_unmapped_cannot_be_touched);
	tcase_add_loop_test(tc, memory_is_unmapped_only_when_the_host_knows_that_its_work_is_done, 0,
		sizeof(knowledge) / sizeof(*knowledge));
	tcase_add_test(tc, mapped_memory_is_told_apart_from_the_drivers_own);
	tcase_add_test(tc, what_is_mapped_outlives_its_context);
	return tc;
}

int main(void)
{
	static TCase *(*const cases[])(void) = {virtual_cases};

	return test_run("simulated GPU: virtual memory", cases, sizeof(cases) / sizeof(*cases));
}
