/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Allocations in stream order in a context that the program has created, with and without a primary context: answers,
 * and the data that each context reads back. The driver's pools belong to the device, so each context of the device may
 * use and free what another one has allocated.
 */

#include "tests/sim/abi.h"
#include "work_context.h"

enum { ROUNDS = 128 };

#define TOUCHED (64 * KIB) /* of each block this much is written and read */

static struct work_context primary, created;
static const struct work_context *const both[] = {&primary, &created};

/* Makes the created context current. */
static void start(void)
{
	(void)context_start();
	context_open(&primary, 0);
	context_create(&created, 0);
}

static CUdeviceptr take(const struct work_context *context, size_t bytes, CUstream stream)
{
	CUdeviceptr ptr = 0;

	context_enter(context);
	CONTEXT_MUST(cuMemAllocAsync(&ptr, bytes, stream));
	return ptr;
}

static void give(const struct work_context *context, CUdeviceptr ptr, CUstream stream)
{
	context_enter(context);
	CONTEXT_MUST(cuMemFreeAsync(ptr, stream));
}

/* A block whose words have the value. */
static CUdeviceptr take_filled(const struct work_context *context, size_t bytes, CUstream stream, uint32_t value)
{
	CUdeviceptr ptr = take(context, bytes, stream);

	context_fill(context, stream, ptr, bytes < TOUCHED ? bytes : TOUCHED, value);
	CONTEXT_MUST(cuStreamSynchronize(stream));
	return ptr;
}

static CUmemoryPool default_pool(void)
{
	CUmemoryPool pool = NULL;

	CONTEXT_MUST(cuDeviceGetDefaultMemPool(&pool, 0));
	return pool;
}

static uint64_t pool_attribute(int attribute)
{
	uint64_t value = 0;

	CONTEXT_MUST(cuMemPoolGetAttribute(default_pool(), attribute, &value));
	return value;
}

static void describe(const char *name, CUdeviceptr ptr, size_t bytes)
{
	CUmemGenericAllocationHandle handle = 0;
	CUmemoryPool pool = NULL;
	CUcontext ctx = NULL;
	CUdeviceptr base = 0;
	size_t size = 0;
	int ordinal = -1;

	printf("%s:\n", name);
	app_result("range", cuMemGetAddressRange_v2(&base, &size, ptr + bytes / 2));
	printf("its base %d, its size %d\n", base == ptr, size == bytes);
	app_result("pool", cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr));
	printf("none %d, default %d\n", pool == NULL, pool == default_pool());
	app_result("context", cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
	printf("none %d\n", !ctx);
	app_result("ordinal", cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr));
	printf("ordinal %d\n", ordinal);
	app_result("allocation handle", cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)ptr));
}

static void attributes(void)
{
	CUdeviceptr ptr;
	CUstream stream;

	start();
	stream = context_stream(&created);
	ptr = take_filled(&created, MIB, stream, 1);
	describe("in its context", ptr, MIB);
	context_enter(&primary);
	describe("in the primary context", ptr, MIB);
	CONTEXT_MUST(cuCtxSetCurrent(NULL));
	describe("without a context", ptr, MIB);
	give(&created, ptr, stream);
	ptr = take_filled(&primary, MIB, NULL, 1);
	context_enter(&created);
	describe("of the primary context", ptr, MIB);
	give(&created, ptr, NULL);
}

/* The pool counts the allocations of all contexts of the device. */
static void books(void)
{
	CUdeviceptr ptrs[2];
	CUstream stream;

	start();
	stream = context_stream(&created);
	app_say("used before", "%d", (int)pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
	ptrs[0] = take(&created, 8 * MIB, stream);
	app_say("used in one", "%d", pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 8 * MIB);
	ptrs[1] = take(&primary, 4 * MIB, NULL);
	app_say("used in both", "%d", pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 12 * MIB);
	app_say("reserved", "%d", pool_attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 12 * MIB);
	give(&created, ptrs[0], stream);
	give(&primary, ptrs[1], NULL);
	CONTEXT_MUST(cuCtxSynchronize());
	context_enter(&created);
	CONTEXT_MUST(cuCtxSynchronize());
	app_say("used after the frees", "%d", (int)pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
	app_result("trim", cuMemPoolTrimTo(default_pool(), 0));
	app_say("reserved after the trim", "%d", (int)pool_attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
}

/* Later work of the second stream waits for the earlier work of the first. */
static void let_wait(
	const struct work_context *first, CUstream of_first, const struct work_context *second, CUstream of_second)
{
	CUevent event;

	context_enter(first);
	CONTEXT_MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CONTEXT_MUST(cuEventRecord(event, of_first));
	context_enter(second);
	CONTEXT_MUST(cuStreamWaitEvent(of_second, event, 0));
	context_enter(first);
	CONTEXT_MUST(cuEventDestroy_v2(event));
}

/*
 * A block is allocated in one context, used in one and freed in one. Then one allocates. Each bit of i chooses a
 * context. Events order the first three steps.
 */
static size_t cross(const CUstream streams[static 2], unsigned i)
{
	unsigned first = i & 1, user = i >> 1 & 1, last = i >> 2 & 1, next = i >> 3 & 1;
	CUdeviceptr a = take(both[first], MIB, streams[first]), b;
	size_t wrong;

	let_wait(both[first], streams[first], both[user], streams[user]);
	context_spin_fill(both[user], streams[user], a, TOUCHED, 1, i % 5 * MS / 4);
	let_wait(both[user], streams[user], both[last], streams[last]);
	give(both[last], a, streams[last]);
	b = take(both[next], MIB, streams[next]);
	context_fill(both[next], streams[next], b, TOUCHED, i + 2);
	context_enter(both[!next]);
	CONTEXT_MUST(cuCtxSynchronize());
	wrong = context_count_wrong(both[next], b, TOUCHED, i + 2);
	give(both[next], b, streams[next]);
	return wrong;
}

static void cross_on(CUstream of_primary, CUstream of_created)
{
	const CUstream streams[] = {of_primary, of_created};
	size_t wrong = 0;

	for (unsigned i = 0; i < ROUNDS; i++)
		wrong += cross(streams, i);
	app_say("wrong words", "%zu", wrong);
}

static void crossing(void)
{
	CUstream of_primary, of_created;

	start();
	of_primary = context_stream(&primary);
	of_created = context_stream(&created);
	cross_on(of_primary, of_created);
}

static void crossing_by_default(void)
{
	start();
	cross_on(NULL, NULL);
	cross_on(CU_STREAM_PER_THREAD, CU_STREAM_PER_THREAD);
}

/* Frees of both kinds, with each context current, and with none. */
static void frees(void)
{
	CUdeviceptr ptrs[6];
	CUstream of_primary, of_created;

	start();
	of_primary = context_stream(&primary);
	of_created = context_stream(&created);
	for (unsigned i = 0; i < LENGTH(ptrs); i++)
		ptrs[i] = take_filled(&created, MIB, of_created, i);
	context_enter(&primary);
	app_result("on a stream of the primary context", cuMemFreeAsync(ptrs[0], of_primary));
	app_result("plain in the primary context", cuMemFree_v2(ptrs[1]));
	app_result("on the stream of the allocation, from the primary context", cuMemFreeAsync(ptrs[2], of_created));
	app_result("inside", cuMemFreeAsync(ptrs[3] + 512, of_primary));
	CONTEXT_MUST(cuCtxSetCurrent(NULL));
	app_result("on a stream without a context", cuMemFreeAsync(ptrs[3], of_created));
	app_result("plain without a context", cuMemFree_v2(ptrs[4]));
	context_enter(&created);
	app_result("plain", cuMemFree_v2(ptrs[5]));
	app_result("again", cuMemFree_v2(ptrs[5]));
	app_result("again on a stream", cuMemFreeAsync(ptrs[0], of_created));
	CONTEXT_MUST(cuCtxSynchronize());
}

/* Work, a free and an allocation follow each other on a stream. The primary context is current at each of the calls. */
static void reuse_elsewhere(CUstream of_created)
{
	size_t wrong = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr a = take(&primary, MIB, of_created), b;

		context_spin_fill(&created, of_created, a, TOUCHED, 1, i % 3 * MS / 4);
		give(&primary, a, of_created);
		b = take(&primary, MIB, of_created);
		context_fill(&created, of_created, b, TOUCHED, i);
		wrong += context_count_wrong(&created, b, TOUCHED, i);
		give(&primary, b, of_created);
	}
	app_say("wrong words", "%zu", wrong);
}

/* The stream of an allocation belongs to a context that is not current. */
static void elsewhere(void)
{
	CUdeviceptr ptr = 0;
	CUstream stream;

	start();
	stream = context_stream(&created);
	context_enter(&primary);
	app_result("allocation", cuMemAllocAsync(&ptr, MIB, stream));
	context_fill(&created, stream, ptr, TOUCHED, 9);
	app_say("wrong words", "%zu", context_count_wrong(&created, ptr, TOUCHED, 9));
	context_enter(&primary);
	app_result("free", cuMemFreeAsync(ptr, stream));
	reuse_elsewhere(stream);
	CONTEXT_MUST(cuCtxSetCurrent(NULL));
	app_result("allocation without a context", cuMemAllocAsync(&ptr, MIB, stream));
	app_result("free", cuMemFreeAsync(ptr, stream));
}

/* None of these calls waits for work of either context. */
static void no_wait(void)
{
	CUstream of_primary, of_created;
	CUdeviceptr a, b, flag;
	uint32_t *word;

	start();
	CONTEXT_MUST(cuMemHostAlloc((void **)&word, sizeof(*word), CU_MEMHOSTALLOC_PORTABLE));
	*word = 0;
	flag = (CUdeviceptr)(uintptr_t)word;
	of_primary = context_stream(&primary);
	of_created = context_stream(&created);
	a = take_filled(&created, MIB, of_created, 1);
	b = take_filled(&primary, MIB, of_primary, 1);
	context_wait_flag(&primary, of_primary, flag, 1);
	context_fill(&primary, of_primary, a, TOUCHED, 2);
	give(&primary, a, of_primary);
	a = take(&created, 2 * MIB, of_created);
	give(&created, a, of_created);
	a = take(&created, MIB, of_created);
	context_fill(&created, of_created, a, TOUCHED, 3);
	CONTEXT_MUST(cuStreamSynchronize(of_created));
	give(&primary, b, of_primary);
	b = take(&primary, 2 * MIB, of_primary);
	app_result("the primary context works", cuStreamQuery(of_primary));
	*(volatile uint32_t *)word = 1;
	CONTEXT_MUST(cuStreamSynchronize(of_primary));
	app_say("wrong words", "%zu", context_count_wrong(&created, a, TOUCHED, 3));
	give(&created, a, of_created);
	give(&primary, b, of_primary);
}

/*
 * A block is freed on a busy stream of another context than its own. Meanwhile a third stream captures, which has
 * nothing to do with the block. Later the block's context allocates again.
 */
static size_t free_beside_capture(
	const struct work_context *owner, const struct work_context *user, const struct work_context *capturer)
{
	CUstream of_owner = context_stream(owner), of_user = context_stream(user), captured = context_stream(capturer);
	CUdeviceptr a = take(owner, 4 * MIB, of_owner), blocks[4];
	size_t wrong = 0;
	CUgraph graph;

	CONTEXT_MUST(cuStreamSynchronize(of_owner));
	context_spin_fill(user, of_user, a, TOUCHED, 1, 20 * MS);
	context_enter(capturer);
	CONTEXT_MUST(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	give(user, a, of_user);
	context_enter(capturer);
	CONTEXT_MUST(cuStreamEndCapture(captured, &graph));
	CONTEXT_MUST(cuGraphDestroy(graph));
	for (unsigned i = 0; i < 3; i++) {
		give(owner, take(owner, MIB, of_owner), of_owner);
		CONTEXT_MUST(cuStreamSynchronize(of_owner));
		CONTEXT_MUST(cuMemFree_v2(context_alloc(owner, MIB)));
	}
	for (unsigned i = 0; i < LENGTH(blocks); i++) {
		blocks[i] = take(owner, 4 * MIB, of_owner);
		context_fill(owner, of_owner, blocks[i], TOUCHED, 2);
	}
	CONTEXT_MUST(cuStreamSynchronize(of_owner));
	context_enter(user);
	CONTEXT_MUST(cuStreamSynchronize(of_user));
	for (unsigned i = 0; i < LENGTH(blocks); i++) {
		wrong += context_count_wrong(owner, blocks[i], TOUCHED, 2);
		give(owner, blocks[i], of_owner);
	}
	return wrong;
}

static void beside_captures(void)
{
	size_t wrong = 0;

	start();
	for (unsigned i = 0; i < 8; i++)
		wrong += free_beside_capture(both[i & 1], both[!(i & 1)], both[i >> 1 & 1]);
	app_say("wrong words", "%zu", wrong);
}

/* The context of a block is destroyed after such a free, while the other context's stream works. */
static void destroyed_under_work(void)
{
	CUstream of_created, of_primary, captured;
	CUdeviceptr ptr;
	CUgraph graph;

	start();
	of_created = context_stream(&created);
	of_primary = context_stream(&primary);
	captured = context_stream(&primary);
	ptr = take_filled(&created, 4 * MIB, of_created, 1);
	context_spin_fill(&primary, of_primary, ptr, TOUCHED, 2, 20 * MS);
	CONTEXT_MUST(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	app_result("free", cuMemFreeAsync(ptr, of_primary));
	CONTEXT_MUST(cuStreamEndCapture(captured, &graph));
	app_result("destroy", cuCtxDestroy_v2(created.ctx));
	context_enter(&primary);
	app_result("the work", cuStreamSynchronize(of_primary));
}

/* Returns false if the context is lost. */
static bool say_word(CUdeviceptr ptr)
{
	uint32_t word = 0;
	CUresult r = cuMemcpyDtoH_v2(&word, ptr, sizeof(word));

	app_result("copy", r);
	app_say("word", "%u", word);
	return !r;
}

/* The memory keeps its content when the context ends in which it was allocated. */
static void destroyed(void)
{
	CUdeviceptr blocks[4], more = 0;
	CUstream stream, of_created;
	uint64_t used;

	start();
	of_created = context_stream(&created);
	for (unsigned i = 0; i < LENGTH(blocks); i++)
		blocks[i] = take_filled(&created, i ? 4 * MIB : 3 * 4096, of_created, 5 + i);
	give(&created, blocks[3], of_created);
	CONTEXT_MUST(cuStreamSynchronize(of_created));
	used = pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
	app_result("destroy", cuCtxDestroy_v2(created.ctx));
	app_say("used bytes stay", "%d", pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == used);
	context_enter(&primary);
	describe("after the end", blocks[1], 4 * MIB);
	for (unsigned i = 0; i < 3; i++)
		if (!say_word(blocks[i]))
			return;
	stream = context_stream(&primary);
	context_fill(&primary, stream, blocks[1], TOUCHED, 77);
	app_say("wrong words", "%zu", context_count_wrong(&primary, blocks[1], TOUCHED, 77));
	app_result("free inside", cuMemFreeAsync(blocks[1] + 512, stream));
	app_result("free on a stream", cuMemFreeAsync(blocks[1], stream));
	app_result("plain free", cuMemFree_v2(blocks[2]));
	app_result("second free", cuMemFree_v2(blocks[2]));
	app_result("free in a default stream", cuMemFreeAsync(blocks[0], NULL));
	CONTEXT_MUST(cuCtxSynchronize());
	app_result("allocation after the end", cuMemAllocAsync(&more, 4 * MIB, stream));
	app_result("its free", cuMemFreeAsync(more, stream));
}

/* The device has no primary context, and in the end no context at all. */
static void alone(void)
{
	CUdeviceptr blocks[3];
	CUstream stream;

	(void)context_start();
	context_create(&created, 0);
	stream = context_stream(&created);
	for (unsigned i = 0; i < LENGTH(blocks); i++)
		blocks[i] = take_filled(&created, MIB, stream, 5 + i);
	give(&created, blocks[2], stream);
	blocks[2] = take_filled(&created, MIB, stream, 7);
	app_result("destroy", cuCtxDestroy_v2(created.ctx));
	describe("without any context", blocks[0], MIB);
	context_create(&created, 0);
	for (unsigned i = 0; i < LENGTH(blocks); i++)
		if (!say_word(blocks[i]))
			return;
	app_result("free in the next context", cuMemFreeAsync(blocks[0], NULL));
	app_result("plain free in it", cuMemFree_v2(blocks[1]));
	app_result("destroy it, too", cuCtxDestroy_v2(created.ctx));
	app_result("plain free without any context", cuMemFree_v2(blocks[2]));
}

/* Contexts are created and destroyed one after another. Each works with what the one before has left. */
static void handed_on(void)
{
	CUdeviceptr held = 0;
	size_t wrong = 0;

	(void)context_start();
	context_open(&primary, 0);
	for (unsigned i = 0; i < 8; i++) {
		CUstream stream;
		CUdeviceptr ptr;

		context_create(&created, 0);
		stream = context_stream(&created);
		ptr = take(&created, MIB + i * 256 * KIB, stream);
		context_spin_fill(&created, stream, ptr, TOUCHED, i, MS);
		if (held) {
			wrong += context_count_wrong(&created, held, TOUCHED, i - 1);
			give(&created, held, stream);
		}
		held = ptr;
		CONTEXT_MUST(cuCtxDestroy_v2(created.ctx));
	}
	app_say("wrong words", "%zu", wrong + context_count_wrong(&primary, held, TOUCHED, 7));
	app_result("free", cuMemFree_v2(held));
}

const struct app_scenario app_scenarios[] = {
	{"attributes", attributes},
	{"books", books},
	{"crossing", crossing},
	{"crossing-by-default", crossing_by_default},
	{"frees", frees},
	{"elsewhere", elsewhere},
	{"no-wait", no_wait},
	{"destroyed", destroyed},
	{"alone", alone},
	{"handed-on", handed_on},
	{"beside-captures", beside_captures},
	{"destroyed-under-work", destroyed_under_work},
	{0},
};
