/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Unmaps memory after waits that are omitted with GPUPOOL_VMM_SYNC=off. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/gpupool.h"
#include "app_virtual.h"

enum { LEARNED = 20 }; /* steps after which both places below are known for what they are */

/* Two places that wait so that the program can unmap memory. They differ, or the compiler would make one of them. */
static __attribute__((noinline)) CUresult wait_to_unmap(void)
{
	volatile CUresult r = cuCtxSynchronize(); /* no jump: this function is the caller */

	return r;
}

static __attribute__((noinline)) CUresult wait_here_to_unmap(void)
{
	volatile CUresult r = CUDA_SUCCESS;

	r = cuCtxSynchronize();
	return r;
}

/* An array in use by the GPU until after the wait, if that is omitted. Returns its address. */
static CUdeviceptr step(CUstream stream, uint32_t value, uint64_t ns)
{
	struct array a;

	make(&a, BYTES);
	app_spin_fill(stream, a.ptr, WORDS, value, ns);
	APP_MUST(value % 2 ? wait_to_unmap() : wait_here_to_unmap());
	drop(&a);
	return a.ptr;
}

/* Returns the program's stream, which is idle. */
static CUstream steps(uint32_t n)
{
	CUstream stream = app_stream();

	for (uint32_t i = 0; i < n; i++)
		(void)step(stream, i, MS / 2);
	APP_MUST(cuStreamSynchronize(stream));
	return stream;
}

/* An array in use by the GPU, after the wait. */
static void use(CUstream stream, struct array *a)
{
	make(a, BYTES);
	app_spin_fill(stream, a->ptr, WORDS, 1, 20 * MS);
	APP_MUST(wait_to_unmap());
}

/* The same, but the memory is mapped twice, so it is not kept. */
static void use_unkept(CUstream stream, struct array *a)
{
	CUdeviceptr again;

	make(a, BYTES);
	APP_MUST(cuMemAddressReserve(&again, BYTES, 0, 0, 0));
	APP_MUST(cuMemMap(again, BYTES, 0, a->handle, 0));
	app_spin_fill(stream, a->ptr, WORDS, 1, 20 * MS);
	APP_MUST(wait_to_unmap());
}

static void say_stream(CUstream stream)
{
	app_result("the stream", cuStreamQuery(stream));
}

void unwaited(void)
{
	app_start();
	(void)steps(100);
	app_fact("waits", app_calls("cuCtxSynchronize"));
	app_report_driver();
}

/* A wait that may be for more than the unmap: the next call is another one. */
void waits_for_more(void)
{
	struct array a, kept;
	CUstream stream;

	app_start();
	stream = app_stream();
	make(&kept, BYTES);
	for (uint32_t i = 0; i < 20; i++) {
		make(&a, BYTES);
		app_spin_fill(stream, a.ptr, WORDS, i, MS / 10);
		APP_MUST(cuCtxSynchronize());
		app_fill(stream, kept.ptr, WORDS, i);
		drop(&a);
	}
	for (uint32_t i = 0; i < 20; i++) {
		make(&a, BYTES);
		app_spin_fill(stream, a.ptr, WORDS, i, MS / 10);
		APP_MUST(cuCtxSynchronize());
		APP_MUST(cuCtxSynchronize());
		APP_MUST(wait_to_unmap());
		drop(&a);
	}
	app_fact("waits", app_calls("cuCtxSynchronize"));
	destroy(&kept);
	app_report_driver();
}

/* The runtime calls the driver for every wait of the program, whatever it is for. */
void waits_of_runtime(void)
{
	void *runtime = dlopen("libcudart.so.13", RTLD_NOW);
	int (*wait)(void) = runtime ? (int (*)(void))dlsym(runtime, "cudaDeviceSynchronize") : NULL;
	CUstream stream;
	struct array a;

	if (!wait)
		abort();
	app_start();
	stream = app_stream();
	for (uint32_t i = 0; i < LEARNED; i++) {
		make(&a, BYTES);
		app_spin_fill(stream, a.ptr, WORDS, i, MS / 2);
		app_result("wait", (CUresult)wait());
		say_stream(stream);
		drop(&a);
	}
	app_report_driver();
}

/* Two waits in a row: the second one is for more than the unmap. */
void waits_twice(void)
{
	struct array a, kept;
	CUstream stream;

	app_start();
	stream = steps(LEARNED);
	make(&kept, BYTES);
	use(stream, &a);
	app_spin_fill(stream, kept.ptr, WORDS, 2, 20 * MS);
	app_result("second wait", wait_here_to_unmap());
	say_stream(stream);
	drop(&a);
	app_report_driver();
}

/* A context is waited for, and then another one. Memory is unmapped while another context is current. */
void waits_in_contexts(void)
{
	CUcontext other;
	CUstream stream;
	struct array a;

	app_start();
	stream = steps(LEARNED);
	APP_MUST(cuCtxCreate_v2(&other, 0, 0));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	use(stream, &a);
	APP_MUST(cuCtxSetCurrent(other));
	app_result("wait for another context", wait_here_to_unmap());
	say_stream(stream);
	APP_MUST(cuCtxSetCurrent(app_ctx));
	drop(&a);
	use_unkept(stream, &a);
	APP_MUST(cuCtxSetCurrent(other));
	drop(&a);
	say_stream(stream);
	app_report_driver();
}

/* Waits while a stream captures; and a capture that begins after a wait. */
void waits_in_captures(void)
{
	struct array a, kept;
	CUgraph graph = NULL;
	CUdeviceptr again;
	CUstream stream;
	int type;

	app_start();
	stream = steps(LEARNED);
	app_result("begin", cuStreamBeginCapture_v2(stream, 0));
	app_result("wait", wait_to_unmap());
	app_result("end", cuStreamEndCapture(stream, &graph));
	for (uint32_t i = 0; i < LEARNED; i++)
		(void)step(stream, i, MS / 2);
	use(stream, &kept);
	drop(&kept);
	use_unkept(stream, &a);
	app_result("begin", cuStreamBeginCapture_v2(app_stream(), 0));
	app_result("query", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, kept.ptr));
	app_result("reserve", cuMemAddressReserve(&again, BYTES, 0, kept.ptr, 0));
	app_result("unmap", cuMemUnmap(a.ptr, BYTES));
	say_stream(stream);
	app_report_driver();
}

/* Memory whose unmap reaches the driver. */
void unwaited_by_driver(void)
{
	CUstream stream;
	struct array a;

	app_start();
	stream = steps(LEARNED);
	use_unkept(stream, &a);
	drop(&a);
	say_stream(stream);
	app_report_driver();
}

static void *drop_there(void *a)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	drop(a);
	return NULL;
}

static void drop_in_thread(struct array *a)
{
	pthread_t thread;

	pthread_create(&thread, NULL, drop_there, a);
	pthread_join(thread, NULL);
}

/* Another thread than that which has waited unmaps the memory. */
void unwaited_by_thread(void)
{
	CUdeviceptr again;
	CUstream stream;
	struct array a;

	app_start();
	stream = steps(LEARNED);
	use_unkept(stream, &a);
	drop_in_thread(&a);
	say_stream(stream);
	for (uint32_t i = 0; i < LEARNED; i++)
		(void)step(stream, i, MS / 2);
	use(stream, &a);
	drop_in_thread(&a);
	app_result("reserve", cuMemAddressReserve(&again, BYTES, 0, a.ptr, 0));
	say_stream(stream);
	app_report_driver();
}

/* Access is taken away before the unmap. */
void unwaited_access(void)
{
	CUmemAccessDesc none = whole_access;
	CUstream stream;
	struct array a;

	app_start();
	stream = steps(LEARNED);
	use(stream, &a);
	none.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	app_result("no access", cuMemSetAccess(a.ptr, BYTES, &none, 1));
	say_stream(stream);
	drop(&a);
	app_report_driver();
}

/* The program keeps the handle and the addresses, and maps the memory again for work of another stream. */
void unwaited_mapped_again(void)
{
	CUstream stream, other;
	struct array a;

	app_start();
	stream = steps(LEARNED);
	other = app_stream();
	use(stream, &a);
	APP_MUST(cuMemUnmap(a.ptr, BYTES));
	APP_MUST(cuMemMap(a.ptr, BYTES, 0, a.handle, 0));
	APP_MUST(cuMemSetAccess(a.ptr, BYTES, &whole_access, 1));
	app_fill(other, a.ptr, WORDS, 2);
	APP_MUST(cuStreamSynchronize(other));
	APP_MUST(cuStreamSynchronize(stream));
	app_say("wrong words", "%zu", app_count_wrong(other, a.ptr, WORDS, 2));
	drop(&a);
	app_report_driver();
}

/* Memory that goes back to the driver soon after an unmap. */
void unwaited_goes_back(void)
{
	CUdeviceptr ptr, again;
	CUstream stream;

	app_start();
	stream = steps(LEARNED);
	(void)step(stream, 1, 20 * MS);
	(void)gpupool_reclaim(GPUPOOL_ALL_DEVICES);
	say_stream(stream);
	app_say("any bytes given back after a wait", "%d", gpupool_free_now(GPUPOOL_ALL_DEVICES) > 0);
	say_stream(stream);
	ptr = step(stream, 1, 20 * MS);
	app_result("at its address", cuMemAddressReserve(&again, BYTES, 0, ptr, 0));
	app_report_driver();
}

/* Work that is submitted after the unmap waits for the host, so no call may wait for it. */
void unwaited_later_work(void)
{
	CUmemGenericAllocationHandle large;
	CUdeviceptr again;
	uint32_t *flag;
	CUstream stream;
	struct array a, b;
	int type;

	app_start();
	stream = steps(LEARNED);
	APP_MUST(cuMemAllocHost_v2((void **)&flag, KIB));
	*flag = 0;
	use_unkept(stream, &b);
	use(stream, &a);
	drop(&a);
	app_spin_until(app_stream(), flag, 1);
	app_result("query", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a.ptr));
	app_result("reserve", cuMemAddressReserve(&again, BYTES, 0, a.ptr, 0));
	app_result("too much", cuMemCreate(&large, 64 * KIB * MIB, &properties, 0));
	app_result("unmap", cuMemUnmap(b.ptr, BYTES));
	*flag = 1;
	APP_MUST(cuCtxSynchronize());
	app_report_driver();
}

static void await_flag(void *flag)
{
	while (!atomic_load((_Atomic bool *)flag))
		usleep(100);
}

/* Work in another context, which waits for the host, is running all along. The thread does not wait for it. */
void unwaited_beside_work(void)
{
	static _Atomic bool flag;
	CUstream stream, other;
	CUcontext beside;
	struct array a;

	app_start();
	stream = steps(LEARNED);
	APP_MUST(cuCtxCreate_v2(&beside, 0, 0));
	(void)app_alloc(KIB);
	other = app_stream();
	APP_MUST(cuLaunchHostFunc(other, await_flag, &flag));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	use_unkept(stream, &a);
	drop(&a);
	say_stream(stream);
	atomic_store(&flag, true);
	APP_MUST(cuCtxSetCurrent(beside));
	APP_MUST(cuStreamSynchronize(other));
	app_report_driver();
}

static CUcontext created;
static CUdeviceptr ended_ptr;
static _Atomic int reserving; /* the thread that reserves addresses; -1: it is done */

static void *reserve_there(void *unused)
{
	CUdeviceptr ptr;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	atomic_store(&reserving, gettid());
	app_result("reserve", cuMemAddressReserve(&ptr, BYTES, 0, ended_ptr, 0));
	atomic_store(&reserving, -1);
	return NULL;
}

static void *end_there(void *unused)
{
	APP_MUST(cuCtxDestroy_v2(created));
	return NULL;
}

/* The context of the work ends. Meanwhile another thread asks for the addresses. */
void unwaited_ends(void)
{
	pthread_t end, reserve;
	CUstream stream;
	int thread;

	app_start();
	(void)app_alloc(KIB);
	APP_MUST(cuCtxCreate_v2(&created, 0, 0));
	app_load_kernels();
	(void)app_alloc(KIB);
	stream = steps(LEARNED);
	ended_ptr = step(stream, 1, 200 * MS);
	app_stop_calls("cuCtxDestroy_v2", false);
	pthread_create(&end, NULL, end_there, NULL);
	app_await_stopped_call();
	pthread_create(&reserve, NULL, reserve_there, NULL);
	while (!(thread = atomic_load(&reserving)) || (thread > 0 && !app_is_asleep(thread)))
		usleep(100);
	app_release_calls();
	pthread_join(reserve, NULL);
	pthread_join(end, NULL);
	app_report_driver();
}
