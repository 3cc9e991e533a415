/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Asks the real driver about behaviour on which the design rests. The answers are only printed: none passes or fails.
 * Run it without the preload.
 */

#include "gpu.h"

#include <cuda.h>
#include <cudaTypedefs.h>

static const size_t GIB = (size_t)1 << 30;
static const unsigned long long BUSY_NS = 300000000;

/*
 * One row for each function of the driver: its name (without cu, since cuda.h defines some names as macros), the
 * version in the name of its type, and the type.
 */
#define FUNCTIONS(FUNCTION)                                                \
	FUNCTION(CtxGetCurrent, 4000, PFN_cuCtxGetCurrent_v4000)           \
	FUNCTION(CtxGetDevice, 2000, PFN_cuCtxGetDevice_v2000)             \
	FUNCTION(CtxGetId, 12000, PFN_cuCtxGetId_v12000)                   \
	FUNCTION(CtxRecordEvent, 12050, PFN_cuCtxRecordEvent_v12050)       \
	FUNCTION(CtxWaitEvent, 12050, PFN_cuCtxWaitEvent_v12050)           \
	FUNCTION(EventQuery, 2000, PFN_cuEventQuery_v2000)                 \
	FUNCTION(MemAlloc, 3020, PFN_cuMemAlloc_v3020)                     \
	FUNCTION(MemFreeAsync, 11020, PFN_cuMemFreeAsync_v11020)           \
	FUNCTION(MemGetInfo, 3020, PFN_cuMemGetInfo_v3020)                 \
	FUNCTION(StreamIsCapturing, 10000, PFN_cuStreamIsCapturing_v10000) \
	FUNCTION(StreamQuery, 2000, PFN_cuStreamQuery_v2000)               \
	FUNCTION(StreamSynchronize, 2000, PFN_cuStreamSynchronize_v2000)   \
	FUNCTION(StreamWaitEvent, 3020, PFN_cuStreamWaitEvent_v3020)       \
	FUNCTION(ThreadExchangeStreamCaptureMode, 10010, PFN_cuThreadExchangeStreamCaptureMode_v10010)

static struct {
#define FUNCTION(name, version, type) type name;
	FUNCTIONS(FUNCTION)
#undef FUNCTION
} driver;

#define DRIVER_CHECK(call) CHECK((call) == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown)

static void *find(const char *name, unsigned version)
{
	cudaDriverEntryPointQueryResult found;
	void *fn = nullptr;

	CHECK(cudaGetDriverEntryPointByVersion(name, &fn, version, cudaEnableDefault, &found));
	CHECK(found == cudaDriverEntryPointSuccess ? cudaSuccess : cudaErrorSymbolNotFound);
	return fn;
}

static void load()
{
#define FUNCTION(name, version, type) driver.name = (type)find("cu" #name, version);
	FUNCTIONS(FUNCTION)
#undef FUNCTION
}

/* Writes repeatedly until the time is up, so that unmapping the memory meanwhile causes an error. */
__global__ void keep_writing(volatile char *p, size_t bytes, unsigned long long ns)
{
	unsigned long long start = gpu_clock_ns();
	size_t step = (size_t)gridDim.x * blockDim.x;

	while (gpu_clock_ns() - start < ns)
		for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < bytes; i += step * 64)
			p[i] = 1;
}

static size_t free_mib()
{
	size_t free_bytes, total;

	DRIVER_CHECK(driver.MemGetInfo(&free_bytes, &total));
	return free_bytes >> 20;
}

struct state {
	CUcontext ctx;
	CUevent event;
	CUstream busy, own;
};

/*
 * Asks about giving memory back behind an incomplete fence: whether the host waits, whether the kernel continues
 * undisturbed, and when the memory counts as free.
 */
static void release_behind_fence(struct state *s, bool is_busy, const char *name)
{
	CUdeviceptr p;
	size_t before, at_once, at_query, after_sync;
	double start, host_ms, query_ms, sync_ms;
	CUresult wait, released, last;

	DRIVER_CHECK(driver.MemAlloc(&p, GIB));
	CHECK(cudaMemset((void *)p, 0, GIB));
	CHECK(cudaDeviceSynchronize());
	before = free_mib();
	if (is_busy)
		keep_writing<<<32, 256, 0, s->busy>>>((volatile char *)p, GIB, BUSY_NS);
	start = now_ns();
	DRIVER_CHECK(driver.CtxRecordEvent(s->ctx, s->event));
	wait = driver.StreamWaitEvent(s->own, s->event, 0);
	released = driver.MemFreeAsync(p, s->own);
	host_ms = (now_ns() - start) / 1e6;
	at_once = free_mib() - before;
	while ((last = driver.StreamQuery(s->own)) == CUDA_ERROR_NOT_READY)
		;
	query_ms = (now_ns() - start) / 1e6;
	at_query = free_mib() - before;
	DRIVER_CHECK(driver.StreamSynchronize(s->own));
	sync_ms = (now_ns() - start) / 1e6;
	after_sync = free_mib() - before;
	printf("release gpu=%s wait=%d free_async=%d host_ms=%.3f at_once_mib=%zd query=%d "
	       "query_ms=%.1f at_query_mib=%zd sync_ms=%.1f after_sync_mib=%zd kernel=%s\n",
		name, wait, released, host_ms, (ssize_t)at_once, last, query_ms, (ssize_t)at_query, sync_ms,
		(ssize_t)after_sync, cudaGetErrorName(cudaDeviceSynchronize()));
}

/*
 * Asks whether memory of that size can be allocated right after the query, without a cuMemGetInfo, which could be what
 * releases it.
 */
static void reuse_after_query(struct state *s)
{
	CUdeviceptr p;
	double start, alloc_ms;
	size_t before;

	DRIVER_CHECK(driver.MemAlloc(&p, 32 * GIB));
	CHECK(cudaDeviceSynchronize());
	before = free_mib();
	DRIVER_CHECK(driver.MemFreeAsync(p, s->own));
	while (driver.StreamQuery(s->own) == CUDA_ERROR_NOT_READY)
		;
	start = now_ns();
	DRIVER_CHECK(driver.MemAlloc(&p, 32 * GIB));
	alloc_ms = (now_ns() - start) / 1e6;
	printf("reuse_after_query bytes=%zu alloc_ms=%.3f more_used_mib=%zd\n", 32 * GIB, alloc_ms,
		(ssize_t)(before - free_mib()));
	DRIVER_CHECK(driver.MemFreeAsync(p, s->own));
	DRIVER_CHECK(driver.StreamSynchronize(s->own));
}

/* Makes few calls in each repeat, since behind a busy GPU each may add to a queue. */
template <typename F> static void cost(const char *name, const char *gpu, F call)
{
	std::vector<double> repeats;
	const int n = 300;

	for (int i = 0; i < 9; i++) {
		double start = now_ns();

		for (int k = 0; k < n; k++)
			call();
		repeats.push_back((now_ns() - start) / n);
	}
	printf("cost call=%s gpu=%s ns=%.1f\n", name, gpu, median(repeats));
}

static void costs(struct state *s, const char *gpu)
{
	CUcontext ctx;
	CUdevice device;
	unsigned long long id;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstreamCaptureStatus status;
	size_t a, b;

	cost("cuCtxGetCurrent", gpu, [&] { driver.CtxGetCurrent(&ctx); });
	cost("cuCtxGetDevice", gpu, [&] { driver.CtxGetDevice(&device); });
	cost("cuCtxGetId", gpu, [&] { driver.CtxGetId(s->ctx, &id); });
	cost("cuThreadExchangeStreamCaptureMode", gpu, [&] { driver.ThreadExchangeStreamCaptureMode(&mode); });
	cost("cuStreamIsCapturing", gpu, [&] { driver.StreamIsCapturing(s->own, &status); });
	cost("cuEventQuery", gpu, [&] { driver.EventQuery(s->event); });
	cost("cuStreamQuery", gpu, [&] { driver.StreamQuery(s->own); });
	cost("cuCtxRecordEvent", gpu, [&] { driver.CtxRecordEvent(s->ctx, s->event); });
	cost("cuCtxWaitEvent", gpu, [&] { driver.CtxWaitEvent(s->ctx, s->event); });
	cost("cuMemGetInfo", gpu, [&] { driver.MemGetInfo(&a, &b); });
}

int main()
{
	struct state s = {};
	cudaStream_t busy, own;
	cudaEvent_t event;
	char *p;

	gpu_require();
	CHECK(cudaFree(nullptr));
	load();
	CHECK(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
	CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	s = {nullptr, event, busy, own};
	DRIVER_CHECK(driver.CtxGetCurrent(&s.ctx));
	CHECK(cudaMalloc(&p, 4096));
	keep_writing<<<32, 256, 0, busy>>>(p, 4096, 1);
	CHECK(cudaDeviceSynchronize());
	/* The first call is slower, because the driver initialises itself. */
	release_behind_fence(&s, false, "first");
	release_behind_fence(&s, false, "idle");
	for (int i = 0; i < 3; i++)
		release_behind_fence(&s, true, "busy");
	reuse_after_query(&s);
	costs(&s, "idle");
	keep_writing<<<1, 32, 0, busy>>>(p, 32, 3000000000ull);
	DRIVER_CHECK(driver.CtxRecordEvent(s.ctx, s.event));
	costs(&s, "busy");
	CHECK(cudaDeviceSynchronize());
	return 0;
}
