/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Asks the driver about memory that processes share, and prints its answers. */

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ipc_peer.h"
#include "tests/apps/kernels.h"

enum { ATTRIBUTES_END = 21 }; /* values of CUpointer_attribute */

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 * MS + (uint64_t)ts.tv_nsec;
}

/* Makes the exporter allocate a block and fill it with a word; returns the handle of the block. */
static CUipcMemHandle exported(int slot, size_t bytes, unsigned word)
{
	struct reply reply;

	CHECK(ask(ALLOC, slot, bytes).result);
	CHECK(ask(FILL, slot, word).result);
	reply = ask(HANDLE, slot, 0);
	CHECK(reply.result);
	return reply.handle;
}

static CUresult open_handle(CUdeviceptr *ptr, CUipcMemHandle handle)
{
	*ptr = 0;
	return cuIpcOpenMemHandle_v2(ptr, handle, LAZY);
}

/* Returns -1 if the word cannot be read. */
static int word_at(CUdeviceptr ptr)
{
	uint32_t word = 0;

	return cuMemcpyDtoH_v2(&word, ptr, sizeof(word)) ? -1 : (int)word;
}

/* Opens a handle and prints the result, and whether its address equals before. */
static CUdeviceptr print_opened(const char *question, CUipcMemHandle handle, CUdeviceptr before)
{
	CUdeviceptr ptr;
	CUresult r = open_handle(&ptr, handle);

	print_answer(question, "%d same=%d word=%d", r, ptr == before, r ? -1 : word_at(ptr));
	return ptr;
}

static void print_closed(const char *question, CUdeviceptr ptr)
{
	CUresult r = cuIpcCloseMemHandle(ptr);

	print_answer(question, "%d readable=%d", r, word_at(ptr) != -1);
}

static void own(void)
{
	CUdeviceptr ptr;
	CUipcMemHandle handle = exported(0, 4 * MIB, 1);

	print_answer("self_open", "%d", ask(SELF_OPEN, 0, LAZY).result);
	print_answer("self_open.flags0", "%d", ask(SELF_OPEN, 0, 0).result);
	CHECK(open_handle(&ptr, handle));
	print_answer("self_open.while_another_has_it", "%d", ask(SELF_OPEN, 0, LAZY).result);
	CHECK(cuMemAlloc_v2(&ptr, 4 * MIB));
	print_answer("close.own_block", "%d", cuIpcCloseMemHandle(ptr));
	print_answer("close.host_address", "%d", cuIpcCloseMemHandle((CUdeviceptr)(uintptr_t)&ptr));
	print_answer("close.null", "%d", cuIpcCloseMemHandle(0));
	CHECK(ask(FREE, 0, 0).result);
	print_answer("handle.of_freed", "%d", ask(HANDLE, 0, 0).result);
	CHECK(ask(ALLOC_ASYNC, 1, MIB).result);
	print_answer("handle.of_async", "%d", ask(HANDLE, 1, 0).result);
	CHECK(ask(ALLOC_MANAGED, 2, MIB).result);
	print_answer("handle.of_managed", "%d", ask(HANDLE, 2, 0).result);
}

static void references(void)
{
	CUipcMemHandle handle = exported(0, 4 * MIB, 11);
	CUdeviceptr ptr = print_opened("open", handle, 0), again = 0;
	CUresult r;

	print_opened("open.again", handle, ptr);
	r = cuIpcOpenMemHandle(&again, handle, LAZY);
	print_answer("open.again_v1", "%d same=%d", r, again == ptr);
	CHECK(cuMemsetD32_v2(ptr, 12, 64));
	CHECK(cuCtxSynchronize());
	print_answer("write.seen_by_exporter", "%" PRIu64, ask(WORD, 0, 0).value);
	print_answer("close.interior", "%d", cuIpcCloseMemHandle(ptr + 4096));
	print_closed("close.first", ptr);
	print_closed("close.second", ptr);
	print_closed("close.third", ptr);
	print_closed("close.fourth", ptr);
	print_opened("reopen", handle, ptr);
}

static void old_function(void)
{
	CUipcMemHandle handle = exported(0, 4 * MIB, 11);
	CUdeviceptr ptr = 0, again = 0;
	CUresult r = cuIpcOpenMemHandle(&ptr, handle, LAZY);

	print_answer("v1.open", "%d word=%d", r, word_at(ptr));
	r = cuIpcOpenMemHandle(&again, handle, LAZY);
	print_answer("v1.again", "%d same=%d", r, again == ptr);
	print_answer("v1.flags0", "%d", cuIpcOpenMemHandle(&again, handle, 0));
}

static void wrong_handles(void)
{
	CUipcMemHandle handle = exported(0, 4 * MIB, 1), other;
	unsigned codes[4] = {0}, invalid_value = 0;
	CUdeviceptr ptr = 0;

	for (unsigned flags = 0; flags < 4; flags++) {
		char question[32];

		snprintf(question, sizeof(question), "flags.%u", flags);
		print_answer(question, "%d", cuIpcOpenMemHandle_v2(&ptr, handle, flags));
		cuIpcCloseMemHandle(ptr);
	}
	memset(&other, 0, sizeof(other));
	print_answer("garbage.zeros", "%d", open_handle(&ptr, other));
	memset(&other, 0xff, sizeof(other));
	print_answer("garbage.ones", "%d", open_handle(&ptr, other));
	for (size_t i = 0; i < sizeof(other); i++)
		other.reserved[i] = (char)(i * 37 + 11);
	print_answer("garbage.pattern", "%d", open_handle(&ptr, other));
	printf("ipc.garbage.one_bit_per_byte:");
	for (size_t i = 0; i < sizeof(handle); i++) {
		CUresult r;

		other = handle;
		other.reserved[i] ^= 1;
		r = open_handle(&ptr, other);
		printf(" %d", r);
		codes[r == CUDA_SUCCESS]++;
		invalid_value += r == CUDA_ERROR_INVALID_VALUE;
		if (r == CUDA_SUCCESS)
			cuIpcCloseMemHandle(ptr);
	}
	printf("\n");
	print_answer("garbage.summary", "refused=%u opened=%u invalid_value=%u", codes[0], codes[1], invalid_value);
	print_answer("garbage.good_one_still_opens", "%d", open_handle(&ptr, handle));
}

static void contexts(void)
{
	CUipcMemHandle handle = exported(0, 4 * MIB, 21);
	CUdeviceptr ptr = print_opened("context.open", handle, 0), again;
	CUcontext other;

	CHECK(cuCtxCreate_v2(&other, 0, 0));
	again = print_opened("context.other.open", handle, ptr);
	if (again)
		print_closed("context.other.close_own", again);
	print_answer("context.other.read", "%d", word_at(ptr));
	print_closed("context.other.close", ptr);
	CHECK(cuCtxSetCurrent(primary));
	print_answer("context.after_other_close.read", "%d", word_at(ptr));
	print_closed("context.after_other_close.close", ptr);
	CHECK(cuCtxSetCurrent(other));
	again = print_opened("context.other.open_after_close", handle, ptr);
	CHECK(cuCtxDestroy_v2(other));
	CHECK(cuCtxSetCurrent(primary));
	print_answer("context.destroyed.close", "%d", cuIpcCloseMemHandle(again));
	ptr = print_opened("context.destroyed.open_elsewhere", handle, again);
	CHECK(cuCtxSetCurrent(NULL));
	print_answer("context.none.open", "%d", open_handle(&again, handle));
	print_answer("context.none.close", "%d", cuIpcCloseMemHandle(ptr));
}

static void attributes_of(const char *name, CUdeviceptr ptr, CUdeviceptr base)
{
	char question[64];
	CUdeviceptr start = 0;
	size_t size = 0;
	CUresult r = cuMemGetAddressRange_v2(&start, &size, ptr);

	snprintf(question, sizeof(question), "opened.%s.range", name);
	print_answer(question, "%d before=%" PRIu64 " size=%zu", r, base - start, size);
	for (int attribute = 1; attribute < ATTRIBUTES_END; attribute++) {
		uint64_t value[2] = {0};

		snprintf(question, sizeof(question), "opened.%s.attribute.%d", name, attribute);
		r = cuPointerGetAttribute(value, attribute, ptr);
		if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
			print_answer(question, "%d current=%d", r, value[0] == (uint64_t)(uintptr_t)primary);
		else if (value[0] >= (uint64_t)base - 2 * MIB && value[0] <= base)
			print_answer(question, "%d base-%" PRIu64, r, base - value[0]);
		else
			print_answer(question, "%d %" PRIu64, r, value[0]);
	}
}

static void opened_pointers(void)
{
	CUipcMemHandle handle = exported(0, 9 * MIB + 4096, 31), small;
	CUdeviceptr ptr;

	CHECK(open_handle(&ptr, handle));
	attributes_of("large", ptr, ptr);
	attributes_of("interior", ptr + 4096, ptr);
	print_answer("opened.buffer_id_of_exporter", "%" PRIu64, ask(BUFFER_ID, 0, 0).value);
	print_answer("opened.pass_on", "%d", cuIpcGetMemHandle(&handle, ptr));
	print_answer("opened.free", "%d", cuMemFree_v2(ptr));
	print_answer("opened.free_async", "%d", cuMemFreeAsync(ptr, NULL));
	print_answer("opened.survives", "%d", word_at(ptr) == 31);
	CHECK(ask(ALLOC, 1, 512).result);
	small = exported(2, 512, 32);
	CHECK(open_handle(&ptr, small));
	attributes_of("small", ptr, ptr);
	print_answer("opened.small.word", "%d", word_at(ptr));
}

/* Asks about memory that the exporter frees while the importer has it open. */
static void freed_while_open(void)
{
	CUipcMemHandle handle = exported(0, 1024 * MIB, 41);
	size_t before = 0, after = 0, closed = 0;
	CUdeviceptr ptr, late;
	struct reply reply;

	CHECK(open_handle(&ptr, handle));
	cuMemGetInfo_v2(&before, NULL);
	print_answer("freed.free", "%d", ask(FREE, 0, 0).result);
	cuMemGetInfo_v2(&after, NULL);
	print_answer("freed.given_back_while_open", "%d", after > before + 512 * MIB);
	print_answer("freed.readable", "%d", word_at(ptr));
	print_answer("freed.open", "%d", open_handle(&late, handle));
	CHECK(ask(ALLOC, 0, 1024 * MIB).result);
	CHECK(ask(FILL, 0, 42).result);
	print_answer("freed.word_after_reuse", "%d", word_at(ptr));
	reply = ask(HANDLE, 0, 0);
	print_answer("freed.new_handle_differs", "%d", memcmp(&reply.handle, &handle, sizeof(handle)) != 0);
	print_answer("freed.open_after_reuse", "%d", open_handle(&late, handle));
	print_answer("freed.close", "%d", cuIpcCloseMemHandle(ptr));
	CHECK(ask(FREE, 0, 0).result);
	cuMemGetInfo_v2(&closed, NULL);
	print_answer("freed.given_back_after_close", "%d", closed > before + 512 * MIB);
	print_answer("freed.open_after_close", "%d", open_handle(&late, handle));
}

static void small_freed_while_open(void)
{
	CUipcMemHandle handle;
	CUdeviceptr ptr, late;

	CHECK(ask(ALLOC, 1, 512).result);
	handle = exported(0, 512, 51);
	CHECK(open_handle(&ptr, handle));
	CHECK(ask(FREE, 0, 0).result);
	print_answer("freed_small.readable", "%d", word_at(ptr));
	print_answer("freed_small.open", "%d", open_handle(&late, handle));
	for (int slot = 2; slot < SLOTS; slot++) {
		CHECK(ask(ALLOC, slot, 512).result);
		CHECK(ask(FILL, slot, 52).result);
	}
	print_answer("freed_small.word_after_reuse", "%d", word_at(ptr));
}

static void exporter_gone(void)
{
	CUipcMemHandle handle = exported(0, 4 * MIB, 61), never = exported(1, 4 * MIB, 62);
	CUdeviceptr ptr;

	CHECK(open_handle(&ptr, handle));
	end_exporter();
	print_answer("exited.word", "%d", word_at(ptr));
	print_opened("exited.open_again", handle, ptr);
	print_opened("exited.open_the_other", never, ptr);
	print_closed("exited.close", ptr);
	print_opened("exited.open_after_close", handle, ptr);
}

static void hex(const char *question, const CUipcMemHandle *handle)
{
	printf("ipc.%s: ", question);
	for (size_t i = 0; i < sizeof(*handle); i++)
		printf("%02x", (unsigned char)handle->reserved[i]);
	putchar('\n');
}

/* Prints which bytes of two handles differ. */
static void difference(const char *question, const CUipcMemHandle *a, const CUipcMemHandle *b)
{
	printf("ipc.%s:", question);
	for (size_t i = 0; i < sizeof(*a); i++)
		if (a->reserved[i] != b->reserved[i])
			printf(" %zu", i);
	putchar('\n');
}

/* Prints a character for each byte of the handles: 0 if it is zero in all, c if it is equal in all, - otherwise. */
static void kinds(const char *question, const CUipcMemHandle *handles, size_t n)
{
	char text[sizeof(*handles) + 1] = "";

	for (size_t i = 0; i < sizeof(*handles); i++) {
		bool is_same = true;

		for (size_t k = 1; k < n; k++)
			is_same = is_same && handles[k].reserved[i] == handles[0].reserved[i];
		text[i] = !is_same ? '-' : handles[0].reserved[i] ? 'c' : '0';
	}
	print_answer(question, "%s", text);
}

static void handles(void)
{
	static const size_t sizes[] = {512, 512, 4096, MIB, 2 * MIB, 4 * MIB, 64 * MIB, 1024 * MIB, 512, 2 * MIB};
	enum { FIRST = 4, N = LENGTH(sizes) };
	CUipcMemHandle found[N + 3];
	CUdeviceptr own_block;

	for (int i = 0; i < N; i++)
		found[i] = exported(i, sizes[i], 71);
	found[N] = ask(HANDLE, FIRST, 0).handle;
	found[N + 1] = ask(HANDLE, FIRST, 4096).handle;
	CHECK(cuMemAlloc_v2(&own_block, 2 * MIB));
	CHECK(cuIpcGetMemHandle(&found[N + 2], own_block));
	hex("handle.small", &found[0]);
	hex("handle.next_small", &found[1]);
	hex("handle.large", &found[FIRST]);
	hex("handle.next_large", &found[FIRST + 1]);
	hex("handle.of_another_process", &found[N + 2]);
	difference("handle.differs.two_small_of_a_chunk", &found[0], &found[1]);
	difference("handle.differs.two_large", &found[FIRST], &found[FIRST + 1]);
	difference("handle.differs.small_large", &found[0], &found[FIRST]);
	difference("handle.differs.asked_twice", &found[FIRST], &found[N]);
	difference("handle.differs.interior", &found[FIRST], &found[N + 1]);
	kinds("handle.kinds", found, N + 2);
	kinds("handle.kinds_of_two_processes", found, N + 3);
	CHECK(ask(FREE, FIRST, 0).result);
	found[0] = exported(FIRST, sizes[FIRST], 72);
	difference("handle.differs.address_used_again", &found[FIRST], &found[0]);
}

static void events(void)
{
	CUevent plain, event, opened;
	CUipcEventHandle handle;

	CHECK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
	print_answer("event.handle_of_plain", "%d", cuIpcGetEventHandle(&handle, plain));
	print_answer("event.create_with_timing", "%d", cuEventCreate(&event, EVENT_INTERPROCESS));
	CHECK(cuEventCreate(&event, EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	CHECK(cuIpcGetEventHandle(&handle, event));
	print_answer("event.self_open", "%d", cuIpcOpenEventHandle(&opened, handle));
	memset(&handle, 0, sizeof(handle));
	print_answer("event.open_zeros", "%d", cuIpcOpenEventHandle(&opened, handle));
}

static void spin(CUstream stream, uint64_t ns)
{
	CUfunction function;
	CUmodule module;

	CHECK(cuModuleLoadData(&module, kernels_ptx));
	CHECK(cuModuleGetFunction(&function, module, "spin"));
	CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&ns}, NULL));
}

static void costs(void)
{
	static const size_t sizes[] = {512, 2 * MIB, 1024 * MIB};
	uint64_t at[5];
	CUdeviceptr ptr;
	char question[32];
	CUstream stream;

	for (int i = 0; i < (int)LENGTH(sizes); i++) {
		CUipcMemHandle handle = exported(i, sizes[i], 81);

		at[0] = now_ns();
		CHECK(open_handle(&ptr, handle));
		at[1] = now_ns();
		CHECK(open_handle(&ptr, handle));
		at[2] = now_ns();
		CHECK(cuIpcCloseMemHandle(ptr));
		at[3] = now_ns();
		CHECK(cuIpcCloseMemHandle(ptr));
		at[4] = now_ns();
		snprintf(question, sizeof(question), "cost.%zu", sizes[i]);
		print_answer(question, "open=%.1fus again=%.1fus close=%.1fus last_close=%.1fus",
			(double)(at[1] - at[0]) / 1e3, (double)(at[2] - at[1]) / 1e3, (double)(at[3] - at[2]) / 1e3,
			(double)(at[4] - at[3]) / 1e3);
	}
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	spin(stream, 300 * MS);
	at[0] = now_ns();
	CHECK(open_handle(&ptr, ask(HANDLE, 1, 0).handle));
	at[1] = now_ns();
	CHECK(cuIpcCloseMemHandle(ptr));
	at[2] = now_ns();
	print_answer("waits.open", "%d", at[1] - at[0] > 100 * MS);
	print_answer("waits.close", "%d", at[2] - at[1] > 100 * MS);
}

/* Memory that is mapped, as that of the pool type vmm, and its descriptors. */
static const CUmemAllocationProp plain = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUmemAllocationProp shareable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static double us_of_create(const CUmemAllocationProp *properties, size_t bytes)
{
	enum { ROUNDS = 20 };
	CUmemGenericAllocationHandle handle;
	uint64_t ns = 0, start;

	for (int i = 0; i < ROUNDS; i++) {
		start = now_ns();
		CHECK(cuMemCreate(&handle, bytes, properties, 0));
		ns += now_ns() - start;
		CHECK(cuMemRelease(handle));
	}
	return (double)ns / 1e3 / ROUNDS;
}

static CUdeviceptr map_now(CUmemGenericAllocationHandle handle, size_t bytes)
{
	static const CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr ptr = 0;

	CHECK(cuMemAddressReserve(&ptr, bytes, 2 * MIB, 0, 0));
	CHECK(cuMemMap(ptr, bytes, 0, handle, 0));
	CHECK(cuMemSetAccess(ptr, bytes, &access, 1));
	return ptr;
}

static void unmap_now(CUdeviceptr ptr, size_t bytes)
{
	CHECK(cuMemUnmap(ptr, bytes));
	CHECK(cuMemAddressFree(ptr, bytes));
}

/* Exports, imports and maps the memory, and prints the time of each call. */
static void exchange_mapped(const char *question, CUmemGenericAllocationHandle handle, size_t bytes)
{
	CUmemGenericAllocationHandle imported;
	CUdeviceptr ptr;
	uint64_t at[5];
	int fd = -1;

	at[0] = now_ns();
	CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	at[1] = now_ns();
	CHECK(cuMemImportFromShareableHandle(
		&imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	at[2] = now_ns();
	close(fd);
	ptr = map_now(imported, bytes);
	at[3] = now_ns();
	CHECK(cuMemRelease(imported));
	unmap_now(ptr, bytes);
	at[4] = now_ns();
	print_answer(question, "export=%.1fus import=%.1fus map=%.1fus unmap=%.1fus", (double)(at[1] - at[0]) / 1e3,
		(double)(at[2] - at[1]) / 1e3, (double)(at[3] - at[2]) / 1e3, (double)(at[4] - at[3]) / 1e3);
}

static CUdeviceptr behind;

static void *free_behind(void *unused)
{
	(void)unused;
	CHECK(cuCtxSetCurrent(primary));
	CHECK(cuMemFree_v2(behind));
	return NULL;
}

static void mapped(void)
{
	static const size_t sizes[] = {2 * MIB, 64 * MIB};
	CUipcMemHandle legacy = {"gpupool ipc 2"};
	CUmemGenericAllocationHandle handle;
	uint64_t is_legacy = 0, types = 0, start;
	char question[40];
	CUdeviceptr ptr = 0;
	CUstream stream;
	pthread_t thread;
	int fd = -1;

	print_answer("mapped.open_of_our_handle", "%d", open_handle(&ptr, legacy));
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		snprintf(question, sizeof(question), "cost.mapped.create.%zu", sizes[i]);
		print_answer(question, "plain=%.1fus shareable=%.1fus", us_of_create(&plain, sizes[i]),
			us_of_create(&shareable, sizes[i]));
		CHECK(cuMemCreate(&handle, sizes[i], &shareable, 0));
		snprintf(question, sizeof(question), "cost.mapped.exchange.%zu", sizes[i]);
		exchange_mapped(question, handle, sizes[i]);
		CHECK(cuMemRelease(handle));
	}
	CHECK(cuMemCreate(&handle, 4 * MIB, &plain, 0));
	print_answer("mapped.export_without_type", "%d",
		cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(cuMemRelease(handle));
	CHECK(cuMemCreate(&handle, 4 * MIB, &shareable, 0));
	ptr = map_now(handle, 4 * MIB);
	print_answer("mapped.handle", "%d", cuIpcGetMemHandle(&legacy, ptr));
	CHECK(cuPointerGetAttribute(&is_legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ptr));
	CHECK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, ptr));
	print_answer("mapped.attributes", "legacy=%d types=%d", (int)is_legacy, (int)types);
	CHECK(cuMemAlloc_v2(&behind, 64 * MIB));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	spin(stream, 400 * MS);
	CHECK(pthread_create(&thread, NULL, free_behind, NULL));
	usleep(50000);
	start = now_ns();
	exchange_mapped("cost.mapped.exchange_behind_a_free", handle, 4 * MIB);
	print_answer("waits.exchange_behind_a_free", "%d", now_ns() - start > 200 * MS);
	CHECK(pthread_join(thread, NULL));
	unmap_now(ptr, 4 * MIB);
	CHECK(cuMemRelease(handle));
}

static CUresult in_capture_get(CUipcMemHandle *handle, CUdeviceptr *ptr)
{
	CUdeviceptr own = 0;

	(void)ptr;
	CHECK(cuMemAlloc_v2(&own, MIB));
	return cuIpcGetMemHandle(handle, own);
}

static CUresult in_capture_open(CUipcMemHandle *handle, CUdeviceptr *ptr)
{
	return open_handle(ptr, *handle);
}

static CUresult in_capture_close(CUipcMemHandle *handle, CUdeviceptr *ptr)
{
	(void)handle;
	return cuIpcCloseMemHandle(*ptr);
}

/* Asks whether calls are refused while a stream captures, and whether they invalidate the capture. */
static void captures(void)
{
	static const struct {
		const char *name;
		CUresult (*call)(CUipcMemHandle *handle, CUdeviceptr *ptr);
		int mode;
	} rows[] = {
		{"capture.global.open", in_capture_open, 0},
		{"capture.global.close", in_capture_close, 0},
		{"capture.relaxed.get", in_capture_get, 2},
		{"capture.relaxed.open", in_capture_open, 2},
		{"capture.relaxed.close", in_capture_close, 2},
	};
	CUipcMemHandle handle = exported(0, 4 * MIB, 91), other = handle;
	CUdeviceptr ptr = 0;
	CUstream stream;
	CUgraph graph;

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (size_t i = 0; i < LENGTH(rows); i++) {
		CUresult r;

		if (rows[i].call == in_capture_close)
			CHECK(open_handle(&ptr, handle));
		CHECK(cuStreamBeginCapture_v2(stream, rows[i].mode));
		r = rows[i].call(rows[i].call == in_capture_get ? &other : &handle, &ptr);
		print_answer(rows[i].name, "%d end=%d", r, cuStreamEndCapture(stream, &graph));
		while (cuIpcCloseMemHandle(ptr) == CUDA_SUCCESS)
			;
	}
}

/* Opens a block of one GPU in a context of another. */
static void another_gpu(void)
{
	CUipcMemHandle handle;
	CUcontext ctx, owner = NULL;
	CUdeviceptr ptr;
	int n = 0, device = -1;

	CHECK(cuDeviceGetCount(&n));
	if (n < 2) {
		print_answer("another_gpu", "skipped, one GPU");
		return;
	}
	handle = exported(0, 4 * MIB, 101);
	CHECK(cuDevicePrimaryCtxRetain(&ctx, 1));
	CHECK(cuCtxSetCurrent(ctx));
	ptr = print_opened("another_gpu.open", handle, 0);
	cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr);
	cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr);
	print_answer("another_gpu.device", "%d", device);
	print_answer("another_gpu.context", "%s",
		owner == ctx       ? "current"
		: owner == primary ? "the device's primary"
				   : "another");
	print_answer("another_gpu.close", "%d", cuIpcCloseMemHandle(ptr));
}

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} sections[] = {{"own", own}, {"references", references}, {"old_function", old_function},
		{"wrong_handles", wrong_handles}, {"contexts", contexts}, {"opened_pointers", opened_pointers},
		{"freed_while_open", freed_while_open}, {"small_freed_while_open", small_freed_while_open},
		{"exporter_gone", exporter_gone}, {"handles", handles}, {"events", events}, {"costs", costs},
		{"mapped", mapped}, {"captures", captures}, {"another_gpu", another_gpu}};

	for (size_t i = 0; i < LENGTH(sections); i++)
		run_section(sections[i].run, sections[i].name);
	return 0;
}
