/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The simulated runtime. Built twice: with the shared and with the static library. */

#include <sys/wait.h>
#include <unistd.h>

#include "test_sim.h"
#include "tests/suite.h"

/* The driver is found only by dlopen, so the test looks up the simulator's functions by name. */
#include <dlfcn.h>

static uint64_t calls(const char *name)
{
	static uint64_t (*counter)(const char *);

	if (!counter) {
		void *driver = dlopen("libcuda.so.1", RTLD_NOW);

		ck_assert_ptr_nonnull(driver);
		counter = (uint64_t(*)(const char *))dlsym(driver, "simgpu_calls");
	}
	ck_assert_ptr_nonnull(counter);
	return counter(name);
}

START_TEST(runtime_allocations_of_size_zero_are_null_and_never_reach_the_driver)
{
	void *ptr = &ptr;
	size_t pitch = 1;

	ok(cudaFree(NULL));
	ok(cudaMalloc(&ptr, 0));
	ck_assert_ptr_null(ptr);
	ptr = &ptr;
	ok(cudaMallocHost(&ptr, 0));
	ck_assert_ptr_null(ptr);
	ptr = &ptr;
	ok(cudaMallocManaged(&ptr, 0, cudaMemAttachGlobal));
	ck_assert_ptr_null(ptr);
	ptr = &ptr;
	ok(cudaMallocPitch(&ptr, &pitch, 0, 5));
	ck_assert_ptr_null(ptr);
	ck_assert_uint_eq(pitch, 0);
	ck_assert_uint_eq(calls("cuMemAlloc_v2") + calls("cuMemHostAlloc") + calls("cuMemAllocManaged") +
				  calls("cuMemAllocPitch_v2"),
		0);
	fails(cudaMalloc(NULL, 0), cudaErrorInvalidValue);
	fails(cudaMalloc(NULL, 64), cudaErrorInvalidValue);
	ok(cudaFreeHost(NULL));
}
END_TEST

START_TEST(runtime_calls_make_the_same_driver_calls_as_the_real_runtime)
{
	void *device, *pinned;

	ok(cudaFree(NULL));
	ck_assert_uint_eq(calls("cuMemFree_v2"), 1);
	ck_assert_uint_eq(calls("cuDevicePrimaryCtxRetain"), 1);
	ok(cudaMalloc(&device, 100));
	ok(cudaMallocHost(&pinned, 100));
	ck_assert_uint_eq(calls("cuMemAlloc_v2"), 1);
	ck_assert_uint_eq(calls("cuMemHostAlloc"), 1);
	ck_assert_uint_eq(calls("cuMemAllocHost_v2"), 0);
	ok(cudaFree(device));
	ok(cudaFreeHost(pinned));
	ck_assert_uint_eq(calls("cuMemFree_v2"), 2);
	ck_assert_uint_eq(calls("cuMemFreeHost"), 1);
	ok(cudaDeviceReset());
	ck_assert_uint_eq(calls("cuDevicePrimaryCtxReset"), 1);
	ok(cudaMalloc(&device, 100));
	ck_assert_uint_eq(calls("cuDevicePrimaryCtxRetain"), 2);
	ck_assert_uint_eq(calls("cuGetProcAddress"), 0);
}
END_TEST

START_TEST(the_last_runtime_error_is_kept_until_it_is_fetched)
{
	void *ptr = &ptr;

	ok(cudaPeekAtLastError());
	fails(cudaMalloc(&ptr, (size_t)1 << 60), cudaErrorMemoryAllocation);
	ck_assert_ptr_null(ptr);
	ok(cudaMalloc(&ptr, 64));
	fails(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
	fails(cudaGetLastError(), cudaErrorMemoryAllocation);
	ok(cudaGetLastError());
	ok(cudaFree(ptr));
	fails(cudaFree(ptr), cudaErrorInvalidValue);
	ck_assert_str_eq(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
	ck_assert_str_eq(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
}
END_TEST

START_TEST(runtime_copies_transfer_bytes_to_the_device_and_back)
{
	char text[] = "there and back", copy[sizeof(text)] = "";
	struct cudaPointerAttributes attributes;
	cudaStream_t stream;
	cudaEvent_t event;
	void *device;

	ok(cudaMalloc(&device, 4096));
	ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	ok(cudaMemcpyAsync(device, text, sizeof(text), cudaMemcpyHostToDevice, stream));
	ok(cudaEventRecord(event, stream));
	ok(cudaEventSynchronize(event));
	ok(cudaMemcpy(copy, device, sizeof(text), cudaMemcpyDefault));
	ck_assert_str_eq(copy, text);
	fails(cudaMemcpy(copy, device, 1, 5), cudaErrorInvalidValue);
	ok(cudaMemset(device, 'x', 3));
	ok(cudaMemcpy(copy, device, sizeof(text), cudaMemcpyDeviceToHost));
	ck_assert_str_eq(copy, "xxxre and back");
	ok(cudaPointerGetAttributes(&attributes, device));
	ck_assert_int_eq(attributes.type, cudaMemoryTypeDevice);
	ck_assert_ptr_eq(attributes.devicePointer, device);
	ok(cudaPointerGetAttributes(&attributes, text));
	ck_assert_int_eq(attributes.type, cudaMemoryTypeUnregistered);
	ck_assert_ptr_eq(attributes.hostPointer, text);
}
END_TEST

static const struct {
	int attribute;
	size_t offset;
} numbers[] = {
#define NUMBER(attribute, member)                                  \
	{                                                          \
		attribute, offsetof(struct cudaDeviceProp, member) \
	}
	NUMBER(1, maxThreadsPerBlock),
	NUMBER(10, warpSize),
	NUMBER(16, multiProcessorCount),
	NUMBER(19, canMapHostMemory),
	NUMBER(31, concurrentKernels),
	NUMBER(40, asyncEngineCount),
	NUMBER(41, unifiedAddressing),
	NUMBER(75, major),
	NUMBER(76, minor),
	NUMBER(78, streamPrioritiesSupported),
	NUMBER(83, managedMemory),
	NUMBER(89, concurrentManagedAccess),
	NUMBER(91, canUseHostPointerForRegisteredMem),
	NUMBER(99, hostRegisterSupported),
	NUMBER(115, memoryPoolsSupported),
	NUMBER(116, gpuDirectRDMASupported),
#undef NUMBER
};

START_TEST(runtime_device_properties_match_the_driver_attributes)
{
	CUresult (*attribute)(int *value, int which, CUdevice device);
	CUresult (*uuid)(CUuuid * uuid, CUdevice device);
	struct cudaDeviceProp prop;
	int version = 0, value;
	CUuuid id;
	size_t n;

	memset(&prop, 0xff, sizeof(prop));
	setenv("SIMGPU_MEMORY", "3G", 1);
	ok(cudaGetDeviceProperties(&prop, 0));
	ck_assert_str_eq(prop.name, "Simulated GPU");
	ck_assert_uint_eq(prop.totalGlobalMem, (size_t)3 << 30);
	ck_assert_int_eq(prop.major, 9);
	ok(cudaGetDriverEntryPointByVersion("cuDeviceGetAttribute", (void **)&attribute, 12000, 0, NULL));
	for (size_t i = 0; i < LENGTH(numbers); i++) {
		ok(attribute(&value, numbers[i].attribute, 0));
		ck_assert_int_eq(*(int *)((char *)&prop + numbers[i].offset), value);
	}
	ok(cudaGetDriverEntryPointByVersion("cuDeviceGetUuid", (void **)&uuid, 12000, 0, NULL));
	ok(uuid(&id, 0));
	ck_assert_mem_eq(prop.uuid, &id, sizeof(id));
	for (n = 0; n < LENGTH(prop.more) && !prop.more[n]; n++)
		;
	ck_assert_uint_eq(n, LENGTH(prop.more));
	fails(cudaGetDeviceProperties(&prop, 1), cudaErrorInvalidDevice);
	fails(cudaGetDeviceProperties(NULL, 0), cudaErrorInvalidValue);
	ok(cudaDriverGetVersion(&version));
	ck_assert_int_eq(version, 13000);
	ck_assert_uint_eq(calls("cuDevicePrimaryCtxRetain"), 0);
}
END_TEST

START_TEST(runtime_peer_access_lets_devices_copy_each_others_memory)
{
	char text[] = "there and back", copy[sizeof(text)] = "";
	cudaStream_t stream;
	void *here, *there;
	int can = 1;

	setenv("SIMGPU_DEVICES", "2", 1);
	ok(cudaDeviceCanAccessPeer(&can, 0, 0));
	ck_assert_int_eq(can, 0);
	ok(cudaDeviceCanAccessPeer(&can, 0, 1));
	ck_assert_int_eq(can, 1);
	fails(cudaDeviceEnablePeerAccess(1, 1), cudaErrorInvalidValue);
	fails(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
	ok(cudaDeviceEnablePeerAccess(1, 0));
	fails(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
	fails(cudaDeviceEnablePeerAccess(2, 0), cudaErrorInvalidDevice);
	ok(cudaSetDevice(1));
	ok(cudaMalloc(&there, sizeof(text)));
	ok(cudaMemcpy(there, text, sizeof(text), cudaMemcpyHostToDevice));
	ok(cudaSetDevice(0));
	ok(cudaMalloc(&here, sizeof(text)));
	ok(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, -1));
	ok(cudaMemcpyPeerAsync(here, 0, there, 1, sizeof(text), stream));
	ok(cudaStreamSynchronize(stream));
	ok(cudaMemcpy(copy, here, sizeof(text), cudaMemcpyDeviceToHost));
	ck_assert_str_eq(copy, text);
	fails(cudaMemcpyPeerAsync(here, 0, there, 2, sizeof(text), stream), cudaErrorInvalidDevice);
}
END_TEST

START_TEST(the_release_threshold_of_the_default_pool_can_be_set)
{
	CUmemAccessDesc access = {.location = {.type = 1, .id = 1}, .flags = 3};
	uint64_t keep = (uint64_t)64 << 20, value = 0, reserved = 0;
	cudaMemPool_t pool;
	void *ptr;

	setenv("SIMGPU_DEVICES", "2", 1);
	ok(cudaDeviceGetDefaultMemPool(&pool, 0));
	ok(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
	ok(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &value));
	ck_assert_uint_eq(value, keep);
	ok(cudaMallocAsync(&ptr, 1 << 20, cudaStreamLegacy));
	ok(cudaFreeAsync(ptr, cudaStreamLegacy));
	ok(cudaDeviceSynchronize());
	ok(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
	ck_assert_uint_gt(reserved, 0);
	ok(cudaMemPoolTrimTo(pool, reserved));
	ok(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &value));
	ck_assert_uint_eq(value, reserved);
	ok(cudaMemPoolTrimTo(pool, 0));
	ok(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
	ck_assert_uint_eq(reserved, 0);
	ok(cudaMemPoolSetAccess(pool, &access, 1));
	access.location.id = 0;
	fails(cudaMemPoolSetAccess(pool, &access, 1), cudaErrorInvalidDevice);
}
END_TEST

START_TEST(the_current_runtime_device_can_be_changed)
{
	int count, device = -1;
	void *ptr;

	setenv("SIMGPU_DEVICES", "2", 1);
	ok(cudaGetDeviceCount(&count));
	ck_assert_int_eq(count, 2);
	ok(cudaGetDevice(&device));
	ck_assert_int_eq(device, 0);
	ok(cudaMalloc(&ptr, 64));
	ok(cudaSetDevice(1));
	ok(cudaGetDevice(&device));
	ck_assert_int_eq(device, 1);
	ok(cudaFree(ptr));
	fails(cudaSetDevice(2), cudaErrorInvalidDevice);
	ok(cudaDeviceSynchronize());
}
END_TEST

START_TEST(a_capture_through_the_runtime_follows_the_drivers_rules)
{
	int mode = cudaStreamCaptureModeRelaxed, status, least = 1, greatest = 1;
	unsigned long long id = 0;
	cudaStream_t stream;
	cudaGraph_t graph;
	void *ptr;

	ok(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	ck_assert_int_gt(least, greatest);
	ok(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
	ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	ok(cudaThreadExchangeStreamCaptureMode(&mode));
	ok(cudaMalloc(&ptr, 64));
	ok(cudaThreadExchangeStreamCaptureMode(&mode));
	ok(cudaStreamIsCapturing(stream, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ok(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, NULL, NULL, NULL));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ck_assert_uint_ne(id, 0);
	fails(cudaGraphNodeGetDependencies((cudaGraphNode_t)graph, NULL, NULL, NULL), cudaErrorInvalidValue);
	fails(cudaFree(ptr), cudaErrorStreamCaptureUnsupported);
	fails(cudaStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
END_TEST

START_TEST(runtime_entry_points_are_those_of_the_driver)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found = NULL;
	int status = -1;

	ok(cudaGetDriverEntryPointByVersion("cuMemFree", &found, 12000, 0, &status));
	ck_assert_ptr_eq(found, dlsym(driver, "cuMemFree_v2"));
	ck_assert_int_eq(status, cudaDriverEntryPointSuccess);
	ok(cudaGetDriverEntryPointByVersion("cuNoSuch", &found, 12000, 0, &status));
	ck_assert_int_eq(status, cudaDriverEntryPointSymbolNotFound);
}
END_TEST

struct handles {
	cudaIpcMemHandle_t memory;
	cudaIpcEventHandle_t event;
};

static void export(int to, int from)
{
	struct handles handles;
	cudaEvent_t event;
	void *ptr;
	char byte;

	ok(cudaMalloc(&ptr, 4096));
	ok(cudaMemset(ptr, 'x', 4096));
	ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
	ok(cudaEventRecord(event, cudaStreamLegacy));
	ok(cudaIpcGetMemHandle(&handles.memory, ptr));
	ok(cudaIpcGetEventHandle(&handles.event, event));
	fails(cudaIpcOpenMemHandle(&ptr, handles.memory, cudaIpcMemLazyEnablePeerAccess), cudaErrorDeviceUninitialized);
	ck_assert_int_eq(write(to, &handles, sizeof(handles)), (ssize_t)sizeof(handles));
	ck_assert_int_eq(read(from, &byte, 1), 0);
}

START_TEST(processes_share_memory_and_events_through_the_runtime)
{
	struct handles handles;
	int there[2], back[2], status;
	cudaEvent_t event;
	char text[3] = "";
	void *ptr;
	pid_t pid;

	ck_assert_int_eq(pipe(there), 0);
	ck_assert_int_eq(pipe(back), 0);
	pid = fork();
	if (!pid) {
		close(back[1]);
		export(there[1], back[0]);
		_exit(0);
	}
	ck_assert_int_eq(read(there[0], &handles, sizeof(handles)), (ssize_t)sizeof(handles));
	ok(cudaIpcOpenMemHandle(&ptr, handles.memory, cudaIpcMemLazyEnablePeerAccess));
	ok(cudaIpcOpenEventHandle(&event, handles.event));
	ok(cudaStreamWaitEvent(cudaStreamLegacy, event, 0));
	ok(cudaMemcpy(text, ptr, 2, cudaMemcpyDeviceToHost));
	ck_assert_str_eq(text, "xx");
	ok(cudaIpcCloseMemHandle(ptr));
	fails(cudaIpcCloseMemHandle(ptr), cudaErrorInvalidValue);
	close(back[1]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated runtime");
	TCase *tc = tcase_create("runtime");

	tcase_add_test(tc, runtime_allocations_of_size_zero_are_null_and_never_reach_the_driver);
	tcase_add_test(tc, runtime_calls_make_the_same_driver_calls_as_the_real_runtime);
	tcase_add_test(tc, the_last_runtime_error_is_kept_until_it_is_fetched);
	tcase_add_test(tc, runtime_copies_transfer_bytes_to_the_device_and_back);
	tcase_add_test(tc, runtime_device_properties_match_the_driver_attributes);
	tcase_add_test(tc, runtime_peer_access_lets_devices_copy_each_others_memory);
	tcase_add_test(tc, the_release_threshold_of_the_default_pool_can_be_set);
	tcase_add_test(tc, the_current_runtime_device_can_be_changed);
	tcase_add_test(tc, a_capture_through_the_runtime_follows_the_drivers_rules);
	tcase_add_test(tc, runtime_entry_points_are_those_of_the_driver);
	tcase_add_test(tc, processes_share_memory_and_events_through_the_runtime);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
