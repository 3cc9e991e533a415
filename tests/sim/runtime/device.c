/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Finds the driver, and manages devices and contexts. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

#define MAX_DEVICES 64

struct rt_driver rt_driver;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cudaError_t load_result;
static _Atomic(CUcontext) primaries[MAX_DEVICES]; /* retained by this copy of the runtime; changed under lock */
static __thread int chosen;                       /* the device of the last cudaSetDevice */
static __thread bool is_choice_due;               /* no call has made its context current yet */
enum { IS_CHOICE_LAZY = RT_VERSION < 12000 };

/*
 * When the runtime retains a primary context (SIMGPU_RUNTIME_RETAINS): before it makes the context current; after that;
 * or it does both by the driver's own means, which no lookup sees. It has the handle before it retains the context.
 */
static enum { RETAINS_FIRST, RETAINS_LATE, RETAINS_UNSEEN } retains;
static const struct sim_runtime_interface *interface;

static const struct {
	size_t offset;
	const char *symbol;
	int version;
	unsigned flags;
} wanted[] = {
#define RT_DRIVER(name, public, version, flags) {offsetof(struct rt_driver, name), #public, version, flags},
#include "driver.def"
#undef RT_DRIVER
};

typedef __typeof__(&cuGetProcAddress_v2) lookup_fn;

static void *look_up(lookup_fn lookup, const char *symbol, int version, unsigned flags)
{
	void *found = NULL;

	return lookup(symbol, &found, version, flags, NULL) ? NULL : found;
}

/* Asks for the handle of each device's primary context, as the real runtime does. */
static void find_interface(void)
{
	static const CUuuid id = {SIM_RUNTIME_INTERFACE};
	const char *setting = getenv("SIMGPU_RUNTIME_RETAINS");
	const void *table = NULL;
	CUcontext handle;
	int count = 0;

	if (!rt_driver.cuGetExportTable || rt_driver.cuGetExportTable(&table, &id))
		return;
	interface = table;
	for (int i = 0; !rt_driver.cuDeviceGetCount(&count) && i < count; i++)
		(void)interface->primary_handle(&handle, i);
	if (setting && !strcmp(setting, "late"))
		retains = RETAINS_LATE;
	else if (setting && !strcmp(setting, "unseen"))
		retains = RETAINS_UNSEEN;
}

/*
 * Finds the driver's functions as the real runtime does: one dlsym, a probe, a lookup of the lookup
 * function through itself, and all other lookups through the result.
 */
static void load(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found = NULL;
	lookup_fn first = NULL;

	load_result = cudaErrorInsufficientDriver;
	/* With SIMGPU_RUNTIME_GLOBAL, a library in the program can interpose the lookup function. */
	if (driver)
		first = (lookup_fn)dlsym(
			getenv("SIMGPU_RUNTIME_GLOBAL") ? RTLD_DEFAULT : driver, "cuGetProcAddress_v2");
	if (!first || first("", &found, 0, 0, NULL) == CUDA_ERROR_STUB_LIBRARY)
		return;
	rt_driver.cuInit = (__typeof__(&cuInit))look_up(first, "cuInit", 2000, 0);
	look_up(first, "cuGetProcAddress", 11030, 0);
	rt_driver.cuGetProcAddress_v2 = (lookup_fn)look_up(first, "cuGetProcAddress", 12000, 0);
	if (!rt_driver.cuInit || !rt_driver.cuGetProcAddress_v2)
		return;
	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
		found = look_up(rt_driver.cuGetProcAddress_v2, wanted[i].symbol, wanted[i].version, wanted[i].flags);
		memcpy((char *)&rt_driver + wanted[i].offset, &found, sizeof(found));
	}
	load_result = rt_driver.cuInit(0);
	if (!load_result)
		find_interface();
}

cudaError_t rt_enter_without_context(void)
{
	pthread_once(&once, load);
	return load_result;
}

/* Makes the context current for the retain. */
static CUresult retain_late(CUcontext *ctx, int device)
{
	CUcontext before = NULL;
	CUresult result = interface->primary_handle(ctx, device);

	if (!result)
		result = rt_driver.cuCtxGetCurrent(&before);
	if (!result)
		result = rt_driver.cuCtxSetCurrent(*ctx);
	if (!result)
		result = rt_driver.cuDevicePrimaryCtxRetain(ctx, device);
	return result ? result : rt_driver.cuCtxSetCurrent(before);
}

static CUresult set_current(CUcontext ctx)
{
	return retains == RETAINS_UNSEEN ? interface->set_current(ctx) : rt_driver.cuCtxSetCurrent(ctx);
}

static CUresult retain(CUcontext *ctx, int device)
{
	switch (retains) {
	case RETAINS_LATE:
		return retain_late(ctx, device);
	case RETAINS_UNSEEN:
		return interface->primary_retain(ctx, device);
	default:
		return rt_driver.cuDevicePrimaryCtxRetain(ctx, device);
	}
}

cudaError_t rt_primary(int device, CUcontext *ctx)
{
	cudaError_t error = cudaSuccess;

	if (device < 0 || device >= MAX_DEVICES)
		return cudaErrorInvalidDevice;
	pthread_mutex_lock(&lock);
	*ctx = primaries[device];
	if (!*ctx)
		error = retain(ctx, device);
	if (!error)
		primaries[device] = *ctx;
	pthread_mutex_unlock(&lock);
	return error;
}

cudaError_t rt_enter(void)
{
	cudaError_t error = rt_enter_without_context();
	CUcontext current = NULL, primary;

	if (error)
		return error;
	error = rt_driver.cuCtxGetCurrent(&current);
	if (!error && is_choice_due) {
		is_choice_due = false;
		current = NULL;
	}
	if (error || (current && current != primaries[chosen] && primaries[chosen]))
		return error; /* the program has made another context current */
	if (current && primaries[chosen])
		return cudaSuccess;
	error = rt_primary(chosen, &primary);
	return error ? error : set_current(primary);
}

/* Works without a driver. */
cudaError_t cudaRuntimeGetVersion(int *version)
{
	if (!version)
		return rt_done(cudaErrorInvalidValue);
	*version = RT_VERSION;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
	return rt_done(rt_enter_without_context() ?: rt_driver.cuDeviceGetCount(count));
}

cudaError_t cudaGetDevice(int *device)
{
	CUcontext current = NULL;
	cudaError_t error = rt_enter_without_context();

	if (error || !device)
		return rt_done(error ? error : cudaErrorInvalidValue);
	rt_driver.cuCtxGetCurrent(&current);
	if (!current || rt_driver.cuCtxGetDevice(device))
		*device = chosen;
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
	cudaError_t error = rt_enter_without_context();
	CUcontext ctx;
	int count = 0;

	if (!error)
		error = rt_driver.cuDeviceGetCount(&count);
	if (!error && (device < 0 || device >= count))
		error = cudaErrorInvalidDevice;
	if (!error && !IS_CHOICE_LAZY)
		error = rt_primary(device, &ctx);
	if (!error && !IS_CHOICE_LAZY)
		error = set_current(ctx);
	if (!error)
		chosen = device;
	is_choice_due = !error && IS_CHOICE_LAZY;
	return rt_done(error);
}

cudaError_t cudaDeviceSynchronize(void)
{
	return RT_CALL(cuCtxSynchronize);
}

cudaError_t cudaDeviceReset(void)
{
	cudaError_t error = rt_enter();

	if (error)
		return rt_done(error);
	pthread_mutex_lock(&lock);
	error = rt_driver.cuDevicePrimaryCtxReset(chosen);
	primaries[chosen] = NULL;
	pthread_mutex_unlock(&lock);
	return rt_done(error);
}

cudaError_t cudaGetDriverEntryPointByVersion(
	const char *symbol, void **pfn, unsigned version, unsigned long long flags, int *status)
{
	cudaError_t error = rt_enter_without_context();
	int found = cudaDriverEntryPointSymbolNotFound;

	if (error || !symbol || !pfn)
		return rt_done(error ? error : cudaErrorInvalidValue);
	error = rt_driver.cuGetProcAddress_v2(symbol, pfn, (int)version, flags, &found);
	if (status)
		*status = found;
	return rt_done(error ? error : !status && found ? cudaErrorSymbolNotFound : cudaSuccess);
}
