/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Programs that map memory themselves. Each scenario asks its questions in several rounds: in the first round the
 * memory is new, and in later rounds gpupool may serve the calls from memory that stayed mapped.
 */

#include <pthread.h>
#include <unistd.h>

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

enum { ROUNDS = 3 };

#define BYTES (4 * MIB) /* two granules */
#define PART  (2 * MIB)
#define WORDS (4 * KIB) /* bytes that kernels write */

static const CUmemAllocationProp on_device = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc whole_access = {
	.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

struct array {
	CUdeviceptr ptr;
	CUmemGenericAllocationHandle handle;
};

static void make(struct array *a)
{
	APP_MUST(cuMemCreate(&a->handle, BYTES, &on_device, 0));
	APP_MUST(cuMemAddressReserve(&a->ptr, BYTES, PART, 0, 0));
	APP_MUST(cuMemMap(a->ptr, BYTES, 0, a->handle, 0));
	APP_MUST(cuMemSetAccess(a->ptr, BYTES, &whole_access, 1));
}

static void destroy(const struct array *a)
{
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuMemUnmap(a->ptr, BYTES));
	APP_MUST(cuMemRelease(a->handle));
	APP_MUST(cuMemAddressFree(a->ptr, BYTES));
}

/* Leaves memory that gpupool may serve later calls from. */
static void leave_one(void)
{
	struct array a;

	make(&a);
	destroy(&a);
}

/* Writes and reads the memory. */
static void use(CUdeviceptr ptr, uint32_t value)
{
	app_fill(NULL, ptr, WORDS, value);
	app_fill(NULL, ptr + BYTES - WORDS, WORDS, value + 1);
	app_say("wrong words", "%zu", app_count_wrong(NULL, ptr, WORDS, value));
	app_say("wrong words at the end", "%zu", app_count_wrong(NULL, ptr + BYTES - WORDS, WORDS, value + 1));
}

/* The order of XLA, which asks for another handle and the size before it unmaps. */
static void array_of_xla(uint32_t value)
{
	CUmemGenericAllocationHandle again = 0;
	struct array a = {0};
	size_t bytes = 0;

	app_result("create", cuMemCreate(&a.handle, BYTES, &on_device, 0));
	app_result("reserve", cuMemAddressReserve(&a.ptr, BYTES, PART, 0, 0));
	app_result("map", cuMemMap(a.ptr, BYTES, 0, a.handle, 0));
	app_result("access", cuMemSetAccess(a.ptr, BYTES, &whole_access, 1));
	use(a.ptr, value);
	app_result("synchronize", cuCtxSynchronize());
	app_result("retain", cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)a.ptr));
	app_say("same handle", "%d", again == a.handle);
	app_result("release the other", cuMemRelease(again));
	app_result("range", cuMemGetAddressRange_v2(NULL, &bytes, a.ptr));
	app_say("bytes", "%zu", bytes);
	app_result("unmap", cuMemUnmap(a.ptr, bytes));
	app_result("release", cuMemRelease(a.handle));
	app_result("free the addresses", cuMemAddressFree(a.ptr, BYTES));
}

/* Addresses first, and the handle released as soon as it is mapped. */
static void array_released_early(uint32_t value)
{
	struct array a = {0};

	app_result("reserve", cuMemAddressReserve(&a.ptr, BYTES, 0, 0, 0));
	app_result("create", cuMemCreate(&a.handle, BYTES, &on_device, 0));
	app_result("map", cuMemMap(a.ptr, BYTES, 0, a.handle, 0));
	app_result("release", cuMemRelease(a.handle));
	app_result("access", cuMemSetAccess(a.ptr, BYTES, &whole_access, 1));
	use(a.ptr, value);
	app_result("synchronize", cuCtxSynchronize());
	app_result("unmap", cuMemUnmap(a.ptr, BYTES));
	app_result("free the addresses", cuMemAddressFree(a.ptr, BYTES));
}

/* The addresses are freed before the memory. */
static void array_released_late(uint32_t value)
{
	struct array a = {0};

	make(&a);
	use(a.ptr, value);
	app_result("synchronize", cuCtxSynchronize());
	app_result("unmap", cuMemUnmap(a.ptr, BYTES));
	app_result("free the addresses", cuMemAddressFree(a.ptr, BYTES));
	app_result("release", cuMemRelease(a.handle));
}

static void orders(void)
{
	static void (*const kinds[])(uint32_t) = {array_of_xla, array_released_early, array_released_late};

	app_start();
	for (unsigned round = 0; round < 2 * ROUNDS; round++)
		for (unsigned i = 0; i < LENGTH(kinds); i++)
			kinds[i](100 * round + 10 * i);
}

/* The driver may take a little more, for tables of addresses. */
static void report_free(const char *when, size_t before, size_t bytes)
{
	size_t now, total;

	APP_MUST(cuMemGetInfo_v2(&now, &total));
	printf("memory is free but for %zu MiB %s: %d\n", bytes / MIB, when,
		now + bytes <= before + 8 * MIB && now + bytes + 8 * MIB >= before);
}

static void memory_info(void)
{
	size_t before, total;
	struct array a[8];

	app_start();
	leave_one();
	APP_MUST(cuMemGetInfo_v2(&before, &total));
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < LENGTH(a); i++)
			make(&a[i]);
		report_free("with arrays", before, LENGTH(a) * BYTES);
		for (unsigned i = 0; i < LENGTH(a); i++)
			destroy(&a[i]);
		report_free("afterwards", before, 0);
	}
}

/* Prints what the driver tells about an address. */
static void ask(const char *when, CUdeviceptr ptr, CUdeviceptr start)
{
	static const int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MAPPED};
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	unsigned long long flags = 77;
	CUdeviceptr base = 0;
	size_t bytes = 0;
	CUresult r;

	for (unsigned i = 0; i < LENGTH(attributes); i++) {
		uint64_t value[2] = {0};

		r = cuPointerGetAttribute(value, attributes[i], ptr);
		printf("%s, attribute %d: %d %llu\n", when, attributes[i], r, (unsigned long long)value[0]);
	}
	r = cuMemGetAddressRange_v2(&base, &bytes, ptr);
	printf("%s, range: %d %d %zu\n", when, r, base == start, bytes);
	r = cuMemGetAccess(&flags, &location, ptr);
	printf("%s, access: %d %llu\n", when, r, flags);
}

/* Asks at each stage; `which` selects one stage, since a question may end the reuse of the memory. */
static void ask_at(unsigned which)
{
	struct array a;

	APP_MUST(cuMemAddressReserve(&a.ptr, BYTES, 0, 0, 0));
	if (which == 0)
		ask("reserved", a.ptr + MIB, a.ptr);
	APP_MUST(cuMemCreate(&a.handle, BYTES, &on_device, 0));
	APP_MUST(cuMemMap(a.ptr, BYTES, 0, a.handle, 0));
	if (which == 1)
		ask("mapped", a.ptr + MIB, a.ptr);
	APP_MUST(cuMemSetAccess(a.ptr, BYTES, &whole_access, 1));
	if (which == 2)
		ask("accessible", a.ptr + MIB, a.ptr);
	use(a.ptr, which);
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuMemUnmap(a.ptr, BYTES));
	if (which == 3)
		ask("unmapped", a.ptr + MIB, a.ptr);
	APP_MUST(cuMemRelease(a.handle));
	if (which == 4)
		ask("released", a.ptr + MIB, a.ptr);
	APP_MUST(cuMemAddressFree(a.ptr, BYTES));
	if (which == 5)
		ask("freed", a.ptr + MIB, a.ptr);
}

static void queries(void)
{
	app_start();
	for (unsigned which = 0; which < 6; which++) {
		for (unsigned round = 0; round < ROUNDS; round++)
			ask_at(which);
	}
}

static void buffer_ids(void)
{
	unsigned long long ids[ROUNDS] = {0};
	bool is_any_same = false;
	struct array a;

	app_start();
	for (unsigned round = 0; round < ROUNDS; round++) {
		make(&a);
		APP_MUST(cuPointerGetAttribute(&ids[round], CU_POINTER_ATTRIBUTE_BUFFER_ID, a.ptr));
		for (unsigned i = 0; i < round; i++)
			is_any_same |= ids[i] == ids[round];
		destroy(&a);
	}
	app_say("any buffer id twice", "%d", is_any_same);
}

/* The program makes calls after which gpupool does not keep the memory. */
static void buffer_id_of_live_memory(void)
{
	unsigned long long before, after, none = 0;
	unsigned on = 1;
	struct array a;

	app_start();
	for (unsigned round = 0; round < ROUNDS; round++) {
		make(&a);
		APP_MUST(cuPointerGetAttribute(&before, CU_POINTER_ATTRIBUTE_BUFFER_ID, a.ptr));
		app_say("id of the memory before", "%d", before == none);
		app_result("set", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a.ptr) != 0);
		APP_MUST(cuPointerGetAttribute(&after, CU_POINTER_ATTRIBUTE_BUFFER_ID, a.ptr + 512));
		app_say("same id", "%d", before == after);
		none = after;
		destroy(&a);
	}
}

/* Each function gets an array, makes calls that fail or that are unusual, and destroys it. */

static void twice(struct array *a)
{
	app_result("unmap", cuMemUnmap(a->ptr, BYTES));
	app_result("unmap again", cuMemUnmap(a->ptr, BYTES));
	app_result("release", cuMemRelease(a->handle));
	app_result("release again", cuMemRelease(a->handle));
	app_result("free the addresses", cuMemAddressFree(a->ptr, BYTES));
	app_result("free the addresses again", cuMemAddressFree(a->ptr, BYTES));
}

static void released_before_unmap(struct array *a)
{
	CUmemAllocationProp properties;

	app_result("release", cuMemRelease(a->handle));
	use(a->ptr, 3);
	app_result("properties of a released handle", cuMemGetAllocationPropertiesFromHandle(&properties, a->handle));
	app_result("release again", cuMemRelease(a->handle));
	use(a->ptr, 4);
	app_result("synchronize", cuCtxSynchronize());
	app_result("unmap", cuMemUnmap(a->ptr, BYTES));
	app_result("free the addresses", cuMemAddressFree(a->ptr, BYTES));
}

static void freed_while_mapped(struct array *a)
{
	app_result("free the addresses while mapped", cuMemAddressFree(a->ptr, BYTES));
	use(a->ptr, 5);
	destroy(a);
}

static void released_handle_is_mapped(struct array *a)
{
	app_result("unmap", cuMemUnmap(a->ptr, BYTES));
	app_result("release", cuMemRelease(a->handle));
	app_result("map a released handle", cuMemMap(a->ptr, BYTES, 0, a->handle, 0) != CUDA_SUCCESS);
	app_result("free the addresses", cuMemAddressFree(a->ptr, BYTES));
}

static void bad_sizes(struct array *a)
{
	app_result("unmap a part", cuMemUnmap(a->ptr, PART));
	app_result("unmap the second part", cuMemUnmap(a->ptr + PART, PART));
	app_result("unmap nothing", cuMemUnmap(a->ptr, 0));
	app_result("unmap an odd size", cuMemUnmap(a->ptr, BYTES - 1));
	app_result("free a part of the addresses", cuMemAddressFree(a->ptr, PART));
	use(a->ptr, 6);
	app_result("synchronize", cuCtxSynchronize());
	app_result("unmap", cuMemUnmap(a->ptr, BYTES));
	app_result("free a part of the addresses", cuMemAddressFree(a->ptr, PART));
	app_result("free the addresses", cuMemAddressFree(a->ptr, BYTES));
	app_result("release", cuMemRelease(a->handle));
}

static void bad_access(struct array *a)
{
	CUmemAccessDesc bad_device = whole_access;

	bad_device.location.id = 60;
	app_result("access without a list", cuMemSetAccess(a->ptr, BYTES, NULL, 1));
	app_result("access with an empty list", cuMemSetAccess(a->ptr, BYTES, &whole_access, 0));
	app_result("access of no device", cuMemSetAccess(a->ptr, BYTES, &bad_device, 1));
	bad_device.flags = 0;
	app_result("no access of no device", cuMemSetAccess(a->ptr, BYTES, &bad_device, 1));
	app_result("access beyond the end", cuMemSetAccess(a->ptr, 2 * BYTES, &whole_access, 1));
	use(a->ptr, 7);
	destroy(a);
}

static void access_of_unmapped(struct array *a)
{
	app_result("synchronize", cuCtxSynchronize());
	app_result("unmap", cuMemUnmap(a->ptr, BYTES));
	app_result("access of unmapped memory", cuMemSetAccess(a->ptr, BYTES, &whole_access, 1));
	app_result("release", cuMemRelease(a->handle));
	app_result("access of released memory", cuMemSetAccess(a->ptr, BYTES, &whole_access, 1));
	app_result("free the addresses", cuMemAddressFree(a->ptr, BYTES));
	app_result("access of freed addresses", cuMemSetAccess(a->ptr, BYTES, &whole_access, 1));
}

static void access_revoked(struct array *a)
{
	CUmemLocation location = whole_access.location;
	CUmemAccessDesc none = {.location = location};
	unsigned long long flags = 77;

	app_result("revoke", cuMemSetAccess(a->ptr, BYTES, &none, 1));
	app_result("access", cuMemGetAccess(&flags, &location, a->ptr));
	app_say("flags", "%llu", flags);
	app_result("allow", cuMemSetAccess(a->ptr, BYTES, &whole_access, 1));
	app_result("access", cuMemGetAccess(&flags, &location, a->ptr));
	app_say("flags", "%llu", flags);
	use(a->ptr, 8);
	destroy(a);
}

static void mapped_elsewhere(struct array *a)
{
	CUdeviceptr other;

	app_fill(NULL, a->ptr, WORDS, 9);
	app_result("synchronize", cuCtxSynchronize());
	app_result("unmap", cuMemUnmap(a->ptr, BYTES));
	app_result("reserve", cuMemAddressReserve(&other, 2 * BYTES, 0, 0, 0));
	app_result("map in the middle", cuMemMap(other + PART, BYTES, 0, a->handle, 0));
	app_result("access", cuMemSetAccess(other + PART, BYTES, &whole_access, 1));
	app_say("words that did not move", "%zu", app_count_wrong(NULL, other + PART, WORDS, 9));
	app_result("synchronize", cuCtxSynchronize());
	app_result("unmap", cuMemUnmap(other + PART, BYTES));
	app_result("map at the first addresses again", cuMemMap(a->ptr, BYTES, 0, a->handle, 0));
	app_result("access", cuMemSetAccess(a->ptr, BYTES, &whole_access, 1));
	app_say("words that did not move", "%zu", app_count_wrong(NULL, a->ptr, WORDS, 9));
	app_result("free the other addresses", cuMemAddressFree(other, 2 * BYTES));
	destroy(a);
}

/* The memory keeps its contents while the program holds a handle, whatever it is mapped to. */
static void kept_by_handle(struct array *a)
{
	struct array b;

	app_fill(NULL, a->ptr, WORDS, 10);
	app_result("synchronize", cuCtxSynchronize());
	app_result("unmap", cuMemUnmap(a->ptr, BYTES));
	app_result("free the addresses", cuMemAddressFree(a->ptr, BYTES));
	make(&b);
	use(b.ptr, 11);
	app_result("reserve", cuMemAddressReserve(&a->ptr, BYTES, 0, 0, 0));
	app_result("map", cuMemMap(a->ptr, BYTES, 0, a->handle, 0));
	app_result("access", cuMemSetAccess(a->ptr, BYTES, &whole_access, 1));
	app_say("words that did not stay", "%zu", app_count_wrong(NULL, a->ptr, WORDS, 10));
	destroy(&b);
	destroy(a);
}

static void aliased(struct array *a)
{
	CUdeviceptr other;

	app_result("reserve", cuMemAddressReserve(&other, BYTES, 0, 0, 0));
	app_result("map again", cuMemMap(other, BYTES, 0, a->handle, 0));
	app_result("access", cuMemSetAccess(other, BYTES, &whole_access, 1));
	app_fill(NULL, a->ptr, WORDS, 12);
	app_result("synchronize", cuCtxSynchronize());
	app_result("map at taken addresses", cuMemMap(other, BYTES, 0, a->handle, 0) != CUDA_SUCCESS);
	app_result("unmap the first", cuMemUnmap(a->ptr, BYTES));
	leave_one();
	app_say("words not seen in the second", "%zu", app_count_wrong(NULL, other, WORDS, 12));
	app_result("release", cuMemRelease(a->handle));
	leave_one();
	app_say("words not seen in the second", "%zu", app_count_wrong(NULL, other, WORDS, 12));
	app_result("synchronize", cuCtxSynchronize());
	app_result("unmap the second", cuMemUnmap(other, BYTES));
	app_result("free", cuMemAddressFree(a->ptr, BYTES));
	app_result("free the other", cuMemAddressFree(other, BYTES));
}

static void retained(struct array *a)
{
	CUmemGenericAllocationHandle again = 0, third = 0;

	app_result("retain", cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(a->ptr + PART + 5)));
	app_result("release", cuMemRelease(a->handle));
	app_fill(NULL, a->ptr, WORDS, 13);
	app_result("synchronize", cuCtxSynchronize());
	app_result("unmap", cuMemUnmap(a->ptr, BYTES));
	app_result("retain unmapped memory", cuMemRetainAllocationHandle(&third, (void *)(uintptr_t)a->ptr));
	leave_one();
	app_result("map the retained handle", cuMemMap(a->ptr, BYTES, 0, again, 0));
	app_result("access", cuMemSetAccess(a->ptr, BYTES, &whole_access, 1));
	app_say("words that did not stay", "%zu", app_count_wrong(NULL, a->ptr, WORDS, 13));
	app_result("retain twice", cuMemRetainAllocationHandle(&third, (void *)(uintptr_t)a->ptr));
	app_result("synchronize", cuCtxSynchronize());
	app_result("unmap", cuMemUnmap(a->ptr, BYTES));
	app_result("release", cuMemRelease(again));
	app_result("release the third", cuMemRelease(third));
	app_result("release once more", cuMemRelease(third));
	app_result("free the addresses", cuMemAddressFree(a->ptr, BYTES));
}

/* Two halves of the addresses, each with its own memory. */
static void mapped_in_parts(struct array *a)
{
	CUmemGenericAllocationHandle halves[2];

	destroy(a);
	app_result("reserve", cuMemAddressReserve(&a->ptr, BYTES, 0, 0, 0));
	for (unsigned i = 0; i < 2; i++) {
		app_result("create", cuMemCreate(&halves[i], PART, &on_device, 0));
		app_result("map", cuMemMap(a->ptr + i * PART, PART, 0, halves[i], 0));
	}
	app_result("access", cuMemSetAccess(a->ptr, BYTES, &whole_access, 1));
	use(a->ptr, 14);
	app_result("synchronize", cuCtxSynchronize());
	app_result("unmap the second", cuMemUnmap(a->ptr + PART, PART));
	app_result("map the second again", cuMemMap(a->ptr + PART, PART, 0, halves[1], 0));
	app_result("unmap both", cuMemUnmap(a->ptr, BYTES));
	for (unsigned i = 0; i < 2; i++)
		app_result("release", cuMemRelease(halves[i]));
	app_result("free the addresses", cuMemAddressFree(a->ptr, BYTES));
}

/* Two arrays at addresses that need not be adjacent: one call cannot unmap both unless they are. */
static void several(struct array *a)
{
	struct array b;

	make(&b);
	use(b.ptr, 15);
	use(a->ptr, 16);
	app_result("synchronize", cuCtxSynchronize());
	app_result("map the one's memory at the other's addresses",
		cuMemMap(b.ptr, BYTES, 0, a->handle, 0) != CUDA_SUCCESS);
	app_result("unmap", cuMemUnmap(a->ptr, BYTES));
	app_result("unmap the other", cuMemUnmap(b.ptr, BYTES));
	app_result("map crosswise", cuMemMap(b.ptr, BYTES, 0, a->handle, 0));
	app_result("map crosswise", cuMemMap(a->ptr, BYTES, 0, b.handle, 0));
	app_result("access", cuMemSetAccess(a->ptr, BYTES, &whole_access, 1));
	app_result("access", cuMemSetAccess(b.ptr, BYTES, &whole_access, 1));
	app_say("words of the one", "%zu", app_count_wrong(NULL, a->ptr, WORDS, 15));
	app_say("words of the other", "%zu", app_count_wrong(NULL, b.ptr, WORDS, 16));
	destroy(&b);
	destroy(a);
}

/* The driver may or may not give the addresses that the program asks for. */
static void fixed_addresses(struct array *a)
{
	CUdeviceptr again = 0;

	destroy(a);
	app_result("reserve at freed addresses", cuMemAddressReserve(&again, BYTES, 0, a->ptr, 0));
	app_result("free them", cuMemAddressFree(again, BYTES));
}

static void exported(struct array *a)
{
	CUmemAllocationProp properties = on_device, answer;
	struct array b;
	int fd = -1;

	properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	app_result("create", cuMemCreate(&b.handle, BYTES, &properties, 0));
	app_result("reserve", cuMemAddressReserve(&b.ptr, BYTES, 0, 0, 0));
	app_result("map", cuMemMap(b.ptr, BYTES, 0, b.handle, 0));
	app_result("access", cuMemSetAccess(b.ptr, BYTES, &whole_access, 1));
	app_result("properties", cuMemGetAllocationPropertiesFromHandle(&answer, b.handle));
	app_say("handle types", "%d", answer.requestedHandleTypes);
	app_result("export", cuMemExportToShareableHandle(&fd, b.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	use(b.ptr, 17);
	destroy(&b);
	app_result("export of a released handle", cuMemExportToShareableHandle(&fd, b.handle,
							  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS);
	if (fd >= 0)
		close(fd);
	destroy(a);
}

static void bad_calls(struct array *a)
{
	CUmemAllocationProp properties = on_device;
	CUmemGenericAllocationHandle handle = 0;
	CUdeviceptr ptr = 0;

	destroy(a);
	app_result("reserve nothing", cuMemAddressReserve(&ptr, 0, 0, 0, 0));
	app_result("reserve an odd size", cuMemAddressReserve(&ptr, BYTES + 1, 0, 0, 0) != CUDA_SUCCESS);
	app_result("reserve with flags", cuMemAddressReserve(&ptr, BYTES, 0, 0, 77));
	app_result("reserve with an alignment that is not a power of two",
		cuMemAddressReserve(&ptr, BYTES, a->ptr, 0, 0) != CUDA_SUCCESS);
	app_result("create nothing", cuMemCreate(&handle, 0, &on_device, 0));
	app_result("create an odd size", cuMemCreate(&handle, BYTES + 1, &on_device, 0));
	app_result("create without properties", cuMemCreate(&handle, BYTES, NULL, 0));
	app_result("create with flags", cuMemCreate(&handle, BYTES, &on_device, 77));
	properties.type = 0;
	app_result("create without a type", cuMemCreate(&handle, BYTES, &properties, 0));
	properties = on_device;
	properties.location.id = 60;
	app_result("create on no device", cuMemCreate(&handle, BYTES, &properties, 0) != CUDA_SUCCESS);
	APP_MUST(cuMemCreate(&handle, BYTES, &on_device, 0));
	APP_MUST(cuMemAddressReserve(&ptr, BYTES, 0, 0, 0));
	app_result("map with flags", cuMemMap(ptr, BYTES, 0, handle, 77));
	app_result("map more than there is", cuMemMap(ptr, 2 * BYTES, 0, handle, 0));
	app_result("map", cuMemMap(ptr, BYTES, 0, handle, 0));
	app_result("map again", cuMemMap(ptr, BYTES, 0, handle, 0) != CUDA_SUCCESS);
	app_result("access", cuMemSetAccess(ptr, BYTES, &whole_access, 1));
	use(ptr, 18);
	destroy(&(struct array){ptr, handle});
}

struct unusual {
	const char *name;
	void (*run)(struct array *a);
};

static const struct unusual usual_handles[] = {
	{"freed while mapped", freed_while_mapped},
	{"bad sizes", bad_sizes},
	{"bad access", bad_access},
	{"access of unmapped memory", access_of_unmapped},
	{"access revoked", access_revoked},
	{"mapped elsewhere", mapped_elsewhere},
	{"kept by a handle", kept_by_handle},
	{"aliased", aliased},
	{"mapped in parts", mapped_in_parts},
	{"several", several},
	{"fixed addresses", fixed_addresses},
	{"bad calls", bad_calls},
};

/* These use handles that the program has released. */
static const struct unusual released_handles[] = {
	{"twice", twice},
	{"released before unmap", released_before_unmap},
	{"released handle is mapped", released_handle_is_mapped},
	{"retained", retained},
	{"exported", exported},
};

static void run_all(const struct unusual *all, unsigned n)
{
	app_start();
	for (unsigned i = 0; i < n; i++) {
		for (unsigned round = 0; round < ROUNDS; round++) {
			struct array a;

			app_say("case", "%s", all[i].name);
			make(&a);
			use(a.ptr, i);
			APP_MUST(cuCtxSynchronize());
			all[i].run(&a);
			leave_one();
		}
	}
	app_result("end", cuCtxSynchronize());
}

static void unusual(void)
{
	run_all(usual_handles, LENGTH(usual_handles));
}

static void stale_handles(void)
{
	run_all(released_handles, LENGTH(released_handles));
}

/* Nothing of the virtual-memory functions needs a current context. */
static void no_context(void)
{
	struct array a;

	app_start();
	leave_one();
	APP_MUST(cuCtxSetCurrent(NULL));
	for (unsigned round = 0; round < ROUNDS; round++) {
		app_result("create", cuMemCreate(&a.handle, BYTES, &on_device, 0));
		app_result("reserve", cuMemAddressReserve(&a.ptr, BYTES, 0, 0, 0));
		app_result("map", cuMemMap(a.ptr, BYTES, 0, a.handle, 0));
		app_result("access", cuMemSetAccess(a.ptr, BYTES, &whole_access, 1));
		app_result("unmap", cuMemUnmap(a.ptr, BYTES));
		app_result("release", cuMemRelease(a.handle));
		app_result("free the addresses", cuMemAddressFree(a.ptr, BYTES));
	}
}

/* Memory outlives the context in which it was used. */
static void contexts(void)
{
	struct array a, b;
	CUcontext ctx;

	app_start();
	for (unsigned round = 0; round < ROUNDS; round++) {
		APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
		make(&a);
		make(&b);
		APP_MUST(cuCtxSetCurrent(app_ctx));
		use(a.ptr, round);
		destroy(&b);
		app_result("destroy the context", cuCtxDestroy_v2(ctx));
		use(a.ptr, round + 10);
		destroy(&a);
		make(&b);
		use(b.ptr, round + 20);
		destroy(&b);
	}
	app_result("end", cuCtxSynchronize());
}

/* Some memory is mapped at a reset of the device, and some is unused by then. */
static void reset(void)
{
	struct array a, b;

	app_start();
	for (unsigned round = 0; round < ROUNDS; round++) {
		make(&a);
		use(a.ptr, round);
		leave_one();
		app_result("reset", cuDevicePrimaryCtxReset_v2(0));
		app_result("unmap", cuMemUnmap(a.ptr, BYTES));
		app_result("release", cuMemRelease(a.handle));
		app_result("free the addresses", cuMemAddressFree(a.ptr, BYTES));
		app_start();
		make(&a);
		make(&b);
		use(a.ptr, round + 10);
		use(b.ptr, round + 20);
		destroy(&a);
		destroy(&b);
	}
	app_result("end", cuCtxSynchronize());
}

/* The driver refuses to copy from addresses where nothing is mapped. */
static void after_unmap(void)
{
	struct array a;
	uint32_t word;

	app_start();
	make(&a);
	use(a.ptr, 1);
	app_result("copy of mapped memory", cuMemcpyDtoH_v2(&word, a.ptr, sizeof(word)));
	destroy(&a);
	app_result("copy of unmapped memory", cuMemcpyDtoH_v2(&word, a.ptr, sizeof(word)));
}

static void *run_thread(void *arg)
{
	struct array a;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned round = 0; round < 20; round++) {
		uint32_t value = (uint32_t)(uintptr_t)arg * 100 + round;

		make(&a);
		app_fill(NULL, a.ptr, WORDS, value);
		if (app_count_wrong(NULL, a.ptr, WORDS, value))
			return arg;
		destroy(&a);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t all[4];
	void *wrong;

	app_start();
	for (uintptr_t i = 0; i < LENGTH(all); i++)
		pthread_create(&all[i], NULL, run_thread, (void *)(i + 1));
	for (unsigned i = 0; i < LENGTH(all); i++) {
		pthread_join(all[i], &wrong);
		app_say("wrong", "%d", wrong != NULL);
	}
}

const struct app_scenario app_scenarios[] = {
	{"orders", orders, APP_TOGETHER},
	{"memory-info", memory_info},
	{"queries", queries, APP_TOGETHER},
	{"buffer-ids", buffer_ids, APP_TOGETHER},
	{"buffer-id-of-live-memory", buffer_id_of_live_memory, APP_TOGETHER},
	{"unusual", unusual, APP_TOGETHER},
	{"stale-handles", stale_handles},
	{"after-unmap", after_unmap},
	{"no-context", no_context},
	{"contexts", contexts},
	{"reset", reset},
	{"threads", threads},
	{0},
};
