/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory and events that one process exports and another opens. */

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_sim.h"

#define USED 65536 /* bytes of a block that are checked */
#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

/* The other process, which exports; the test itself imports. take() waits for the other side's send(). */
static struct {
	pid_t pid;
	int in, out;
} peer;

static void send(const void *data, size_t bytes)
{
	ck_assert_int_eq(write(peer.out, data, bytes), (ssize_t)bytes);
}

static void take(void *data, size_t bytes)
{
	ck_assert_int_eq(read(peer.in, data, bytes), (ssize_t)bytes);
}

static void go(void)
{
	send("", 1);
}

static void await(void)
{
	char byte;

	take(&byte, 1);
}

/* Starts the other process before either process initialises the driver. */
static void start_with_peer(void (*run)(void))
{
	int here[2], there[2];

	ck_assert_int_eq(pipe(here), 0);
	ck_assert_int_eq(pipe(there), 0);
	peer.pid = fork();
	ck_assert_int_ge(peer.pid, 0);
	peer.in = peer.pid ? here[0] : there[0];
	peer.out = peer.pid ? there[1] : here[1];
	close(peer.pid ? there[0] : here[0]);
	close(peer.pid ? here[1] : there[1]);
	test_start();
	if (peer.pid)
		return;
	run();
	_exit(0);
}

static void end_peer(void)
{
	int status;

	ck_assert_int_eq(waitpid(peer.pid, &status, 0), peer.pid);
	ck_assert_int_eq(status, 0);
	peer.pid = 0;
}

static void send_handle(CUdeviceptr ptr)
{
	CUipcMemHandle handle;

	ok(cuIpcGetMemHandle(&handle, ptr));
	send(&handle, sizeof(handle));
}

static CUipcMemHandle take_handle(void)
{
	CUipcMemHandle handle;

	take(&handle, sizeof(handle));
	return handle;
}

static CUdeviceptr open_handle(CUipcMemHandle handle)
{
	CUdeviceptr ptr = 0;

	ok(cuIpcOpenMemHandle_v2(&ptr, handle, LAZY));
	return ptr;
}

static void refused(CUipcMemHandle handle, CUresult code)
{
	CUdeviceptr ptr = 77;

	fails(cuIpcOpenMemHandle_v2(&ptr, handle, LAZY), code);
	fails(cuIpcOpenMemHandle(&ptr, handle, LAZY), code);
	ck_assert_uint_eq(ptr, 77);
}

static void opens_once_more(CUipcMemHandle handle, CUdeviceptr ptr)
{
	fails(cuIpcOpenMemHandle(&(CUdeviceptr){0}, handle, LAZY), CUDA_ERROR_ALREADY_MAPPED);
	ck_assert_uint_eq(open_handle(handle), ptr);
	ok(cuIpcCloseMemHandle(ptr));
}

static void filled(CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	CUdeviceptr result = test_alloc(8);
	uint64_t wrong;

	ok(cuMemsetD8_v2(result, 0, 8));
	ok(test_count_wrong(NULL, ptr, bytes / 4, value, result));
	ok(cuMemcpyDtoH_v2(&wrong, result, sizeof(wrong)));
	ck_assert_uint_eq(wrong, 0);
	ok(cuMemFree_v2(result));
}

/*
 * The GPU of a process makes no progress while its host makes no calls, so wait for what other processes must
 * see.
 */
static void set_now(CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	ok(cuMemsetD32_v2(ptr, value, bytes / 4));
	ok(cuCtxSynchronize());
}

static void fill_ends(CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	set_now(ptr, 512, value);
	set_now(ptr + bytes - 512, 512, value);
}

static void filled_ends(CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	filled(ptr, 512, value);
	filled(ptr + bytes - 512, 512, value);
}

static const size_t sizes[] = {512, 5120, MIB, MIB + 512, 2 * MIB, 3 * MIB + 4096};

static void export_each_size(void)
{
	CUdeviceptr ptr[LENGTH(sizes)];

	for (size_t i = 0; i < LENGTH(sizes); i++) {
		ptr[i] = test_alloc(sizes[i]);
		fill_ends(ptr[i], sizes[i], 100 + (uint32_t)i);
	}
	for (size_t i = 0; i < LENGTH(sizes); i++)
		send_handle(ptr[i]);
	await();
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		filled_ends(ptr[i], sizes[i], 200 + (uint32_t)i);
		ok(cuMemFree_v2(ptr[i]));
	}
}

START_TEST(an_importing_process_reads_the_words_of_the_exporting_process)
{
	CUdeviceptr ptr[LENGTH(sizes)];
	size_t used;

	start_with_peer(export_each_size);
	used = simgpu_allocated_bytes(0);
	for (size_t i = 0; i < LENGTH(sizes); i++)
		ptr[i] = open_handle(take_handle());
	ck_assert_uint_eq(simgpu_allocated_bytes(0), used);
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		filled_ends(ptr[i], sizes[i], 100 + (uint32_t)i);
		fill_ends(ptr[i], sizes[i], 200 + (uint32_t)i);
	}
	for (size_t i = 0; i < LENGTH(sizes); i++)
		ok(cuIpcCloseMemHandle(ptr[i]));
	go();
	end_peer();
}
END_TEST

static void export_one(void)
{
	CUdeviceptr ptr = test_alloc(4 * MIB);

	set_now(ptr, USED, 7);
	send_handle(ptr);
	send_handle(ptr + 4096);
	await();
}

static const CUmemAllocationProp sharable = {.type = 1, .requestedHandleTypes = 1, .location = {.type = 1, .id = 0}};
static const CUmemAccessDesc writable = {.location = {.type = 1, .id = 0}, .flags = 3};

static CUdeviceptr map_now(CUmemGenericAllocationHandle handle, size_t bytes)
{
	CUdeviceptr ptr;

	ok(cuMemAddressReserve(&ptr, bytes, 0, 0, 0));
	ok(cuMemMap(ptr, bytes, 0, handle, 0));
	ok(cuMemSetAccess(ptr, bytes, &writable, 1));
	return ptr;
}

/* Returns a descriptor of this process for a descriptor of the other process. */
static int take_descriptor(void)
{
	char path[64];
	int fd;

	take(&fd, sizeof(fd));
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)peer.pid, fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void export_physical(void)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr;
	int fd;

	ok(cuMemCreate(&handle, 4 * MIB, &sharable, 0));
	ptr = map_now(handle, 4 * MIB);
	fill_ends(ptr, 4 * MIB, 7);
	ok(cuMemExportToShareableHandle(&fd, handle, 1, 0));
	filled_ends(ptr, 4 * MIB, 7);
	send(&fd, sizeof(fd));
	await();
	filled_ends(ptr, 4 * MIB, 8);
	ok(cuMemUnmap(ptr, 4 * MIB));
	ok(cuMemRelease(handle));
	go();
}

START_TEST(physical_memory_is_shared_by_its_descriptor_and_outlives_its_owner)
{
	CUmemGenericAllocationHandle handle, again;
	CUdeviceptr ptr;
	size_t used;
	int fd;

	start_with_peer(export_physical);
	used = simgpu_allocated_bytes(0);
	fd = take_descriptor();
	ok(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 1));
	ok(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, 1));
	ck_assert_uint_eq(handle, again);
	ok(cuMemRelease(again));
	close(fd);
	ptr = map_now(handle, 4 * MIB);
	ok(cuMemRelease(handle));
	ck_assert_uint_eq(simgpu_allocated_bytes(0), used);
	filled_ends(ptr, 4 * MIB, 7);
	fill_ends(ptr, 4 * MIB, 8);
	go();
	await();
	filled_ends(ptr, 4 * MIB, 8);
	end_peer();
	filled_ends(ptr, 4 * MIB, 8);
	ok(cuMemUnmap(ptr, 4 * MIB));
	ck_assert_uint_eq(simgpu_allocated_bytes(0), used);
}
END_TEST

START_TEST(physical_memory_without_a_shareable_type_and_other_descriptors_are_refused)
{
	CUmemAllocationProp prop = sharable;
	CUmemGenericAllocationHandle handle;
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	test_start();
	prop.requestedHandleTypes = 0;
	ok(cuMemCreate(&handle, 4 * MIB, &prop, 0));
	fails(cuMemExportToShareableHandle(&(int){0}, handle, 1, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 1), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)-1, 1), CUDA_ERROR_INVALID_VALUE);
	close(fd);
}
END_TEST

START_TEST(an_ipc_handle_of_an_inner_address_opens_at_the_base_of_the_block)
{
	CUipcMemHandle handle, middle;
	CUdeviceptr ptr, base = 0;
	size_t size = 0;

	start_with_peer(export_one);
	handle = take_handle();
	middle = take_handle();
	ck_assert_int_eq(memcmp(&handle, &middle, sizeof(handle)), 0);
	ptr = open_handle(middle);
	ok(cuMemGetAddressRange_v2(&base, &size, ptr + 5000));
	ck_assert_uint_eq(base, ptr);
	ck_assert_uint_eq(size, 4 * MIB);
	go();
	end_peer();
}
END_TEST

START_TEST(opens_of_an_ipc_handle_are_counted)
{
	CUipcMemHandle handle;
	CUdeviceptr ptr;

	start_with_peer(export_one);
	handle = take_handle();
	ptr = open_handle(handle);
	ck_assert_uint_eq(open_handle(handle), ptr);
	fails(cuIpcCloseMemHandle(ptr + 512), CUDA_ERROR_INVALID_VALUE);
	ok(cuIpcCloseMemHandle(ptr));
	ck_assert_uint_eq(test_word(ptr), 7);
	ok(cuIpcCloseMemHandle(ptr));
	fails(cuIpcCloseMemHandle(ptr), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemsetD8_v2(ptr, 0, 1), CUDA_ERROR_INVALID_VALUE);
	ptr = open_handle(handle);
	ck_assert_uint_eq(test_word(ptr), 7);
	go();
	end_peer();
}
END_TEST

START_TEST(the_last_close_of_an_ipc_handle_waits_for_the_context)
{
	CUipcMemHandle handle;
	CUdeviceptr ptr;
	uint64_t before;

	start_with_peer(export_one);
	handle = take_handle();
	ptr = open_handle(handle);
	open_handle(handle);
	ok(test_spin(test_stream(CU_STREAM_NON_BLOCKING), 100 * MS));
	before = simgpu_now_ns();
	ok(cuIpcCloseMemHandle(ptr));
	ck_assert_uint_lt(simgpu_now_ns() - before, MS);
	ok(cuIpcCloseMemHandle(ptr));
	ck_assert_uint_gt(simgpu_now_ns() - before, 95 * MS);
	go();
	end_peer();
}
END_TEST

START_TEST(an_ipc_handle_is_open_in_one_context_of_a_process_at_a_time)
{
	CUipcMemHandle handle;
	CUcontext other;
	CUdeviceptr ptr;

	start_with_peer(export_one);
	handle = take_handle();
	ptr = open_handle(handle);
	ok(cuCtxCreate_v2(&other, 0, 0));
	refused(handle, CUDA_ERROR_INVALID_HANDLE);
	ok(cuIpcCloseMemHandle(ptr));
	ptr = open_handle(handle);
	ok(cuCtxDestroy_v2(other));
	ok(cuCtxSetCurrent(test_ctx));
	fails(cuIpcCloseMemHandle(ptr), CUDA_ERROR_INVALID_VALUE); /* its context has ended */
	ck_assert_uint_eq(test_word(open_handle(handle)), 7);
	ok(cuCtxSetCurrent(NULL));
	refused(handle, CUDA_ERROR_INVALID_CONTEXT);
	fails(cuIpcCloseMemHandle(ptr), CUDA_ERROR_INVALID_CONTEXT);
	go();
	end_peer();
}
END_TEST

START_TEST(a_process_cannot_open_its_own_ipc_handles)
{
	CUdeviceptr ptr, again;
	CUipcMemHandle handle, next;

	test_start();
	ptr = test_alloc(4 * MIB);
	ok(cuIpcGetMemHandle(&handle, ptr));
	refused(handle, CUDA_ERROR_INVALID_CONTEXT);
	fails(cuIpcCloseMemHandle(ptr), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemFree_v2(ptr));
	refused(handle, CUDA_ERROR_INVALID_VALUE);
	fails(cuIpcGetMemHandle(&next, ptr), CUDA_ERROR_INVALID_VALUE);
	again = test_alloc(4 * MIB);
	ck_assert_uint_eq(again, ptr);
	ok(cuIpcGetMemHandle(&next, again));
	ck_assert_int_ne(memcmp(&handle, &next, sizeof(handle)), 0);
	ok(cuMemAllocAsync(&ptr, MIB, NULL));
	fails(cuIpcGetMemHandle(&handle, ptr), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemAllocManaged(&ptr, MIB, 1));
	fails(cuIpcGetMemHandle(&handle, ptr), CUDA_ERROR_INVALID_VALUE);
	fails(cuIpcGetMemHandle(NULL, again), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(an_importer_can_neither_free_nor_export_an_opened_block)
{
	CUipcMemHandle handle;
	CUdeviceptr ptr, start;
	int type, device;
	CUcontext ctx;

	start_with_peer(export_one);
	handle = take_handle();
	ptr = open_handle(handle);
	ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr));
	ck_assert_int_eq(type, CU_MEMORYTYPE_DEVICE);
	ok(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr));
	ck_assert_int_eq(device, 0);
	ok(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
	ck_assert_ptr_eq(ctx, test_ctx);
	ok(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr + 4096));
	ck_assert_uint_eq(start, ptr);
	fails(cuMemFree_v2(ptr), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemFreeAsync(ptr, NULL), CUDA_ERROR_INVALID_VALUE);
	fails(cuIpcGetMemHandle(&handle, ptr), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(test_word(ptr), 7);
	go();
	end_peer();
}
END_TEST

/* Frees exported memory, then reuses its address for a new block. */
static void export_and_free(void)
{
	CUdeviceptr ptr = test_alloc(4 * MIB), small = test_alloc(512), again;

	test_alloc(512);
	set_now(ptr, USED, 7);
	send_handle(ptr);
	send_handle(small);
	await();
	ok(cuMemFree_v2(ptr));
	ok(cuMemFree_v2(small));
	again = test_alloc(4 * MIB);
	ck_assert_uint_eq(again, ptr);
	filled(again, USED, 0);
	set_now(again, USED, 8);
	go();
	await();
	filled(again, USED, 8);
}

START_TEST(exported_memory_that_was_freed_stays_for_processes_that_have_it_open)
{
	CUipcMemHandle handle, small;
	CUdeviceptr ptr;

	start_with_peer(export_and_free);
	handle = take_handle();
	small = take_handle();
	ptr = open_handle(handle);
	go();
	await();
	filled(ptr, USED, 7);
	set_now(ptr, USED, 9);
	filled(ptr, USED, 9);
	opens_once_more(handle, ptr);
	refused(small, CUDA_ERROR_INVALID_VALUE);
	ok(cuIpcCloseMemHandle(ptr));
	refused(handle, CUDA_ERROR_INVALID_VALUE);
	go();
	end_peer();
}
END_TEST

START_TEST(exported_memory_of_an_ended_process_stays_for_processes_that_have_it_open)
{
	CUipcMemHandle handle;
	CUdeviceptr ptr;

	start_with_peer(export_one);
	handle = take_handle();
	ptr = open_handle(handle);
	go();
	end_peer();
	filled(ptr, USED, 7);
	set_now(ptr, USED, 9);
	filled(ptr, USED, 9);
	opens_once_more(handle, ptr);
	ok(cuIpcCloseMemHandle(ptr));
	refused(handle, CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(an_ipc_handle_with_one_wrong_byte_is_refused)
{
	CUipcMemHandle handle;
	CUdeviceptr ptr = 77;

	start_with_peer(export_one);
	handle = take_handle();
	for (size_t i = 0; i < sizeof(handle); i++) {
		CUipcMemHandle other = handle;

		other.reserved[i] ^= (char)(1 << i % 8);
		refused(other, CUDA_ERROR_INVALID_VALUE);
	}
	refused((CUipcMemHandle){{0}}, CUDA_ERROR_INVALID_VALUE);
	fails(cuIpcOpenMemHandle_v2(&ptr, handle, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cuIpcOpenMemHandle_v2(&ptr, handle, 2), CUDA_ERROR_INVALID_VALUE);
	fails(cuIpcOpenMemHandle_v2(NULL, handle, LAZY), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(ptr, 77);
	open_handle(handle);
	go();
	end_peer();
}
END_TEST

static void *send_thread_id(void *unused)
{
	uint32_t tid = (uint32_t)syscall(SYS_gettid);

	send(&tid, sizeof(tid));
	await();
	return unused;
}

static void export_with_thread(void)
{
	pthread_t thread;

	send_handle(test_alloc(4 * MIB));
	ck_assert_int_eq(pthread_create(&thread, NULL, send_thread_id, NULL), 0);
	pthread_join(thread, NULL);
}

START_TEST(an_ipc_handle_names_its_process_and_not_a_thread)
{
	CUipcMemHandle handle, other;
	uint32_t tid;

	start_with_peer(export_with_thread);
	handle = other = take_handle();
	take(&tid, sizeof(tid));
	memcpy(other.reserved + 8, &tid, sizeof(tid));
	ck_assert_int_ne(memcmp(&handle, &other, sizeof(handle)), 0);
	refused(other, CUDA_ERROR_INVALID_VALUE);
	open_handle(handle);
	go();
	end_peer();
}
END_TEST

/* Only both ends are written; the file that holds the memory must not need the part between them. */
static void export_much(void)
{
	size_t bytes = 8192 * MIB;
	CUdeviceptr ptr = test_alloc(bytes);

	set_now(ptr, 4096, 7);
	set_now(ptr + bytes - 4096, 4096, 8);
	send_handle(ptr);
	await();
	ok(cuMemFree_v2(ptr));
}

START_TEST(exporting_a_huge_block_costs_only_the_written_memory)
{
	CUdeviceptr ptr;

	start_with_peer(export_much);
	ptr = open_handle(take_handle());
	filled(ptr, 4096, 7);
	filled(ptr + 8192 * MIB - 4096, 4096, 8);
	filled(ptr + 4096 * MIB, 4096, 0);
	go();
	end_peer();
}
END_TEST

static void export_flag(void)
{
	CUdeviceptr ptr = test_alloc(512);

	set_now(ptr, 4, 0);
	send_handle(ptr);
	await();
	ok(test_set_flag(NULL, ptr, 1));
	ok(test_wait_flag(NULL, ptr, 2));
	ok(cuCtxSynchronize());
}

START_TEST(kernels_of_two_processes_can_wait_for_each_other)
{
	CUdeviceptr ptr;

	start_with_peer(export_flag);
	ptr = open_handle(take_handle());
	ok(test_wait_flag(NULL, ptr, 1));
	ok(test_set_flag(NULL, ptr, 2));
	go();
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(simgpu_deadlocks(), 0);
	end_peer();
}
END_TEST

static void export_event(void)
{
	CUdeviceptr ptr = test_alloc(4 * MIB);
	CUevent event, plain = test_event();
	CUipcEventHandle handle;

	fails(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
	fails(cuIpcGetEventHandle(&handle, plain), CUDA_ERROR_INVALID_HANDLE);
	ok(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	ok(cuIpcGetEventHandle(&handle, event));
	fails(cuIpcOpenEventHandle(&plain, handle), CUDA_ERROR_INVALID_CONTEXT);
	ok(test_spin_fill(NULL, ptr, USED / 4, 5, 100 * MS));
	ok(cuEventRecord(event, NULL));
	send(&handle, sizeof(handle));
	send_handle(ptr);
	await();
	ok(cuEventDestroy_v2(event));
	go();
	await();
}

START_TEST(work_before_an_interprocess_event_is_complete_after_a_wait_for_it)
{
	CUstream stream;
	CUipcEventHandle handle, wrong;
	CUevent event, again;
	CUdeviceptr ptr, result;
	uint64_t count;

	start_with_peer(export_event);
	take(&handle, sizeof(handle));
	ptr = open_handle(take_handle());
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	result = test_alloc(8);
	set_now(result, 8, 0);
	ok(cuIpcOpenEventHandle(&event, handle));
	ok(cuStreamWaitEvent(stream, event, 0));
	ok(test_count_wrong(stream, ptr, USED / 4, 5, result));
	ok(cuEventSynchronize(event));
	ok(cuEventQuery(event));
	ok(cuEventRecord(event, stream));
	ok(cuMemcpyDtoH_v2(&count, result, sizeof(count)));
	ck_assert_uint_eq(count, 0);
	ok(cuEventDestroy_v2(event));
	wrong = handle;
	wrong.reserved[20] ^= 1;
	fails(cuIpcOpenEventHandle(&again, wrong), CUDA_ERROR_INVALID_VALUE);
	go();
	await();
	fails(cuIpcOpenEventHandle(&again, handle), CUDA_ERROR_INVALID_VALUE);
	go();
	end_peer();
}
END_TEST

static TCase *memory_cases(void)
{
	TCase *tc = tcase_create("memory");

	tcase_add_test(tc, an_importing_process_reads_the_words_of_the_exporting_process);
	tcase_add_test(tc, physical_memory_is_shared_by_its_descriptor_and_outlives_its_owner);
	tcase_add_test(tc, physical_memory_without_a_shareable_type_and_other_descriptors_are_refused);
	tcase_add_test(tc, an_ipc_handle_of_an_inner_address_opens_at_the_base_of_the_block);
	tcase_add_test(tc, opens_of_an_ipc_handle_are_counted);
	tcase_add_test(tc, the_last_close_of_an_ipc_handle_waits_for_the_context);
	tcase_add_test(tc, an_ipc_handle_is_open_in_one_context_of_a_process_at_a_time);
	tcase_add_test(tc, a_process_cannot_open_its_own_ipc_handles);
	tcase_add_test(tc, an_importer_can_neither_free_nor_export_an_opened_block);
	tcase_add_test(tc, exported_memory_that_was_freed_stays_for_processes_that_have_it_open);
	tcase_add_test(tc, exported_memory_of_an_ended_process_stays_for_processes_that_have_it_open);
	tcase_add_test(tc, an_ipc_handle_with_one_wrong_byte_is_refused);
	tcase_add_test(tc, an_ipc_handle_names_its_process_and_not_a_thread);
	tcase_add_test(tc, exporting_a_huge_block_costs_only_the_written_memory);
	tcase_add_test(tc, kernels_of_two_processes_can_wait_for_each_other);
	return tc;
}

static TCase *event_cases(void)
{
	TCase *tc = tcase_create("events");

	tcase_add_test(tc, work_before_an_interprocess_event_is_complete_after_a_wait_for_it);
	return tc;
}

int main(void)
{
	static TCase *(*const cases[])(void) = {memory_cases, event_cases};

	return test_run("simulated GPU: IPC", cases, sizeof(cases) / sizeof(*cases));
}
