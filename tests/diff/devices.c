/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "devices.h"

#include "tests/apps/kernels.h"

struct device devices[DEVICES_MAX];
int n_devices;

void devices_enter(int device)
{
	APP_MUST(cuCtxSetCurrent(devices[device].ctx));
}

static void load(struct device *d)
{
	CUmodule module;

	APP_MUST(cuModuleLoadData(&module, kernels_ptx));
	APP_MUST(cuModuleGetFunction(&d->fill, module, "fill"));
	d->stream = app_stream();
}

void devices_start_one(int device)
{
	struct device *d = &devices[device];

	APP_MUST(cuDevicePrimaryCtxRetain(&d->ctx, device));
	devices_enter(device);
	load(d);
}

void devices_create(int device)
{
	struct device *d = &devices[device];

	APP_MUST(cuCtxCreate_v2(&d->ctx, 0, device));
	load(d);
}

bool devices_start(int n)
{
	APP_MUST(cuInit(0));
	APP_MUST(cuDeviceGetCount(&n_devices));
	if (n_devices < n) {
		printf("skipped: %d devices\n", n);
		return false;
	}
	n_devices = n;
	for (int i = n; i-- > 0;)
		devices_start_one(i);
	return true;
}

bool devices_start_peers(void)
{
	int can[2] = {0};

	if (!devices_start(2))
		return false;
	APP_MUST(cuDeviceCanAccessPeer(&can[0], 0, 1));
	APP_MUST(cuDeviceCanAccessPeer(&can[1], 1, 0));
	if (!can[0] || !can[1])
		printf("skipped: peers\n");
	return can[0] && can[1];
}

void devices_enable_access(int device, int peer)
{
	devices_enter(device);
	app_result("enable", cuCtxEnablePeerAccess(devices[peer].ctx, 0));
}

CUresult devices_fill(int device, CUdeviceptr ptr, uint32_t value)
{
	uint64_t words = WORDS;
	void *params[] = {&ptr, &words, &value};

	devices_enter(device);
	return cuLaunchKernel(devices[device].fill, 1, 1, 1, 64, 1, 1, 0, devices[device].stream, params, NULL);
}

void devices_fill_and_wait(int device, CUdeviceptr ptr, uint32_t value)
{
	APP_MUST(devices_fill(device, ptr, value));
	APP_MUST(cuStreamSynchronize(devices[device].stream));
}

unsigned devices_count_wrong(int device, CUdeviceptr ptr, uint32_t value)
{
	devices_enter(device);
	return (unsigned)app_count_wrong(devices[device].stream, ptr, WORDS * 4, value);
}
