/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Several devices, with and without peer access: the owner of memory, the devices that can reach it, and the effect of
 * a reset of one device on the others. No scenario frees memory that another device still uses: a real free does not
 * wait for that device (measured), so such a program is wrong.
 */

#include <pthread.h>

#include "devices.h"

static const size_t sizes[] = {300, 70 * KIB, MIB + 1, 16 * MIB};

static int ordinal_of(CUdeviceptr ptr)
{
	int ordinal = -1;

	APP_MUST(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr));
	return ordinal;
}

/* T8.6: memory comes from the current device, and returns there even if another device is current at the free. */
static void each(int n)
{
	unsigned seed = 3, misplaced = 0, wrong = 0;

	if (!devices_start(n))
		return;
	for (unsigned i = 0; i < 300; i++) {
		CUdeviceptr ptr[DEVICES_MAX];
		size_t bytes = sizes[app_random(&seed) % LENGTH(sizes)];

		for (int d = 0; d < n; d++) {
			devices_enter(d);
			ptr[d] = app_alloc(bytes);
			misplaced += ordinal_of(ptr[d]) != d;
			if (bytes >= WORDS * 4)
				APP_MUST(devices_fill(d, ptr[d], i));
		}
		for (int d = 0; d < n; d++) {
			if (bytes >= WORDS * 4)
				wrong += devices_count_wrong(d, ptr[d], i);
			devices_enter((int)(app_random(&seed) % (unsigned)n));
			APP_MUST(cuMemFree_v2(ptr[d]));
		}
	}
	app_result("on another device", (int)misplaced);
	app_result("wrong words", (int)wrong);
}

static void each_of_two(void)
{
	each(2);
}

static void each_of_four(void)
{
	each(4);
}

/* T8.8: blocks that are in use or cached when access is enabled, and blocks that are allocated later. */
static void peers(void)
{
	CUdeviceptr before[LENGTH(sizes)], cached[LENGTH(sizes)];
	unsigned wrong = 0;

	if (!devices_start_peers())
		return;
	for (size_t i = 1; i < LENGTH(sizes); i++) {
		before[i] = app_alloc(sizes[i]);
		cached[i] = app_alloc(sizes[i]);
		APP_MUST(cuMemFree_v2(cached[i]));
	}
	devices_enable_access(1, 0);
	app_result("enable again", cuCtxEnablePeerAccess(devices[0].ctx, 0));
	for (unsigned round = 0; round < 20; round++) {
		for (size_t i = 1; i < LENGTH(sizes); i++) {
			CUdeviceptr ptr;

			devices_enter(0);
			ptr = app_alloc(sizes[i]);
			devices_fill_and_wait(1, ptr, round);
			wrong += devices_count_wrong(0, ptr, round);
			devices_fill_and_wait(0, ptr, ~round);
			wrong += devices_count_wrong(1, ptr, ~round);
			devices_fill_and_wait(1, before[i], round);
			wrong += devices_count_wrong(0, before[i], round);
			devices_enter(round % 2);
			APP_MUST(cuMemFree_v2(ptr));
		}
	}
	app_result("wrong words", (int)wrong);
	for (size_t i = 1; i < LENGTH(sizes); i++)
		app_result("free", cuMemFree_v2(before[i]));
}

/* Copies between devices, with and without access, from blocks that the pool has just reused. */
static void copy_round(unsigned round, unsigned *wrong)
{
	for (int from = 0; from < n_devices; from++) {
		int to = (from + 1) % n_devices;
		CUdeviceptr source, target;

		devices_enter(from);
		source = app_alloc(MIB);
		devices_fill_and_wait(from, source, round);
		devices_enter(to);
		target = app_alloc(MIB);
		if (round % 2) {
			APP_MUST(cuMemcpyPeer(target, devices[to].ctx, source, devices[from].ctx, WORDS * 4));
			APP_MUST(cuCtxSynchronize());
		} else {
			APP_MUST(cuMemcpyPeerAsync(
				target, devices[to].ctx, source, devices[from].ctx, WORDS * 4, devices[to].stream));
			APP_MUST(cuStreamSynchronize(devices[to].stream));
		}
		APP_MUST(cuMemFree_v2(source));
		*wrong += devices_count_wrong(to, target, round);
		devices_enter(from);
		APP_MUST(cuMemFree_v2(target));
	}
}

static void copies(int n)
{
	unsigned wrong = 0;

	if (!devices_start(n))
		return;
	for (unsigned i = 0; i < 40; i++)
		copy_round(i, &wrong);
	app_result("wrong words", (int)wrong);
	for (int d = 0; d < n; d++) {
		devices_enter(d);
		(void)cuCtxEnablePeerAccess(devices[(d + 1) % n].ctx, 0);
	}
	for (unsigned i = 0; i < 40; i++)
		copy_round(i, &wrong);
	app_result("wrong words", (int)wrong);
}

static void copies_of_two(void)
{
	copies(2);
}

static void copies_of_four(void)
{
	copies(4);
}

/* Every device can use pinned memory. One device reads it, and it is freed while that device is current. */
static void pinned(void)
{
	unsigned wrong = 0;

	if (!devices_start(2))
		return;
	for (unsigned i = 0; i < 60; i++) {
		int by = (int)(i % 2), other = !by;
		CUdeviceptr ptr;
		uint32_t *host;

		devices_enter(by);
		APP_MUST(cuMemHostAlloc((void **)&host, WORDS * 4, CU_MEMHOSTALLOC_PORTABLE));
		for (unsigned k = 0; k < WORDS; k++)
			host[k] = i;
		devices_enter(other);
		ptr = app_alloc(WORDS * 4);
		APP_MUST(cuMemcpyHtoDAsync_v2(ptr, host, WORDS * 4, devices[other].stream));
		wrong += devices_count_wrong(other, ptr, i);
		APP_MUST(cuMemFreeHost(host));
		devices_enter(by);
		APP_MUST(cuMemFree_v2(ptr));
	}
	app_result("wrong words", (int)wrong);
}

static _Atomic unsigned n_bad, n_wrong;

static void check(CUresult r, const char *what)
{
	if (r && !n_bad++)
		app_result(what, r);
}

#define CHECK(call) check((call), #call)

static CUdeviceptr handed[DEVICES_MAX][16];
static pthread_mutex_t handed_lock = PTHREAD_MUTEX_INITIALIZER;

static CUdeviceptr exchange(int device, unsigned i, CUdeviceptr ptr)
{
	CUdeviceptr old;

	pthread_mutex_lock(&handed_lock);
	old = handed[device][i];
	handed[device][i] = ptr;
	pthread_mutex_unlock(&handed_lock);
	return old;
}

/* The work of a thread for each device. Each thread frees blocks that another thread has allocated. */
static void *work(void *arg)
{
	int device = (int)(uintptr_t)arg, next = (device + 1) % n_devices;
	unsigned seed = (unsigned)device + 1;

	for (unsigned i = 0; i < 200; i++) {
		CUdeviceptr ptr = 0;

		devices_enter(device);
		CHECK(cuMemAlloc_v2(&ptr, sizes[1 + app_random(&seed) % (LENGTH(sizes) - 1)]));
		CHECK(devices_fill(device, ptr, i));
		CHECK(cuStreamSynchronize(devices[device].stream));
		if (i % 8 == 0)
			n_wrong += devices_count_wrong(device, ptr, i);
		ptr = exchange(next, app_random(&seed) % 16, ptr);
		if (ptr)
			CHECK(cuMemFree_v2(ptr));
		ptr = exchange(device, app_random(&seed) % 16, 0);
		if (ptr)
			CHECK(cuMemFree_v2(ptr));
	}
	return NULL;
}

static void threads(int n)
{
	pthread_t all[DEVICES_MAX];

	if (!devices_start(n))
		return;
	for (int d = 0; d < n; d++)
		pthread_create(&all[d], NULL, work, (void *)(intptr_t)d);
	for (int d = 0; d < n; d++)
		pthread_join(all[d], NULL);
	app_result("bad", (int)n_bad);
	app_result("wrong words", (int)n_wrong);
}

static void threads_of_two(void)
{
	threads(2);
}

static void threads_of_four(void)
{
	threads(4);
}

/* Resets the first device repeatedly, with live, cached and pending blocks, while other threads use the second. */
static void *reset_again(void *unused)
{
	unsigned n = app_calls("cuInit") ? 40 : 5;

	devices_enter(0);
	for (unsigned i = 0; i < n; i++) {
		CUdeviceptr kept = 0, freed = 0;

		for (size_t k = 1; k < LENGTH(sizes); k++) {
			CHECK(cuMemAlloc_v2(&kept, sizes[k]));
			CHECK(cuMemAlloc_v2(&freed, sizes[k]));
			CHECK(devices_fill(0, freed, i));
			CHECK(cuMemFree_v2(freed));
			devices_fill_and_wait(0, kept, i);
			n_wrong += devices_count_wrong(0, kept, i);
		}
		CHECK(cuDevicePrimaryCtxReset_v2(0));
		devices_start_one(0);
	}
	return NULL;
}

static void *work_beside(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < 200; i++) {
		CUdeviceptr ptr = 0;

		devices_enter(1);
		CHECK(cuMemAlloc_v2(&ptr, sizes[1 + app_random(&seed) % (LENGTH(sizes) - 1)]));
		CHECK(devices_fill(1, ptr, i));
		n_wrong += devices_count_wrong(1, ptr, i);
		CHECK(cuMemFree_v2(ptr));
	}
	return NULL;
}

static void reset_beside(void)
{
	pthread_t others[2], first;

	if (!devices_start(2))
		return;
	pthread_create(&first, NULL, reset_again, NULL);
	for (uintptr_t i = 0; i < LENGTH(others); i++)
		pthread_create(&others[i], NULL, work_beside, (void *)i);
	for (unsigned i = 0; i < LENGTH(others); i++)
		pthread_join(others[i], NULL);
	pthread_join(first, NULL);
	app_result("bad", (int)n_bad);
	app_result("wrong words", (int)n_wrong);
}

/* Devices that the environment hides have no number. The first visible device has number 0. */
static void hidden(void)
{
	int n = -1;

	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	app_result("init", cuInit(0));
	app_result("count", cuDeviceGetCount(&n));
	app_result("devices", n);
	if (n < 1)
		return;
	devices_start_one(0);
	for (unsigned i = 0; i < 20; i++) {
		CUdeviceptr ptr = app_alloc(MIB);

		devices_fill_and_wait(0, ptr, i);
		n_wrong += devices_count_wrong(0, ptr, i);
		n_bad += ordinal_of(ptr) != 0;
		APP_MUST(cuMemFree_v2(ptr));
	}
	app_result("wrong words", (int)n_wrong);
	app_result("on another device", (int)n_bad);
}

const struct app_scenario app_scenarios[] = {
	{"each-of-two", each_of_two, 0},
	{"each-of-four", each_of_four, 0},
	{"peers", peers, 0},
	{"copies-of-two", copies_of_two, 0},
	{"copies-of-four", copies_of_four, 0},
	{"pinned", pinned, 0},
	{"threads-of-two", threads_of_two, 0},
	{"threads-of-four", threads_of_four, 0},
	{"reset-beside", reset_beside, 0},
	{"hidden", hidden, 0},
	{0},
};
