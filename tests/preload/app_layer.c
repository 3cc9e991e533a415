/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A program with a shared runtime. gpupool serves most of its calls without the runtime, and the program sees no
 * difference.
 */

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app.h"

enum { ROUNDS = 300, LIVE = 32, THREADS = 4 };

unsigned long simgpu_runtime_calls(void);

static void *take(size_t bytes)
{
	void *ptr = NULL;

	APP_MUST(cudaMalloc(&ptr, bytes));
	return ptr;
}

static void churn(unsigned rounds, unsigned seed)
{
	void *live[LIVE] = {NULL};

	for (unsigned i = 0; i < rounds; i++) {
		void **ptr = &live[app_random(&seed) % LIVE];

		if (*ptr)
			APP_MUST(cudaFree(*ptr));
		*ptr = take((size_t)512 << app_random(&seed) % 15);
	}
	for (unsigned i = 0; i < LIVE; i++)
		APP_MUST(cudaFree(live[i]));
}

static void churn_by_driver(void)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr ptr;

		APP_MUST(cuMemAlloc_v2(&ptr, 4096));
		APP_MUST(cuMemFree_v2(ptr));
	}
}

/* Served calls leave errno and the last error as they were. */
static void loop(void)
{
	void *host;

	app_result("wrong free", cudaFree(&host));
	errno = 77;
	churn(ROUNDS, 1);
	for (unsigned i = 0; i < ROUNDS; i++) {
		APP_MUST(i % 2 ? cudaMallocHost(&host, 4096) : cudaHostAlloc(&host, 4096, 0));
		APP_MUST(cudaFreeHost(host));
	}
	app_result("errno", errno);
	app_result("last error", cudaPeekAtLastError());
	app_result("last error, taken", cudaGetLastError());
	app_result("last error after that", cudaPeekAtLastError());
	app_fact("runtime", simgpu_runtime_calls());
	app_report_driver();
	app_pause("loop");
}

cudaError_t cudaMallocAsync_ptsz(void **ptr, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync_ptsz(void *ptr, cudaStream_t stream);

/* Pairs in stream order on each kind of stream, and unusual requests after them. */
static void stream_pairs(void)
{
	cudaStream_t streams[5] = {NULL, cudaStreamLegacy, cudaStreamPerThread};
	void *ptr = &ptr;

	APP_MUST(cudaStreamCreate(&streams[3]));
	APP_MUST(cudaStreamCreateWithFlags(&streams[4], cudaStreamNonBlocking));
	errno = 77;
	for (unsigned i = 0; i < 5 * ROUNDS; i++) {
		APP_MUST(cudaMallocAsync(&ptr, (size_t)512 << i % 14, streams[i / ROUNDS]));
		APP_MUST(cudaFreeAsync(ptr, streams[i / ROUNDS]));
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		APP_MUST(cudaMallocAsync_ptsz(&ptr, (size_t)512 << i % 14, NULL));
		APP_MUST(cudaFreeAsync_ptsz(ptr, NULL));
	}
	app_fact("runtime", simgpu_runtime_calls());
	app_result("free again", cudaFreeAsync(ptr, streams[4]));
	app_result("last error", cudaGetLastError());
	app_result("no bytes", cudaMallocAsync(&ptr, 0, streams[4]));
	app_result("NULL for no bytes", ptr == NULL);
	app_result("malloc with a NULL output", cudaMallocAsync(NULL, 512, streams[4]));
	app_result("last error", cudaGetLastError());
	app_result("free of NULL", cudaFreeAsync(NULL, streams[4]));
	ptr = take(512);
	app_result("free of other memory", cudaFreeAsync(ptr, streams[4]));
	APP_MUST(cudaMallocAsync(&ptr, 512, streams[4]));
	app_result("free without a stream", cudaFree(ptr));
	APP_MUST(cudaMallocAsync(&ptr, 512, streams[4]));
	APP_MUST(cudaFreeAsync(ptr, streams[4]));
	APP_MUST(cudaStreamDestroy(streams[4]));
	app_result("malloc on a destroyed stream", cudaMallocAsync(&ptr, 512, streams[4]));
	app_result("last error", cudaGetLastError());
	app_result("errno", errno);
	APP_MUST(cudaStreamSynchronize(streams[3]));
}

/* Unusual requests, made after the cache has been filled. */
static void unusual_requests(void)
{
	void *ptr = &ptr;

	churn(ROUNDS, 1);
	errno = 77;
	app_result("no bytes", cudaMalloc(&ptr, 0));
	app_result("NULL for no bytes", ptr == NULL);
	app_result("more than the device has", cudaMalloc(&ptr, SIZE_MAX));
	app_result("last error", cudaGetLastError());
	app_result("malloc with a NULL output", cudaMalloc(NULL, 512));
	app_result("last error", cudaGetLastError());
	app_result("free of NULL", cudaFree(NULL));
	ptr = take(512);
	app_result("free", cudaFree(ptr));
	app_result("free again", cudaFree(ptr));
	app_result("last error", cudaGetLastError());
	app_result("errno", errno);
}

/* Reports whether work goes on after a free of another block. */
static void waiting(void)
{
	void *ptr, *large = take(64 * MIB);
	CUdeviceptr other;

	churn(ROUNDS, 1);
	churn_by_driver();
	ptr = take(4096);
	APP_MUST(cuMemAlloc_v2(&other, 4096));
	APP_MUST(cudaMemsetAsync(large, 1, 64 * MIB, NULL));
	APP_MUST(cudaFree(ptr));
	app_fact("work runs after the free", cuStreamQuery(NULL) != CUDA_SUCCESS);
	APP_MUST(cudaMemsetAsync(large, 2, 64 * MIB, NULL));
	APP_MUST(cuMemFree_v2(other));
	app_fact("work runs after the driver's free", cuStreamQuery(NULL) != CUDA_SUCCESS);
}

/* Returns how many freed blocks are handed out again while the GPU still fills them. */
static unsigned count_reused_while_busy(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		void *old = take(4 * MIB), *new;

		APP_MUST(cudaMemsetAsync(old, 1, 4 * MIB, NULL));
		APP_MUST(cudaFree(old));
		new = take(4 * MIB);
		n += new == old &&cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY;
		APP_MUST(cudaFree(new));
	}
	return n;
}

static void library(void)
{
	const char *name = getenv("APP_LIBRARY");

	app_fact("reused before dlopen", count_reused_while_busy());
	if (!name || !dlopen(name, RTLD_NOW))
		exit(73);
	printf("loaded\n");
	app_fact("reused after dlopen", count_reused_while_busy());
}

/* Uses pinned memory and no device memory. */
static void pinned(void)
{
	unsigned char *host[4] = {NULL};

	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned char **ptr = &host[i % LENGTH(host)];

		if (*ptr && **ptr != (unsigned char)(i - LENGTH(host)))
			app_result("wrong byte", **ptr);
		APP_MUST(cudaFreeHost(*ptr));
		APP_MUST(cudaHostAlloc((void **)ptr, (size_t)4096 << i % 3, i % 2));
		**ptr = (unsigned char)i;
	}
	app_result("wrong free", cudaFreeHost(host[0] + 64));
	app_result("last error", cudaGetLastError());
	app_fact("runtime", simgpu_runtime_calls());
}

/* Returns how many times the driver is asked for a fence while pinned memory is allocated that the pool lacks. */
static uint64_t count_queries_for_pinned(void *busy, size_t bytes)
{
	void *freed, *host;
	uint64_t before;

	APP_MUST(cudaMallocHost(&freed, bytes));
	APP_MUST(cudaMemsetAsync(busy, 1, 64 * MIB, NULL));
	APP_MUST(cudaFreeHost(freed));
	before = app_calls("cuEventQuery");
	APP_MUST(cudaMallocHost(&host, bytes));
	before = app_calls("cuEventQuery") - before;
	APP_MUST(cudaDeviceSynchronize());
	APP_MUST(cudaFreeHost(host));
	return before;
}

/* The same for device memory, where created streams work and the pool needs the fence. */
static uint64_t count_queries_for_device(void *busy, size_t bytes)
{
	void *freed = take(bytes), *ptr;
	uint64_t before;

	APP_MUST(cudaMemsetAsync(busy, 1, 64 * MIB, NULL));
	APP_MUST(cudaFree(freed));
	before = app_calls("cuEventQuery");
	ptr = take(2 * bytes);
	before = app_calls("cuEventQuery") - before;
	APP_MUST(cudaDeviceSynchronize());
	APP_MUST(cudaFree(ptr));
	return before;
}

static void missing(void)
{
	void *busy = take(64 * MIB);
	cudaStream_t stream;

	churn(LIVE, 1);
	APP_MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	APP_MUST(cudaMemsetAsync(busy, 0, 64, stream));
	APP_MUST(cudaDeviceSynchronize());
	app_fact("queries for pinned memory", count_queries_for_pinned(busy, 4096));
	app_fact("queries for device memory", count_queries_for_device(busy, 16 * MIB));
	app_result("last error", cudaGetLastError());
	app_fact("runtime", simgpu_runtime_calls());
}

/* No call is served before the runtime has made its context current. */
static void first(void)
{
	CUcontext ctx = NULL;
	void *ptr;

	APP_MUST(cudaMalloc(&ptr, 4096));
	APP_MUST(cuCtxGetCurrent(&ctx));
	app_result("has a context", ctx != NULL);
	APP_MUST(cudaFree(ptr));
	APP_MUST(cuCtxSetCurrent(NULL));
	app_result("free without a context", cudaFree(take(4096)));
	APP_MUST(cuCtxSetCurrent(NULL));
	app_result("free of NULL", cudaFree(NULL));
	APP_MUST(cuCtxGetCurrent(&ctx));
	app_result("has a context again", ctx != NULL);
}

static void print_is_owner(const char *what, CUcontext wanted)
{
	void *ptr = take(64 * KIB);
	CUcontext ctx = NULL;

	APP_MUST(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)(uintptr_t)ptr));
	app_result(what, ctx == wanted);
	APP_MUST(cudaFree(ptr));
}

/* Memory comes from the context that is current. */
static void contexts(void)
{
	CUcontext primary = NULL, own, popped;
	void *ptr;

	churn(ROUNDS, 2);
	APP_MUST(cuCtxGetCurrent(&primary));
	APP_MUST(cuCtxCreate_v2(&own, 0, 0));
	for (unsigned i = 0; i < 20; i++) {
		print_is_owner("own", own);
		APP_MUST(cuCtxPushCurrent_v2(primary));
		print_is_owner("primary", primary);
		ptr = take(4096);
		APP_MUST(cuCtxPopCurrent_v2(&popped));
		print_is_owner("own again", own);
		app_result("free in the other context", cudaFree(ptr));
	}
	APP_MUST(cuCtxDestroy_v2(own));
	app_result("free after the end of the context", cudaFree(ptr));
	APP_MUST(cuCtxSetCurrent(primary));
	churn(ROUNDS, 3);
	print_is_owner("primary", primary);
}

/* Creates the process's second context by a function that few programs still use. */
static void create_second_context(CUresult (*create)(CUcontext *ctx, unsigned flags, CUdevice device))
{
	CUcontext primary = NULL, own, popped;

	churn(ROUNDS, 2);
	APP_MUST(cuCtxGetCurrent(&primary));
	APP_MUST(create(&own, 0, 0));
	print_is_owner("own", own);
	APP_MUST(cuCtxPopCurrent_v2(&popped));
	print_is_owner("primary", primary);
}

static void made_by_cuda_2(void)
{
	create_second_context(cuCtxCreate);
}

static void made_for_gl(void)
{
	create_second_context(cuGLCtxCreate);
}

static void made_for_gl_v2(void)
{
	create_second_context(cuGLCtxCreate_v2);
}

static CUresult create_for_vdpau(CUcontext *ctx, unsigned flags, CUdevice device)
{
	return cuVDPAUCtxCreate(ctx, flags, device, 0, NULL);
}

static void made_for_vdpau(void)
{
	create_second_context(create_for_vdpau);
}

static CUresult create_for_vdpau_v2(CUcontext *ctx, unsigned flags, CUdevice device)
{
	return cuVDPAUCtxCreate_v2(ctx, flags, device, 0, NULL);
}

static void made_for_vdpau_v2(void)
{
	create_second_context(create_for_vdpau_v2);
}

/* After the pop there is no current context, as far as the driver is concerned. */
static void pop_context(CUresult (*pop)(CUcontext *ctx))
{
	CUcontext popped = NULL;
	CUdeviceptr ptr;

	churn(ROUNDS, 2);
	APP_MUST(pop(&popped));
	app_result("without a context", cuMemAlloc_v2(&ptr, 4096));
	APP_MUST(cuCtxPushCurrent_v2(popped));
	print_is_owner("as before", popped);
}

/* Uses the driver alone. A destroyed context is pushed on top of the only context that is left. */
static void pushed_by_cuda_2(void)
{
	CUcontext destroyed, own;
	CUdeviceptr ptr;

	APP_MUST(cuInit(0));
	APP_MUST(cuCtxCreate_v2(&destroyed, 0, 0));
	APP_MUST(cuCtxDestroy_v2(destroyed));
	APP_MUST(cuCtxCreate_v2(&own, 0, 0));
	churn_by_driver();
	app_result("push of a destroyed context", cuCtxPushCurrent(destroyed));
	app_result("malloc in the destroyed context", cuMemAlloc_v2(&ptr, 4096));
}

static void popped(void)
{
	pop_context(cuCtxPopCurrent_v2);
}

static void popped_by_cuda_2(void)
{
	pop_context(cuCtxPopCurrent);
}

static void devices(void)
{
	void *ptr[2];

	for (int i = 0; i < 40; i++) {
		struct cudaPointerAttributes attributes;

		APP_MUST(cudaSetDevice(i % 2));
		churn(LIVE, (unsigned)i);
		ptr[i % 2] = take(4096);
		APP_MUST(cudaPointerGetAttributes(&attributes, ptr[i % 2]));
		app_result("device", attributes.device);
		if (i % 2) {
			APP_MUST(cudaFree(ptr[0]));
			APP_MUST(cudaFree(ptr[1]));
		}
	}
}

static uint64_t count_context_queries(unsigned seed)
{
	uint64_t before = app_calls("cuCtxGetCurrent");

	churn(ROUNDS, seed);
	churn_by_driver();
	return app_calls("cuCtxGetCurrent") - before;
}

/* Reports how many times the driver is asked which context is current. */
static void context_queries(void)
{
	(void)count_context_queries(9);
	app_fact("context queries", count_context_queries(9));
	APP_MUST(cudaSetDevice(1));
	churn(LIVE, 10);
	APP_MUST(cudaSetDevice(0));
	app_fact("context queries with two devices", count_context_queries(9));
}

/* A caller that looks up a function with RTLD_NEXT bypasses all interposers and may switch contexts unseen. */
static void context_queries_next(void)
{
	(void)count_context_queries(9);
	(void)dlsym(RTLD_NEXT, "cuCtxSetCurrent");
	app_fact("context queries", count_context_queries(9));
}

/* Returns a function of the driver, by a lookup that no interposer sees. */
static void *find_unseen(const char *name)
{
	void *(*next)(void *, const char *) = (__typeof__(next))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");

	if (!next)
		next = (__typeof__(next))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
	return next(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), name);
}

/* Cached blocks are the other context's until a request misses the cache. */
static void made_unseen(void)
{
	CUresult (*create)(CUcontext *, unsigned, CUdevice);
	CUcontext own = NULL;

	churn(ROUNDS, 2);
	create = (__typeof__(create))find_unseen("cuCtxCreate_v2");
	APP_MUST(create(&own, 0, 0));
	APP_MUST(cudaFree(take(3 * MIB)));
	print_is_owner("own", own);
	app_fact("context queries", count_context_queries(9));
}

static void popped_unseen(void)
{
	CUresult (*pop)(CUcontext *), (*push)(CUcontext);
	CUcontext popped = NULL;
	CUdeviceptr ptr;

	churn(ROUNDS, 2);
	pop = (__typeof__(pop))find_unseen("cuCtxPopCurrent_v2");
	push = (__typeof__(push))find_unseen("cuCtxPushCurrent_v2");
	APP_MUST(pop(&popped));
	app_result("without a context", cuMemAlloc_v2(&ptr, 3 * MIB));
	APP_MUST(push(popped));
	app_fact("context queries", count_context_queries(9));
}

/*
 * A library that is opened with RTLD_DEEPBIND finds the driver in its own scope first and may switch contexts unseen.
 */
static void context_queries_behind(void)
{
	(void)count_context_queries(9);
	if (!dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND))
		exit(72);
	app_fact("context queries", count_context_queries(9));
}

static _Atomic bool is_over;

static void *allocate(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	while (!atomic_load(&is_over)) {
		void *ptr = NULL;

		/* A call may fail because a reset has taken its memory away. */
		if (cudaMalloc(&ptr, (size_t)512 << app_random(&seed) % 12) == cudaSuccess)
			(void)cudaFree(ptr);
	}
	return NULL;
}

static void reset(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, allocate, (void *)i))
			exit(71);
	for (unsigned i = 0; i < 50; i++) {
		void *ptr = NULL;

		for (unsigned n = 0; n < 50; n++)
			if (!cudaMalloc(&ptr, 4096))
				(void)cudaFree(ptr);
		(void)cudaDeviceReset();
	}
	atomic_store(&is_over, true);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	(void)cudaDeviceReset();
	(void)cudaGetLastError();
	churn(ROUNDS, 4);
	app_result("last error after the resets", cudaGetLastError());
}

static void *churn_in_thread(void *arg)
{
	churn(ROUNDS, (unsigned)(uintptr_t)arg);
	return NULL;
}

static void threads(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, churn_in_thread, (void *)i))
			exit(71);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	app_result("last error", cudaGetLastError());
}

/* Only a fence can fail like this. The runtime's last error reports each failure, and nothing is freed twice. */
static void failing(void)
{
	unsigned n_errors = 0, n_known = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		void *ptr = NULL, *host = NULL;

		n_errors += cudaMalloc(&ptr, 4096) != cudaSuccess;
		n_errors += ptr && cudaFree(ptr) != cudaSuccess;
		n_known += cudaGetLastError() != cudaSuccess;
		n_errors += cudaMallocHost(&host, 4096) != cudaSuccess;
		n_errors += host && cudaFreeHost(host) != cudaSuccess;
		n_known += cudaGetLastError() != cudaSuccess;
	}
	app_say("errors", "%u, known %u", n_errors, n_known);
	app_pause("failing");
}

static void forked(void)
{
	void *ptr = take(4096);
	int status;
	pid_t child;

	churn(ROUNDS, 5);
	fflush(stdout);
	child = fork();
	if (child == 0) {
		app_result("malloc in the child", cudaMalloc(&ptr, 4096));
		app_result("free in the child", cudaFree(ptr));
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, &status, 0);
	churn(ROUNDS, 6);
	app_result("free", cudaFree(ptr));
}

static void *kept;

static void at_exit(void)
{
	app_result("free at exit", cudaFree(kept));
	app_result("malloc at exit", cudaMalloc(&kept, 4096));
	app_result("last error at exit", cudaGetLastError());
}

static void end_before(void)
{
	(void)atexit(at_exit);
	churn(ROUNDS, 7);
	kept = take(4096);
}

static void end_after(void)
{
	churn(ROUNDS, 8);
	kept = take(4096);
	(void)atexit(at_exit);
}

/* Looks functions up in the scope of the program. */
static void lookup(void)
{
	cudaError_t (*alloc)(void **, size_t) = (__typeof__(alloc))dlsym(RTLD_DEFAULT, "cudaMalloc");
	cudaError_t (*release)(void *) = (__typeof__(release))dlsym(RTLD_NEXT, "cudaFree");

	printf("found: %d %d\n", alloc == cudaMalloc, release != NULL);
	for (unsigned i = 0; i < ROUNDS; i++) {
		void *ptr = NULL;

		APP_MUST(alloc(&ptr, 4096));
		APP_MUST(release(ptr));
	}
	app_result("dlerror has a text", dlerror() != NULL);
}

const struct app_scenario app_scenarios[] = {
	{"loop", loop},
	{"odd-requests", unusual_requests},
	{"waiting", waiting},
	{"library", library},
	{"pinned", pinned},
	{"missing", missing},
	{"first", first},
	{"contexts", contexts},
	{"made-by-cuda-2", made_by_cuda_2},
	{"made-for-gl", made_for_gl},
	{"made-for-gl-v2", made_for_gl_v2},
	{"made-for-vdpau", made_for_vdpau},
	{"made-for-vdpau-v2", made_for_vdpau_v2},
	{"pushed-by-cuda-2", pushed_by_cuda_2},
	{"popped", popped},
	{"popped-by-cuda-2", popped_by_cuda_2},
	{"devices", devices},
	{"context-queries", context_queries},
	{"context-queries-next", context_queries_next},
	{"context-queries-behind", context_queries_behind},
	{"made-unseen", made_unseen},
	{"popped-unseen", popped_unseen},
	{"reset", reset},
	{"threads", threads},
	{"failing", failing},
	{"fork", forked},
	{"end-before", end_before},
	{"end-after", end_after},
	{"lookup", lookup},
	{"stream-pairs", stream_pairs},
	{0},
};
