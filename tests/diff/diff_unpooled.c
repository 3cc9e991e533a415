/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Device memory that gpupool counts and passes through to the driver: managed memory, the driver's own pools, arrays
 * and physical memory. The scenarios allocate it behind a cache full of freed blocks, exceed the device's memory, and
 * free it in every way. tests/diff/test_unpooled.c also runs them under a limit, which then acts as a smaller device.
 */

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

enum { N_BLOCKS = 24, MANAGED_GLOBAL = 1, FLOAT = 0x20 };

static CUstream stream;
static CUmemoryPool created_pool;

/* An allocation of any kind. */
struct allocation {
	CUdeviceptr ptr;
	CUarray array;
	CUmipmappedArray mipmapped;
	CUmemGenericAllocationHandle handle;
	size_t mapped_bytes;
};

static const CUmemAllocationProp on_device = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static CUresult alloc_device(struct allocation *p, size_t bytes)
{
	return cuMemAlloc_v2(&p->ptr, bytes);
}

static CUresult alloc_managed(struct allocation *p, size_t bytes)
{
	return cuMemAllocManaged(&p->ptr, bytes, MANAGED_GLOBAL);
}

static CUresult alloc_async(struct allocation *p, size_t bytes)
{
	return cuMemAllocAsync(&p->ptr, bytes, stream);
}

static CUresult alloc_async_own(struct allocation *p, size_t bytes)
{
	CUresult r = cuMemAllocAsync_ptsz(&p->ptr, bytes, NULL);

	APP_MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	return r;
}

static CUresult alloc_default_pool(struct allocation *p, size_t bytes)
{
	CUmemoryPool pool;

	APP_MUST(cuDeviceGetDefaultMemPool(&pool, 0));
	return cuMemAllocFromPoolAsync(&p->ptr, bytes, pool, stream);
}

static CUresult alloc_created_pool(struct allocation *p, size_t bytes)
{
	return cuMemAllocFromPoolAsync(&p->ptr, bytes, created_pool, stream);
}

/* Arrays have rows of 1 MiB, slices of 4 MiB or layers of 32 MiB, so that no dimension exceeds the driver's limits. */
static CUresult alloc_array(struct allocation *p, size_t bytes)
{
	CUDA_ARRAY_DESCRIPTOR shape = {.Width = 64 * KIB, .Height = bytes / MIB, .Format = FLOAT, .NumChannels = 4};

	return cuArrayCreate_v2(&p->array, &shape);
}

static CUDA_ARRAY3D_DESCRIPTOR shape_3d(size_t bytes)
{
	return (CUDA_ARRAY3D_DESCRIPTOR){
		.Width = 4096, .Height = 64, .Depth = bytes / (4 * MIB), .Format = FLOAT, .NumChannels = 4};
}

static CUresult alloc_array_3d(struct allocation *p, size_t bytes)
{
	CUDA_ARRAY3D_DESCRIPTOR shape = shape_3d(bytes);

	return cuArray3DCreate_v2(&p->array, &shape);
}

/* All levels together take a third more than the first. */
static CUresult alloc_mipmapped(struct allocation *p, size_t bytes)
{
	CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 4096,
		.Height = 512,
		.Depth = bytes / 4 * 3 / (32 * MIB),
		.Format = FLOAT,
		.NumChannels = 4,
		.Flags = CUDA_ARRAY3D_LAYERED};

	return cuMipmappedArrayCreate(&p->mipmapped, &shape, 8);
}

static CUresult alloc_physical(struct allocation *p, size_t bytes)
{
	return cuMemCreate(&p->handle, bytes, &on_device, 0);
}

/* The handle is released at once: only the mapping keeps the memory. */
static CUresult alloc_mapped(struct allocation *p, size_t bytes)
{
	CUresult r = cuMemCreate(&p->handle, bytes, &on_device, 0);

	if (r)
		return r;
	APP_MUST(cuMemAddressReserve(&p->ptr, bytes, 0, 0, 0));
	APP_MUST(cuMemMap(p->ptr, bytes, 0, p->handle, 0));
	APP_MUST(cuMemRelease(p->handle));
	p->mapped_bytes = bytes;
	return CUDA_SUCCESS;
}

static CUresult free_pointer(struct allocation *p)
{
	return cuMemFree_v2(p->ptr);
}

static CUresult free_async(struct allocation *p)
{
	return cuMemFreeAsync(p->ptr, stream);
}

static CUresult free_array(struct allocation *p)
{
	return cuArrayDestroy(p->array);
}

static CUresult free_mipmapped(struct allocation *p)
{
	return cuMipmappedArrayDestroy(p->mipmapped);
}

static CUresult free_physical(struct allocation *p)
{
	return cuMemRelease(p->handle);
}

static CUresult free_mapped(struct allocation *p)
{
	CUresult r = cuMemUnmap(p->ptr, p->mapped_bytes);

	APP_MUST(cuMemAddressFree(p->ptr, p->mapped_bytes));
	return r;
}

static const struct kind {
	const char *name;
	CUresult (*alloc)(struct allocation *p, size_t bytes);
	CUresult (*free)(struct allocation *p);
} kinds[] = {
	{"device", alloc_device, free_pointer},
	{"managed", alloc_managed, free_pointer},
	{"async", alloc_async, free_async},
	{"async by cuMemFree", alloc_async, free_pointer},
	{"async on the thread's own stream", alloc_async_own, free_async},
	{"default pool", alloc_default_pool, free_async},
	{"created pool", alloc_created_pool, free_async},
	{"array", alloc_array, free_array},
	{"3D array", alloc_array_3d, free_array},
	{"mipmapped array", alloc_mipmapped, free_mipmapped},
	{"physical", alloc_physical, free_physical},
	{"mapped", alloc_mapped, free_mapped},
};

static void start(void)
{
	CUmemPoolProps properties = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

	app_start();
	stream = app_stream();
	APP_MUST(cuMemPoolCreate(&created_pool, &properties));
}

/* The driver's pools release freed memory when the program synchronizes. */
static CUresult free_and_synchronize(const struct kind *kind, struct allocation *allocation)
{
	CUresult r = kind->free(allocation);

	APP_MUST(cuCtxSynchronize());
	return r;
}

static void report(const struct kind *kind, const char *what, int result)
{
	printf("%s, %s: %d\n", kind->name, what, result);
}

static size_t device_bytes(void)
{
	size_t free_bytes, total_bytes;

	APP_MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	return free_bytes;
}

/* Returns a share of the bytes, in whole units of 32 MiB. */
static size_t share(size_t bytes, unsigned percent)
{
	return bytes / 100 * percent / (32 * MIB) * (32 * MIB);
}

/* Fills the memory with cached blocks, so that no allocation of another kind fits beside them. */
static void fill_and_empty(size_t bytes)
{
	CUdeviceptr ptr[N_BLOCKS];

	for (unsigned i = 0; i < N_BLOCKS; i++)
		ptr[i] = app_alloc(bytes / N_BLOCKS / MIB * MIB);
	for (unsigned i = 0; i < N_BLOCKS; i++)
		APP_MUST(cuMemFree_v2(ptr[i]));
}

/* Allocates half of the device as each kind of memory in turn, while the cache is full of freed blocks. */
static void behind_a_cache(void)
{
	size_t all;

	start();
	all = device_bytes();
	for (unsigned i = 0; i < LENGTH(kinds); i++) {
		const struct kind *kind = &kinds[i];
		struct allocation allocation = {0};

		fill_and_empty(all / 100 * 70);
		/* Half of it: the driver pads arrays. */
		report(kind, "half of the device", kind->alloc(&allocation, share(all, 50)));
		report(kind, "free", free_and_synchronize(kind, &allocation));
	}
	app_result("end", cuCtxSynchronize());
}

/*
 * All memory of the device can be allocated as each kind, and again after it was freed. Managed memory is left
 * out, because it may exceed the device's memory.
 */
static void all_of_it(void)
{
	size_t all;

	start();
	all = device_bytes();
	for (unsigned i = 0; i < LENGTH(kinds); i++) {
		const struct kind *kind = &kinds[i];
		struct allocation allocations[3] = {{0}};

		if (kind->alloc == alloc_managed)
			continue;
		report(kind, "first half", kind->alloc(&allocations[0], share(all, 45)));
		report(kind, "second half", kind->alloc(&allocations[1], share(all, 45)));
		for (unsigned k = 0; k < LENGTH(kinds); k++) {
			char what[64];
			CUresult r;

			if (kinds[k].alloc == alloc_managed)
				continue;
			snprintf(what, sizeof(what), "and then %s", kinds[k].name);
			r = kinds[k].alloc(&allocations[2], share(all, 20));
			report(kind, what, r);
			if (!r)
				(void)free_and_synchronize(&kinds[k], &allocations[2]);
		}
		report(kind, "free the first", free_and_synchronize(kind, &allocations[0]));
		report(kind, "another half", kind->alloc(&allocations[0], share(all, 45)));
		report(kind, "free", free_and_synchronize(kind, &allocations[0]));
		report(kind, "free the second", free_and_synchronize(kind, &allocations[1]));
	}
	app_result("end", cuCtxSynchronize());
}

/* Requests that no device could serve, and requests with bad arguments. */
static void refused(void)
{
	CUDA_ARRAY3D_DESCRIPTOR bad = shape_3d(32 * MIB);
	CUdeviceptr ptr = 0x5a5a;
	CUarray array;
	size_t huge = (size_t)1 << 46;

	start();
	app_result("managed, no output", cuMemAllocManaged(NULL, MIB, MANAGED_GLOBAL));
	app_result("managed, zero bytes", cuMemAllocManaged(&ptr, 0, MANAGED_GLOBAL));
	app_result("managed, bad flags", cuMemAllocManaged(&ptr, MIB, 77));
	app_result("async, no output", cuMemAllocAsync(NULL, MIB, stream));
	app_result("async, zero bytes", cuMemAllocAsync(&ptr, 0, stream));
	ptr = 0x5a5a;
	app_result("async, too much", cuMemAllocAsync(&ptr, huge, stream));
	printf("unchanged: %d, NULL: %d\n", ptr == 0x5a5a, ptr == 0);
	app_result("array, no output", cuArray3DCreate_v2(NULL, &bad));
	app_result("array, no shape", cuArray3DCreate_v2(&array, NULL));
	bad.NumChannels = 3;
	app_result("array, three channels", cuArray3DCreate_v2(&array, &bad));
	bad = shape_3d(32 * MIB);
	bad.Width = SIZE_MAX;
	app_result("array, too wide", cuArray3DCreate_v2(&array, &bad) != CUDA_SUCCESS);
	app_result("array, NULL", cuArrayDestroy(NULL));
	app_result("mipmapped array, NULL", cuMipmappedArrayDestroy(NULL));
	/* The driver's pool still works. */
	APP_MUST(cuMemAllocAsync(&ptr, MIB, stream));
	APP_MUST(cuMemFreeAsync(ptr, stream));
	app_result("end", cuStreamSynchronize(stream));
}

/* References to physical memory: each mapping, retained handle and imported handle keeps it allocated. */
static void references(void)
{
	CUmemGenericAllocationHandle handle = 0, retained = 0, imported = 0, more = 0;
	size_t bytes, all;
	CUdeviceptr at;
	int fd = -1;
	CUmemAllocationProp properties = on_device;

	start();
	all = device_bytes();
	bytes = share(all, 60);
	properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	app_result("create", cuMemCreate(&handle, bytes, &properties, 0));
	app_result("reserve", cuMemAddressReserve(&at, 2 * bytes, 0, 0, 0));
	app_result("map", cuMemMap(at, bytes, 0, handle, 0));
	app_result("map again", cuMemMap(at + bytes, bytes, 0, handle, 0));
	app_result("export", cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	app_result("import", cuMemImportFromShareableHandle(
				     &imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	app_fact("imported handle is the same", imported == handle);
	app_result("retain", cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)(at + MIB)));
	app_fact("retained handle is the same", retained == handle);
	app_result("one more", cuMemCreate(&more, bytes, &on_device, 0));
	app_result("release", cuMemRelease(handle));
	app_result("release of the retained handle", cuMemRelease(retained));
	app_result("release of the imported handle", cuMemRelease(imported));
	app_result("one more", cuMemCreate(&more, bytes, &on_device, 0));
	app_result("unmap of one mapping", cuMemUnmap(at, bytes));
	app_result("one more", cuMemCreate(&more, bytes, &on_device, 0));
	app_result("unmap a part", cuMemUnmap(at + bytes, bytes / 2));
	app_result("unmap the other", cuMemUnmap(at + bytes, bytes));
	/* The file descriptor is a reference, too. */
	app_fact("one more beside the descriptor", (uint64_t)cuMemCreate(&more, bytes, &on_device, 0));
	if (more)
		APP_MUST(cuMemRelease(more));
	app_result("free the addresses", cuMemAddressFree(at, 2 * bytes));
}

/* One call can remove several mappings. */
static void mappings(void)
{
	CUmemGenericAllocationHandle handles[4], more = 0;
	size_t part, all;
	CUdeviceptr at;

	start();
	all = device_bytes();
	part = share(all, 20);
	APP_MUST(cuMemAddressReserve(&at, LENGTH(handles) * part, 0, 0, 0));
	for (unsigned i = 0; i < LENGTH(handles); i++) {
		APP_MUST(cuMemCreate(&handles[i], part, &on_device, 0));
		APP_MUST(cuMemMap(at + i * part, part, 0, handles[i], 0));
		APP_MUST(cuMemRelease(handles[i]));
	}
	app_result("one more", cuMemCreate(&more, 2 * part, &on_device, 0));
	app_result("unmap two", cuMemUnmap(at + part, 2 * part));
	app_result("one more", cuMemCreate(&more, 2 * part, &on_device, 0));
	app_result("unmap of one mapping", cuMemUnmap(at, part));
	app_result("unmap the last", cuMemUnmap(at + 3 * part, part));
	APP_MUST(cuMemRelease(more));
	app_result("all", cuMemCreate(&more, 4 * part, &on_device, 0));
	APP_MUST(cuMemRelease(more));
	app_result("free the addresses", cuMemAddressFree(at, LENGTH(handles) * part));
}

/* Reserved addresses have no memory, and neither has an array with deferred mapping. */
static void without_memory(void)
{
	CUDA_ARRAY3D_DESCRIPTOR shape;
	CUarray array;
	CUresult r = CUDA_SUCCESS;
	size_t all;
	CUdeviceptr ptr;

	start();
	all = device_bytes();
	shape = shape_3d(512 * MIB);
	shape.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;
	app_result("reserve", cuMemAddressReserve(&ptr, all / (2 * MIB) * (4 * MIB), 0, 0, 0));
	for (size_t bytes = 0; bytes < all + all / 4 && !r; bytes += 512 * MIB)
		r = cuArray3DCreate_v2(&array, &shape);
	app_result("arrays larger than the device", r);
	app_result("most of the device", cuMemAlloc_v2(&ptr, share(all, 80)));
}

/* Physical memory of the host does not count as device memory. */
static void host_memory(void)
{
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
	CUmemGenericAllocationHandle handle = 0;
	CUdeviceptr ptr;
	size_t all;

	start();
	all = device_bytes();
	app_result("most of the device", cuMemAlloc_v2(&ptr, share(all, 90)));
	app_result("host memory", cuMemCreate(&handle, 256 * MIB, &properties, 0));
	if (handle)
		app_result("release", cuMemRelease(handle));
}

/* A driver pool that keeps freed memory, and is then destroyed while some of its memory is still used. */
static void pools(void)
{
	uint64_t keep = UINT64_MAX;
	CUdeviceptr ptr, used;
	size_t all;

	start();
	all = device_bytes();
	APP_MUST(cuMemPoolSetAttribute(created_pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	app_result("from the pool", cuMemAllocFromPoolAsync(&ptr, share(all, 60), created_pool, stream));
	app_result("free", cuMemFreeAsync(ptr, stream));
	APP_MUST(cuStreamSynchronize(stream));
	/* The driver may or may not take the memory from the pool, so this is only a fact. */
	app_fact("as much by cuMemAlloc", (uint64_t)cuMemAlloc_v2(&ptr, share(all, 60)));
	app_result("trim", cuMemPoolTrimTo(created_pool, 0));
	if (ptr)
		(void)cuMemFree_v2(ptr);
	app_result("from the pool", cuMemAllocFromPoolAsync(&used, share(all, 60), created_pool, stream));
	app_result("destroy the pool", cuMemPoolDestroy(created_pool));
	app_result("as much by cuMemAlloc", cuMemAlloc_v2(&ptr, share(all, 60)));
	app_result("free the used memory", cuMemFreeAsync(used, stream));
	app_result("synchronize", cuCtxSynchronize());
	app_result("as much by cuMemAlloc", cuMemAlloc_v2(&ptr, share(all, 60)));
	app_result("free", cuMemFree_v2(ptr));
}

/*
 * The end of a context frees the memory that belongs to it. Arrays are tested only on the simulator: a real driver
 * (580.159.04) that destroys a context with arrays in it corrupted its heap in three of sixteen runs, without gpupool.
 */
static void contexts(void)
{
	static const char *const which[] = {"managed", "array", "3D array", "mipmapped array"};
	unsigned n = app_is_simulated() ? LENGTH(which) : 1;
	CUcontext ctx;
	size_t all;

	start();
	all = device_bytes();
	for (unsigned i = 0; i < 2 * n; i++) {
		struct allocation allocation = {0};

		APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
		for (unsigned k = 0; k < LENGTH(kinds); k++)
			if (strcmp(kinds[k].name, which[i / 2]) == 0)
				report(&kinds[k], "in a context", kinds[k].alloc(&allocation, share(all, 60)));
		app_result("destroy", cuCtxDestroy_v2(ctx));
	}
	app_result("most of the device", cuMemAllocManaged(&(CUdeviceptr){0}, share(all, 60), MANAGED_GLOBAL));
}

/* The driver's pools belong to the device. The effect of a reset on their memory is only reported as a fact. */
static void reset(void)
{
	struct allocation allocation = {0};
	size_t all;

	start();
	all = device_bytes();
	app_result("async", alloc_async(&allocation, share(all, 60)));
	APP_MUST(cuStreamSynchronize(stream));
	app_result("reset", cuDevicePrimaryCtxReset_v2(0));
	APP_MUST(cuDevicePrimaryCtxRelease_v2(0));
	app_start();
	app_fact("free after a reset, per cent", (uint64_t)(device_bytes() * 100 / all));
	app_fact("as much after a reset", (uint64_t)cuMemAlloc_v2(&allocation.ptr, share(all, 60)));
	app_result("end", cuCtxSynchronize());
}

/* Makes one allocation of each kind, and frees all of them. A test may read the account at each pause. */
static void account(void)
{
	struct allocation allocations[LENGTH(kinds)] = {{0}};

	start();
	for (unsigned i = 1; i < LENGTH(kinds); i++)
		report(&kinds[i], "64 MiB", kinds[i].alloc(&allocations[i], 64 * MIB));
	app_pause("one of each");
	for (unsigned i = 1; i < LENGTH(kinds); i++)
		report(&kinds[i], "free", free_and_synchronize(&kinds[i], &allocations[i]));
	app_pause("none");
}

/* Without a current context, some kinds of memory can be allocated. */
static void no_context(void)
{
	CUmemGenericAllocationHandle handle = 0;
	struct allocation allocation = {0};

	start();
	APP_MUST(cuCtxSetCurrent(NULL));
	app_result("managed", alloc_managed(&allocation, MIB));
	app_result("array", alloc_array(&allocation, MIB));
	app_result("physical", cuMemCreate(&handle, 64 * MIB, &on_device, 0));
	if (handle)
		app_result("release", cuMemRelease(handle));
	app_result("async on a stream", alloc_async(&allocation, MIB));
	if (allocation.ptr)
		app_result("free", cuMemFreeAsync(allocation.ptr, stream));
}

const struct app_scenario app_scenarios[] = {
	{"behind-a-cache", behind_a_cache},
	{"all-of-it", all_of_it},
	{"refused", refused},
	{"references", references},
	{"mappings", mappings},
	{"without-memory", without_memory},
	{"host-memory", host_memory},
	{"pools", pools},
	{"contexts", contexts},
	{"reset", reset},
	{"account", account},
	{"no-context", no_context},
	{0},
};
