/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory of the host: pinned with every set of flags, registered, managed; and arrays, which are not pooled. */

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

static CUdeviceptr address(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

static void report_pinned(unsigned flags, size_t bytes, char *host)
{
	unsigned seen = 99, type = 99;
	CUdeviceptr device = 0;

	printf("%zu with flags %u: flags %d", bytes, flags, cuMemHostGetFlags(&seen, host));
	printf(" %u", seen);
	printf(", device pointer %d", cuMemHostGetDevicePointer_v2(&device, host, 0));
	printf(" %d", device == address(host));
	printf(", inside %d", cuMemHostGetDevicePointer_v2(&device, host + bytes / 2, 0));
	printf(" %d", device == address(host + bytes / 2));
	printf(", type %d", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(host)));
	printf(" %u, aligned %d\n", type, address(host) % 4096 == 0);
}

/* Allocates with each set of flags three times, so that the driver's answers are checked for reused blocks, too. */
static void flags_of(size_t bytes)
{
	app_start();
	for (unsigned i = 0; i < 24; i++) {
		unsigned flags = i % 8;
		char *host = NULL;

		printf("%zu with flags %u, made: %d\n", bytes, flags, cuMemHostAlloc((void **)&host, bytes, flags));
		if (!host)
			continue;
		report_pinned(flags, bytes, host);
		host[0] = host[bytes - 1] = (char)i;
		APP_MUST(cuMemFreeHost(host));
	}
	for (unsigned i = 0; i < 3; i++) {
		char *host;

		APP_MUST(cuMemAllocHost_v2((void **)&host, bytes));
		report_pinned(99, bytes, host);
		APP_MUST(cuMemFreeHost(host));
	}
}

static void flags_small(void)
{
	flags_of(64 * KIB);
}

static void flags_large(void)
{
	flags_of(4 * MIB);
}

/* From 16 MiB on the library registers memory of its own. */
static void flags_registered(void)
{
	flags_of(16 * MIB);
}

/* Write-combined memory is slow to read, so a request must not get it without asking for it. */
static void write_combined(void)
{
	unsigned wrong = 0, seen;
	char *host;

	app_start();
	for (unsigned i = 0; i < 60; i++) {
		unsigned flags = i % 3 ? 0 : CU_MEMHOSTALLOC_WRITECOMBINED;

		APP_MUST(cuMemHostAlloc((void **)&host, 2 * MIB, flags));
		APP_MUST(cuMemHostGetFlags(&seen, host));
		wrong += (seen & CU_MEMHOSTALLOC_WRITECOMBINED) != flags;
		APP_MUST(cuMemFreeHost(host));
	}
	printf("blocks of the wrong sort: %u\n", wrong);
}

/* The host reads what a device writes into pinned memory, also in reused blocks. */
static void mapped(void)
{
	unsigned wrong = 0;

	app_start();
	for (unsigned i = 0; i < 40; i++) {
		size_t bytes = i % 2 ? 64 * KIB : 2 * MIB;
		volatile uint32_t *host;
		CUdeviceptr device;

		APP_MUST(cuMemHostAlloc((void **)&host, bytes, CU_MEMHOSTALLOC_DEVICEMAP));
		APP_MUST(cuMemHostGetDevicePointer_v2(&device, (void *)host, 0));
		host[0] = host[bytes / 4 - 1] = 77;
		wrong += app_count_wrong(NULL, device, 4, 77) != 0;
		app_fill(NULL, device, bytes, i);
		APP_MUST(cuCtxSynchronize());
		wrong += host[0] != i || host[bytes / 4 - 1] != i;
		APP_MUST(cuMemFreeHost((void *)host));
	}
	printf("wrong words: %u\n", wrong);
}

/* Registers memory that is pinned, that is not pinned, and that was pinned before. */
static void registering(void)
{
	enum { BYTES = 2 * MIB };
	char *heap = aligned_alloc(4096, BYTES), *host;
	CUdeviceptr device = 0;
	unsigned seen = 99;

	app_start();
	APP_MUST(cuMemHostAlloc((void **)&host, BYTES, 0));
	memset(heap, 1, BYTES);
	app_result("register heap memory", cuMemHostRegister_v2(heap, BYTES, 0));
	app_result("register heap memory again", cuMemHostRegister_v2(heap, BYTES, 0));
	app_result("register a part of it", cuMemHostRegister_v2(heap + 4096, 4096, 0));
	app_result("its device pointer", cuMemHostGetDevicePointer_v2(&device, heap, 0));
	printf("is the same: %d\n", device == address(heap));
	app_result("its flags", cuMemHostGetFlags(&seen, heap));
	app_result("free it as pinned", cuMemFreeHost(heap));
	app_result("free it as device memory", cuMemFree_v2(address(heap)));
	app_result("copy from it", cuMemcpyHtoD_v2(app_alloc(BYTES), heap, BYTES));
	app_result("unregister inside", cuMemHostUnregister(heap + 4096));
	app_result("unregister", cuMemHostUnregister(heap));
	app_result("unregister again", cuMemHostUnregister(heap));
	app_result("unregister NULL", cuMemHostUnregister(NULL));
	app_result("register NULL", cuMemHostRegister_v2(NULL, BYTES, 0));
	app_result("register no bytes", cuMemHostRegister_v2(heap, 0, 0));
	app_result("register pinned memory", cuMemHostRegister_v2(host, BYTES, 0));
	app_result("register a part of pinned memory", cuMemHostRegister_v2(host + 4096, 4096, 0));
	app_result("unregister pinned memory", cuMemHostUnregister(host));
	app_result("free pinned memory", cuMemFreeHost(host));
	app_result("unregister it when free", cuMemHostUnregister(host));
	free(heap);
}

/* Memory that the library has registered itself is an allocation to the program, wherever registrations matter. */
static void registering_large(void)
{
	enum { BYTES = 32 * MIB };
	CUdeviceptr device, from;
	char *host;

	app_start();
	device = app_alloc(BYTES);
	for (unsigned i = 0; i < 3; i++) {
		APP_MUST(cuMemHostAlloc((void **)&host, BYTES, i));
		app_result("register pinned memory", cuMemHostRegister_v2(host, BYTES, 0));
		app_result("register its first page", cuMemHostRegister_v2(host, 4096, CU_MEMHOSTREGISTER_PORTABLE));
		app_result("register a part of it", cuMemHostRegister_v2(host + 4096, 4096, 0));
		app_result("register its end", cuMemHostRegister_v2(host + BYTES - 4096, 4096, 0));
		app_result("unregister it", cuMemHostUnregister(host));
		app_result("unregister a part of it", cuMemHostUnregister(host + 4096));
		app_result("free a part of it", cuMemFreeHost(host + 4096));
		app_result("free it as device memory", cuMemFree_v2(address(host)));
		app_result("copy across all of it", cuMemcpyHtoD_v2(device, host, BYTES));
		app_result("copy back", cuMemcpyDtoH_v2(host, device, BYTES));
		app_result("address range", cuMemGetAddressRange_v2(&from, NULL, address(host) + 4096));
		for (int attribute = 1; attribute <= CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID; attribute++) {
			uint64_t value[2] = {0};

			/* The size of the range is that of the pool's class. */
			if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID ||
				attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ||
				attribute == CU_POINTER_ATTRIBUTE_MAPPING_SIZE ||
				attribute == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID)
				continue;
			printf("attribute %d: %d", attribute,
				cuPointerGetAttribute(value, attribute, address(host) + 8));
			printf(" %d\n", value[0] == address(host) + 8 ? -1
					: value[0] == address(host)   ? -2
					: value[0] > INT16_MAX        ? -3
								      : (int)value[0]);
		}
		app_result("free it", cuMemFreeHost(host));
		app_result("free it again", cuMemFreeHost(host));
	}
}

/* An allocation does not wait for the GPU. */
static void while_busy(void)
{
	volatile uint32_t *flag;
	char *host;

	app_start();
	APP_MUST(cuMemHostAlloc((void **)&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	flag[0] = 0;
	app_spin_until(app_stream(), (const uint32_t *)flag, 1);
	app_result("pinned memory while a kernel runs", cuMemHostAlloc((void **)&host, 32 * MIB, 0));
	app_result("kernel runs", cuStreamQuery(NULL) != CUDA_SUCCESS || flag[0] == 0);
	flag[0] = 1;
	APP_MUST(cuCtxSynchronize());
	host[0] = host[32 * MIB - 1] = 1;
	app_result("free it", cuMemFreeHost(host));
}

static void managed(void)
{
	CUdeviceptr ptr;
	uint64_t id, last = 0;
	unsigned is_managed, repeated = 0;

	app_start();
	for (unsigned i = 0; i < 6; i++) {
		app_result("managed", cuMemAllocManaged(&ptr, 3 * MIB, 1 + i % 2));
		APP_MUST(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr));
		APP_MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
		repeated += id == last;
		last = id;
		app_result("is managed", (int)is_managed);
		app_fill(NULL, ptr, 3 * MIB, i);
		app_result("wrong words", (int)app_count_wrong(NULL, ptr, 3 * MIB, i));
		app_result("free as pinned", cuMemFreeHost((void *)(uintptr_t)ptr));
		app_result("free inside", cuMemFree_v2(ptr + 64));
		app_result("free", cuMemFree_v2(ptr));
		app_result("free again", cuMemFree_v2(ptr));
	}
	printf("ids repeated: %u\n", repeated);
}

static void arrays(void)
{
	CUDA_ARRAY_DESCRIPTOR flat = {.Width = 1000, .Height = 500, .Format = 0x20, .NumChannels = 4};
	CUDA_ARRAY3D_DESCRIPTOR deep = {.Width = 100, .Height = 100, .Depth = 100, .Format = 0x20, .NumChannels = 1};
	CUmipmappedArray mipmapped = NULL;
	CUarray array = NULL;

	app_start();
	for (unsigned i = 0; i < 2; i++) {
		app_result("array", cuArrayCreate_v2(&array, &flat));
		app_result("destroy", cuArrayDestroy(array));
		app_result("3D array", cuArray3DCreate_v2(&array, &deep));
		app_result("destroy", cuArrayDestroy(array));
		app_result("mipmapped array", cuMipmappedArrayCreate(&mipmapped, &deep, 3));
		app_result("destroy", cuMipmappedArrayDestroy(mipmapped));
	}
	app_result("array without an output", cuArrayCreate_v2(NULL, &flat));
	app_result("array without a shape", cuArrayCreate_v2(&array, NULL));
	flat.NumChannels = 3;
	app_result("array of three channels", cuArrayCreate_v2(&array, &flat));
	flat.NumChannels = 4;
	flat.Width = 0;
	app_result("array of no width", cuArrayCreate_v2(&array, &flat));
	app_result("destroy NULL", cuArrayDestroy(NULL));
}

const struct app_scenario app_scenarios[] = {
	{"flags-small", flags_small, APP_TOGETHER},
	{"flags-large", flags_large, APP_TOGETHER},
	{"flags-registered", flags_registered, APP_TOGETHER},
	{"write-combined", write_combined, APP_TOGETHER},
	{"mapped", mapped, APP_TOGETHER},
	{"registering", registering},
	{"registering-large", registering_large},
	{"while-busy", while_busy},
	{"managed", managed},
	{"arrays", arrays},
	{0},
};
