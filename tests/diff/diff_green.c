/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * T8.9: green contexts. All memory belongs to the primary context, even if a green context was current at the
 * allocation. It outlives the green contexts, and ends with the last reference to the primary context, which a green
 * context may hold.
 */

#include <pthread.h>

#include "tests/apps/kernels.h"
#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

enum { PRIMARY, GREEN_A, GREEN_B, N_CONTEXTS, SMS = 16 };

static const char *const names[N_CONTEXTS] = {"the primary", "A", "B"};

struct test_context {
	CUgreenCtx green; /* NULL: the primary context */
	CUcontext ctx;
	CUstream stream;
};

static struct test_context contexts[N_CONTEXTS];
static CUfunction wait_flag, set_flag; /* loaded before a kernel spins, because loading may wait for it */

static struct test_context make_green(void)
{
	CUdevResource all, part, rest;
	CUdevResourceDesc desc;
	struct test_context context;
	unsigned n = 1;

	APP_MUST(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	APP_MUST(cuDevSmResourceSplitByCount(&part, &n, &all, &rest, 0, SMS));
	APP_MUST(cuDevResourceGenerateDesc(&desc, &part, 1));
	APP_MUST(cuGreenCtxCreate(&context.green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	APP_MUST(cuCtxFromGreenCtx(&context.ctx, context.green));
	APP_MUST(cuGreenCtxStreamCreate(&context.stream, context.green, CU_STREAM_NON_BLOCKING, 0));
	return context;
}

static void end_green(struct test_context *context)
{
	APP_MUST(cuStreamDestroy_v2(context->stream));
	APP_MUST(cuGreenCtxDestroy(context->green));
}

static void enter(int which)
{
	APP_MUST(cuCtxSetCurrent(contexts[which].ctx));
}

/* Returns false, and prints a line, if the driver has no green contexts. */
static bool start(void)
{
	CUmodule module;
	void *found = NULL;

	APP_MUST(cuInit(0));
	if (cuGetProcAddress_v2("cuGreenCtxStreamCreate", &found, 12050, 0, NULL) || !found) {
		printf("skipped: no green contexts\n");
		return false;
	}
	app_start();
	APP_MUST(cuModuleLoadData(&module, kernels_ptx));
	APP_MUST(cuModuleGetFunction(&wait_flag, module, "wait_flag"));
	APP_MUST(cuModuleGetFunction(&set_flag, module, "set_flag"));
	contexts[PRIMARY] = (struct test_context){NULL, app_ctx, app_stream()};
	contexts[GREEN_A] = make_green();
	contexts[GREEN_B] = make_green();
	return true;
}

static void report(const char *what, int which, int result)
{
	printf("%s, %s: %d\n", what, names[which], result);
}

static const size_t sizes[] = {300, 70 * KIB, MIB + 1, 5 * MIB};

static void owners(void)
{
	CUcontext owner;
	void *host;

	if (!start())
		return;
	for (int which = 0; which < N_CONTEXTS; which++) {
		unsigned wrong = 0;

		for (unsigned i = 0; i < 8 * LENGTH(sizes); i++) {
			CUdeviceptr ptr;

			enter(which);
			ptr = app_alloc(sizes[i % LENGTH(sizes)]);
			APP_MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
			wrong += owner != app_ctx;
			enter((which + (int)i) % N_CONTEXTS);
			APP_MUST(cuMemFree_v2(ptr));
		}
		report("not the primary's", which, (int)wrong);
		enter(which);
		APP_MUST(cuMemHostAlloc(&host, 4096, 0));
		APP_MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)(uintptr_t)host));
		report("pinned, the primary's", which, owner == app_ctx);
		enter((which + 1) % N_CONTEXTS);
		report("pinned free elsewhere", which, cuMemFreeHost(host));
	}
}

/* Memory is freed while work of one context uses it, and is allocated and used in another, at random. */
static void reuse(void)
{
	static const uint64_t spins[] = {0, 20000, 300000};
	unsigned seed = 5;
	size_t wrong = 0;

	if (!start())
		return;
	for (unsigned i = 0; i < 300; i++) {
		int from = (int)(app_random(&seed) % N_CONTEXTS), to = (int)(app_random(&seed) % N_CONTEXTS);
		size_t bytes = sizes[app_random(&seed) % LENGTH(sizes)] / 4 * 4;
		CUdeviceptr ptr, next;

		enter((int)(app_random(&seed) % N_CONTEXTS));
		ptr = app_alloc(bytes);
		app_spin_fill(contexts[from].stream, ptr, 256, 1, spins[app_random(&seed) % LENGTH(spins)]);
		enter((int)(app_random(&seed) % N_CONTEXTS));
		APP_MUST(cuMemFree_v2(ptr));
		enter((int)(app_random(&seed) % N_CONTEXTS));
		next = app_alloc(bytes);
		app_fill(contexts[to].stream, next, 256, i + 2);
		enter(from);
		APP_MUST(cuCtxSynchronize());
		wrong += app_count_wrong(contexts[to].stream, next, 256, i + 2);
		APP_MUST(cuMemFree_v2(next));
	}
	app_result("wrong words", (int)wrong);
}

/*
 * A green context is created after a block was reused, perhaps with only a GPU wait, and is the first to use it. The
 * blocks are so large that a pool prefers a GPU wait to growing.
 */
static void newcomer(void)
{
	size_t wrong = 0;

	if (!start())
		return;
	for (unsigned i = 0; i < 12; i++) {
		CUdeviceptr ptr = app_alloc(64 * MIB), next;
		struct test_context late;

		app_spin_fill(contexts[i % N_CONTEXTS].stream, ptr, 256, 1, 2 * MS);
		APP_MUST(cuMemFree_v2(ptr));
		next = app_alloc(64 * MIB);
		late = make_green();
		app_fill(late.stream, next, 256, i + 2);
		for (int which = 0; which < N_CONTEXTS; which++)
			APP_MUST(cuStreamSynchronize(contexts[which].stream));
		wrong += app_count_wrong(late.stream, next, 256, i + 2);
		APP_MUST(cuMemFree_v2(next));
		end_green(&late);
	}
	app_result("wrong words", (int)wrong);
}

/* The next owner of pinned memory does not write to it while a green stream still reads from it. */
static void pinned(void)
{
	size_t wrong = 0;
	CUdeviceptr ptr;

	if (!start())
		return;
	ptr = app_alloc(MIB);
	for (unsigned i = 0; i < 60; i++) {
		int which = (int)i % N_CONTEXTS;
		uint32_t *host;

		enter((int)(i / 3) % N_CONTEXTS);
		APP_MUST(cuMemHostAlloc((void **)&host, MIB, 0));
		for (size_t k = 0; k < MIB / 4; k++)
			host[k] = i;
		app_spin(contexts[which].stream, 50000);
		APP_MUST(cuMemcpyHtoDAsync_v2(ptr, host, MIB, contexts[which].stream));
		APP_MUST(cuMemFreeHost(host));
		APP_MUST(cuMemHostAlloc((void **)&host, MIB, 0));
		memset(host, 0xff, MIB);
		wrong += app_count_wrong(contexts[which].stream, ptr, MIB, i);
		APP_MUST(cuMemFreeHost(host));
	}
	app_result("wrong words", (int)wrong);
}

static void launch_flag(CUfunction function, CUstream stream, CUdeviceptr flag)
{
	uint32_t value = 1;
	void *params[] = {&flag, &value};

	APP_MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* After a free, a kernel of one context spins until another releases it. Allocations do not wait for that kernel. */
static void spins(void)
{
	for (unsigned i = 0; i < 8; i++) {
		CUdeviceptr ptr, flag;

		if (i == 0 && !start())
			return;
		ptr = app_alloc(MIB);
		flag = app_alloc(4);
		APP_MUST(cuMemsetD32_v2(flag, 0, 1));
		APP_MUST(cuCtxSynchronize());
		app_fill(contexts[GREEN_A].stream, ptr, MIB, 1);
		APP_MUST(cuMemFree_v2(ptr));
		launch_flag(wait_flag, contexts[i % 2 ? GREEN_A : PRIMARY].stream, flag);
		ptr = app_alloc(MIB);
		launch_flag(set_flag, contexts[GREEN_B].stream, flag);
		APP_MUST(cuCtxSynchronize());
		APP_MUST(cuMemFree_v2(ptr));
		APP_MUST(cuMemFree_v2(flag));
	}
	app_result("done", 0);
}

static void destruction(void)
{
	CUdeviceptr big, small, other = 0;

	if (!start())
		return;
	enter(GREEN_A);
	big = app_alloc(5 * MIB);
	small = app_alloc(300);
	APP_MUST(cuMemFree_v2(app_alloc(MIB)));
	APP_MUST(cuMemsetD32_v2(big, 7, 64));
	APP_MUST(cuCtxSynchronize());
	end_green(&contexts[GREEN_A]);
	app_result("alloc in the destroyed green context", cuMemAlloc_v2(&other, MIB));
	app_result("free in the destroyed green context", cuMemFree_v2(big));
	app_result("free of NULL in the destroyed green context", cuMemFree_v2(0));
	app_result("pinned alloc in the destroyed green context", cuMemAllocHost_v2(&(void *){NULL}, MIB));
	enter(PRIMARY);
	app_result("wrong words", (int)app_count_wrong(NULL, big, 256, 7));
	app_result("free in the primary", cuMemFree_v2(big));
	enter(GREEN_B);
	app_result("free in B", cuMemFree_v2(small));
	app_result("free again", cuMemFree_v2(small));
	app_result("destroy B's context", cuCtxDestroy_v2(contexts[GREEN_B].ctx));
	app_result("alloc in B", cuMemAlloc_v2(&other, MIB));
	app_result("free", cuMemFree_v2(other));
}

/* Only green contexts hold the primary context: it ends with the last of them, and all memory with it. */
static void last_reference(void)
{
	CUdeviceptr kept[3], other = 0;
	CUcontext again;

	if (!start())
		return;
	for (unsigned i = 0; i < 4; i++) {
		enter(GREEN_A);
		kept[0] = app_alloc(5 * MIB);
		kept[1] = app_alloc(300);
		APP_MUST(cuMemFree_v2(app_alloc(MIB)));
		APP_MUST(cuDevicePrimaryCtxRelease_v2(0));
		APP_MUST(cuMemsetD32_v2(kept[0], 7, 64));
		kept[2] = app_alloc(MIB);
		end_green(&contexts[GREEN_B]);
		app_result("wrong words", (int)app_count_wrong(NULL, kept[0], 256, 7));
		end_green(&contexts[GREEN_A]);
		APP_MUST(cuDevicePrimaryCtxRetain(&again, 0));
		APP_MUST(cuCtxSetCurrent(again));
		for (unsigned k = 0; k < LENGTH(kept); k++)
			app_result("free of memory of the ended context", cuMemFree_v2(kept[k]));
		APP_MUST(cuCtxSetCurrent(NULL));
		APP_MUST(cuDevicePrimaryCtxRelease_v2(0));
		app_start();
		contexts[PRIMARY].stream = app_stream();
		other = app_alloc(MIB);
		APP_MUST(cuMemsetD32_v2(other, 1, MIB / 4));
		app_result("free", cuMemFree_v2(other));
		contexts[GREEN_A] = make_green();
		contexts[GREEN_B] = make_green();
	}
}

/* The driver refuses to reset the device while it has green contexts: all memory stays valid. */
static void refused_reset(void)
{
	CUdeviceptr big, small;

	if (!start())
		return;
	big = app_alloc(5 * MIB);
	small = app_alloc(300);
	APP_MUST(cuMemFree_v2(app_alloc(MIB)));
	APP_MUST(cuMemsetD32_v2(big, 7, 64));
	APP_MUST(cuMemsetD32_v2(small, 7, 64));
	app_result("reset", cuDevicePrimaryCtxReset_v2(0));
	app_result("wrong words", (int)app_count_wrong(NULL, big, 256, 7));
	app_result("wrong words", (int)app_count_wrong(NULL, small, 256, 7));
	app_result("free", cuMemFree_v2(small));
	app_result("free", cuMemFree_v2(big));
	app_result("free again", cuMemFree_v2(big));
	end_green(&contexts[GREEN_A]);
	end_green(&contexts[GREEN_B]);
	app_result("reset", cuDevicePrimaryCtxReset_v2(0));
	app_start();
	big = app_alloc(5 * MIB);
	APP_MUST(cuMemsetD32_v2(big, 7, 64));
	app_result("free", cuMemFree_v2(big));
}

/* Frees during a capture on a green context's stream do not disturb the capture. */
static void capture(void)
{
	CUgraphExec exec;
	CUdeviceptr ptr;
	CUgraph graph;

	if (!start())
		return;
	ptr = app_alloc(MIB);
	for (int which = 0; which < N_CONTEXTS; which++) {
		APP_MUST(cuStreamBeginCapture_v2(contexts[which].stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		app_fill(contexts[which].stream, ptr, 256, 9);
		enter((which + 1) % N_CONTEXTS);
		for (unsigned i = 0; i < 16; i++)
			APP_MUST(cuMemFree_v2(app_alloc(sizes[i % LENGTH(sizes)])));
		report("end", which, cuStreamEndCapture(contexts[which].stream, &graph));
		APP_MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
		APP_MUST(cuGraphLaunch(exec, contexts[which].stream));
		report("wrong words", which, (int)app_count_wrong(contexts[which].stream, ptr, 256, 9));
	}
}

enum { N_THREADS = 4 };

static CUdeviceptr slots[16];
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;

static CUdeviceptr exchange(unsigned i, CUdeviceptr ptr)
{
	CUdeviceptr old;

	pthread_mutex_lock(&slots_lock);
	old = slots[i];
	slots[i] = ptr;
	pthread_mutex_unlock(&slots_lock);
	return old;
}

static void *work(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg + 1;
	struct test_context context = make_green();
	size_t wrong = 0;

	APP_MUST(cuCtxSetCurrent(context.ctx));
	for (unsigned i = 0; i < 150; i++) {
		CUdeviceptr ptr = app_alloc(sizes[app_random(&seed) % LENGTH(sizes)]);

		app_fill(context.stream, ptr, 256, i);
		if (i % 8 == 0)
			wrong += app_count_wrong(context.stream, ptr, 256, i);
		ptr = exchange(app_random(&seed) % LENGTH(slots), ptr);
		if (ptr)
			APP_MUST(cuMemFree_v2(ptr));
	}
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuCtxSetCurrent(NULL));
	end_green(&context);
	return (void *)(uintptr_t)wrong;
}

static void threads(void)
{
	pthread_t all[N_THREADS];
	size_t wrong = 0;
	void *result;

	if (!start())
		return;
	for (uintptr_t i = 0; i < N_THREADS; i++)
		pthread_create(&all[i], NULL, work, (void *)i);
	for (unsigned i = 0; i < N_THREADS; i++) {
		pthread_join(all[i], &result);
		wrong += (size_t)(uintptr_t)result;
	}
	app_result("wrong words", (int)wrong);
	for (unsigned i = 0; i < LENGTH(slots); i++)
		if (slots[i])
			APP_MUST(cuMemFree_v2(slots[i]));
}

/* Creates and destroys green contexts in a loop. Each leaves a block behind that is freed later. */
static void cycles(void)
{
	unsigned n = app_calls("cuInit") ? 400 : 40, wrong = 0;
	CUdeviceptr ptr = 0;

	if (!start())
		return;
	for (unsigned i = 0; i < n; i++) {
		struct test_context context = make_green();

		APP_MUST(cuCtxSetCurrent(context.ctx));
		if (ptr)
			APP_MUST(cuMemFree_v2(ptr));
		ptr = app_alloc(sizes[i % LENGTH(sizes)]);
		app_fill(context.stream, ptr, 256, i);
		wrong += (unsigned)app_count_wrong(context.stream, ptr, 256, i);
		APP_MUST(cuCtxSetCurrent(app_ctx));
		end_green(&context);
	}
	APP_MUST(cuMemFree_v2(ptr));
	app_result("wrong words", (int)wrong);
}

const struct app_scenario app_scenarios[] = {
	{"owners", owners, 0},
	{"reuse", reuse, 0},
	{"newcomer", newcomer, 0},
	{"pinned", pinned, 0},
	{"spins", spins, 0},
	{"destruction", destruction, 0},
	{"last-reference", last_reference, 0},
	{"refused-reset", refused_reset, 0},
	{"capture", capture, 0},
	{"threads", threads, 0},
	{"cycles", cycles, 0},
	{0},
};
