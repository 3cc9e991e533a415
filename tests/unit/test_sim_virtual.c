/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory mapped at reserved addresses: access to it, what moves with it, and when it may be unmapped. */

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

START_TEST(adjacent_mappings_are_accessible_as_one_range)
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

START_TEST(addresses_are_aligned_as_requested_and_other_alignments_than_powers_of_two_are_refused)
{
	CUdeviceptr ptr = 0;

	reserve();
	ok(cuMemAddressReserve(&ptr, 2 * MIB, 64 * MIB, 0, 0));
	ck_assert_uint_eq(ptr % (64 * MIB), 0);
	ok(cuMemAddressReserve(&ptr, 2 * MIB, 1, 0, 0));
	fails(cuMemAddressReserve(&ptr, 2 * MIB, 6 * MIB, 0, 0), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(contents_move_with_the_memory_when_it_is_mapped_elsewhere)
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
	/* New memory is blank. */
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

START_TEST(memory_mapped_without_access_cannot_be_used)
{
	reserve();
	ok(cuMemMap(base, 2 * MIB, 0, create(2 * MIB), 0));
	touch();
}
END_TEST

START_TEST(memory_whose_access_was_revoked_cannot_be_used)
{
	reserve();
	map(base, 2 * MIB);
	allow(base, 2 * MIB, 0, 0);
	touch();
}
END_TEST

/* Makes the other device current, whose access to the mapped memory the flags say. */
static void enter_other_device(int flags)
{
	CUcontext other;

	test_start_with("SIMGPU_DEVICES", "2");
	ok(cuMemAddressReserve(&base, 64 * MIB, 0, 0, 0));
	map(base, 2 * MIB);
	allow(base, 2 * MIB, 1, flags);
	ok(cuDevicePrimaryCtxRetain(&other, 1));
	ok(cuCtxSetCurrent(other));
}

START_TEST(a_copy_fails_if_its_access_ends_before_it_begins)
{
	void *pinned;

	enter_other_device(3);
	ok(cuMemHostAlloc(&pinned, 2 * MIB, 0));
	for (int i = 0; i < 16; i++)
		ok(cuMemcpyDtoHAsync_v2(pinned, base, 2 * MIB, NULL));
	allow(base, 2 * MIB, 1, 0);
	fails(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_uint_eq(simgpu_invalid_uses(), 1);
}
END_TEST

static const struct {
	bool is_mapped;
	int flags; /* access to mapped memory */
	CUresult added;
} nodes[] = {{false, 0, CUDA_SUCCESS}, {true, 3, CUDA_SUCCESS}, {true, 0, CUDA_ERROR_INVALID_VALUE}};

START_TEST(a_node_copies_and_sets_memory_of_another_device_unless_it_is_mapped_without_access)
{
	CUDA_MEMSET_NODE_PARAMS fill = {.value = 7, .elementSize = 4, .width = 1024, .height = 1};
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.WidthInBytes = 4096,
		.Height = 1,
		.Depth = 1};
	static uint32_t words[1024];
	CUdeviceptr plain = 0;
	CUgraphExec exec;
	CUgraphNode node;
	CUgraph graph;

	enter_other_device(nodes[_i].flags);
	ok(cuCtxSetCurrent(test_ctx));
	ok(cuMemAlloc_v2(&plain, 2 * MIB));
	copy.srcDevice = fill.dst = nodes[_i].is_mapped ? base : plain;
	copy.dstHost = words;
	ok(cuDevicePrimaryCtxRetain(&test_ctx, 1));
	ok(cuCtxSetCurrent(test_ctx));
	ok(cuGraphCreate(&graph, 0));
	fails(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, test_ctx), nodes[_i].added);
	fails(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, test_ctx), nodes[_i].added);
	ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ok(cuGraphLaunch(exec, NULL));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(words[1023], nodes[_i].added ? 0 : 7);
}
END_TEST

START_TEST(a_node_can_be_changed_until_the_graph_is_instantiated)
{
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.WidthInBytes = 4,
		.Height = 1,
		.Depth = 1};
	uint32_t words[2] = {0};
	CUgraphExec exec;
	CUgraphNode node;
	CUgraph graph;

	test_start();
	copy.srcDevice = test_alloc(4096);
	ok(cuMemsetD32_v2(copy.srcDevice, 5, 1));
	copy.dstHost = &words[0];
	ok(cuGraphCreate(&graph, 0));
	ok(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, test_ctx));
	copy.dstHost = &words[1];
	ok(cuGraphMemcpyNodeSetParams(node, &copy));
	ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ok(cuGraphDestroy(graph));
	fails(cuGraphMemcpyNodeSetParams(node, &copy), CUDA_ERROR_INVALID_VALUE);
	ok(cuGraphLaunch(exec, NULL));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(words[0], 0);
	ck_assert_uint_eq(words[1], 5);
}
END_TEST

START_TEST(unmapped_addresses_cannot_be_used)
{
	reserve();
	map(base, 2 * MIB);
	ok(cuMemUnmap(base, 2 * MIB));
	touch();
}
END_TEST

/* Ways in which the host may learn that the work is complete, before it unmaps the memory. */
static void learn_nothing(CUevent event)
{
}

static void wait_for_event(CUevent event)
{
	ok(cuEventSynchronize(event));
}

static void poll_event(CUevent event)
{
	while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
		;
}

static void make_gpu_wait(CUevent event)
{
	ok(cuCtxWaitEvent(test_ctx, event));
}

static const struct {
	void (*learn)(CUevent event);
	unsigned n_races;
} ways_to_learn[] = {{learn_nothing, 1}, {wait_for_event, 0}, {poll_event, 0}, {make_gpu_wait, 1}};

START_TEST(an_unmap_before_the_host_knows_that_the_work_is_complete_is_a_race)
{
	CUevent event;

	reserve();
	event = test_event();
	map(base, 2 * MIB);
	map(base + 2 * MIB, 2 * MIB);
	ok(test_fill(NULL, base, 16, 5));
	ok(cuCtxRecordEvent(test_ctx, event));
	/* Work on other memory does not matter. */
	ok(test_spin_fill(test_stream(CU_STREAM_NON_BLOCKING), base + 2 * MIB, 16, 5, MS));
	ways_to_learn[_i].learn(event);
	ok(cuMemUnmap(base, 2 * MIB));
	ck_assert_uint_eq(simgpu_races(), ways_to_learn[_i].n_races);
	simgpu_expect_races(ways_to_learn[_i].n_races);
}
END_TEST

START_TEST(mapped_memory_can_be_distinguished_from_allocated_memory)
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

/* A real driver names the host, device 0, and no host pointer (the first line of tests/gpu/spill_probe.c). */
START_TEST(memory_of_the_host_can_be_mapped_and_takes_none_of_the_device)
{
	const CUmemAllocationProp on_host = {.type = 1, .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
	CUmemGenericAllocationHandle handle, device;
	int type = 0, ordinal = -1, is_managed = -1;
	size_t before, now, total;

	reserve();
	ok(cuMemGetInfo_v2(&before, &total));
	ok(cuMemCreate(&handle, 2 * MIB, &on_host, 0));
	ok(cuMemMap(base, 2 * MIB, 0, handle, 0));
	allow(base, 2 * MIB, 0, 3);
	ok(cuMemGetInfo_v2(&now, &total));
	ck_assert_uint_eq(now, before);
	ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base));
	ok(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, base));
	ok(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, base));
	ck_assert(type == CU_MEMORYTYPE_HOST && ordinal == 0 && is_managed == 0);
	fails(cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_HOST_POINTER, base), CUDA_ERROR_INVALID_VALUE);
	ok(test_fill(NULL, base, MIB / 4, 7));
	/* The content goes to device memory, which takes the place of the other. */
	device = map(base + 2 * MIB, 2 * MIB);
	ok(cuMemcpyDtoD_v2(base + 2 * MIB, base, 2 * MIB));
	ok(cuCtxSynchronize());
	ok(cuMemUnmap(base, 4 * MIB));
	ok(cuMemRelease(handle));
	ok(cuMemMap(base, 2 * MIB, 0, device, 0));
	allow(base, 2 * MIB, 0, 3);
	ck_assert_uint_eq(test_word(base + MIB - 4), 7);
	ck_assert_uint_eq(test_word(base + MIB), 0);
	ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base));
	ck_assert_int_eq(type, CU_MEMORYTYPE_DEVICE);
	ck_assert_uint_eq(simgpu_races() + simgpu_invalid_uses(), 0);
}
END_TEST

START_TEST(mapped_memory_outlives_its_context)
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

START_TEST(the_instantiation_of_a_graph_examines_addresses_whose_memory_must_be_mapped)
{
	CUmemGenericAllocationHandle handle;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	reserve();
	handle = map(base, 2 * MIB);
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(cuMemsetD32Async(base, 1, 16, stream));
	ok(cuStreamEndCapture(stream, &graph));
	ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ck_assert_uint_eq(simgpu_invalid_uses(), 0);
	ok(cuMemUnmap(base, 2 * MIB));
	ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ck_assert_uint_eq(simgpu_invalid_uses(), 1);
	ok(cuMemRelease(handle));
}
END_TEST

START_TEST(addresses_start_where_the_environment_says)
{
	const CUdeviceptr first = (CUdeviceptr)129600 << 30;
	CUdeviceptr block, range;

	test_start_with("SIMGPU_ADDRESSES", "129600G");
	block = test_alloc(4096);
	ck_assert_uint_eq(block, first);
	ok(cuMemAddressReserve(&range, 2 * MIB, 0, 0, 0));
	ck_assert(range > block && range - block < (CUdeviceptr)1 << 40);
}
END_TEST

static TCase *virtual_cases(void)
{
	TCase *tc = tcase_create("mapped memory");

	tcase_add_test(tc, adjacent_mappings_are_accessible_as_one_range);
	tcase_add_test(tc, addresses_are_aligned_as_requested_and_other_alignments_than_powers_of_two_are_refused);
	tcase_add_test(tc, contents_move_with_the_memory_when_it_is_mapped_elsewhere);
	tcase_add_test(tc, memory_mapped_without_access_cannot_be_used);
	tcase_add_test(tc, memory_whose_access_was_revoked_cannot_be_used);
	tcase_add_test(tc, a_copy_fails_if_its_access_ends_before_it_begins);
	tcase_add_loop_test(
		tc, a_node_copies_and_sets_memory_of_another_device_unless_it_is_mapped_without_access, 0, 3);
	tcase_add_test(tc, a_node_can_be_changed_until_the_graph_is_instantiated);
	tcase_add_test(tc, unmapped_addresses_cannot_be_used);
	tcase_add_loop_test(tc, an_unmap_before_the_host_knows_that_the_work_is_complete_is_a_race, 0,
		sizeof(ways_to_learn) / sizeof(*ways_to_learn));
	tcase_add_test(tc, mapped_memory_can_be_distinguished_from_allocated_memory);
	tcase_add_test(tc, memory_of_the_host_can_be_mapped_and_takes_none_of_the_device);
	tcase_add_test(tc, mapped_memory_outlives_its_context);
	tcase_add_test(tc, addresses_start_where_the_environment_says);
	tcase_add_test(tc, the_instantiation_of_a_graph_examines_addresses_whose_memory_must_be_mapped);
	return tc;
}

int main(void)
{
	static TCase *(*const cases[])(void) = {virtual_cases};

	return test_run("simulated GPU: virtual memory", cases, sizeof(cases) / sizeof(*cases));
}
