/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The driver as a whole, and queries about devices. */

#include <stdlib.h>
#include <string.h>

#include "ctx.h"

/* An exit handler: calls return DEINITIALIZED in exit handlers that were registered before cuInit. */
static void deinitialise(void)
{
	pthread_mutex_lock(&sim.lock);
	sim.deinitialised = true;
	pthread_mutex_unlock(&sim.lock);
}

CUresult cuInit(unsigned flags)
{
	SIM_BEGIN(cuInit);
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim.initialised)
		return CUDA_SUCCESS;
	if (!sim.config.devices)
		return CUDA_ERROR_NO_DEVICE;
	SIM_TRY(sim_devices_init());
	sim.initialised = true;
	if (sim.config.deinit_at_exit)
		atexit(deinitialise);
	return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
	SIM_BEGIN(cuDriverGetVersion);
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = (int)sim.config.driver_version;
	return CUDA_SUCCESS;
}

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
#define SIM_ERROR(code, name, text) {code, #name, text},
#include "errors.def"
#undef SIM_ERROR
};

static CUresult describe(CUresult code, bool name, const char **text)
{
	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	*text = NULL;
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		if (errors[i].code == code)
			*text = name ? errors[i].name : errors[i].text;
	return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
	SIM_BEGIN(cuGetErrorName);
	return describe(error, true, text);
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
	SIM_BEGIN(cuGetErrorString);
	return describe(error, false, text);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	struct sim_device *found;

	SIM_BEGIN(cuDeviceGet);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(ordinal, &found));
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
	SIM_BEGIN(cuDeviceGetCount);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = (int)sim.config.devices;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice ordinal)
{
	struct sim_device *device;

	SIM_BEGIN(cuDeviceGetName);
	if (!name || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(ordinal, &device));
	snprintf(name, (size_t)len, "Simulated GPU");
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice ordinal)
{
	struct sim_device *device;

	SIM_BEGIN(cuDeviceTotalMem);
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(ordinal, &device));
	*bytes = device->capacity > UINT32_MAX ? UINT32_MAX : (unsigned)device->capacity;
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
	struct sim_device *device;

	SIM_BEGIN(cuDeviceTotalMem_v2);
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(ordinal, &device));
	*bytes = device->capacity;
	return CUDA_SUCCESS;
}

/* Attributes by their numbers in cuda.h. All others read 0. */
static const struct {
	int attribute, value;
} attributes[] = {
	{1, 1024},        /* threads per block */
	{10, 32},         /* warp size */
	{13, 1980000},    /* clock in kHz */
	{14, 512},        /* texture alignment */
	{16, 132},        /* multiprocessors */
	{19, 1},          /* can map host memory */
	{31, 1},          /* concurrent kernels */
	{40, 3},          /* copy engines */
	{41, 1},          /* unified addressing */
	{75, 9},          /* compute capability */
	{76, 0}, {78, 1}, /* stream priorities */
	{83, 1},          /* managed memory */
	{89, 1},          /* concurrent managed access */
	{91, 1},          /* registered memory at the host's address */
	{99, 1},          /* host registration */
	{102, 1},         /* reserved addresses, and memory that is mapped there */
	{103, 1},         /* which other processes can get by file descriptors */
	{110, 1},         /* GPUDirect RDMA with that */
	{CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1}, {116, 1}, /* GPUDirect RDMA */
	{CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 1}, {125, 1},      /* IPC */
};

bool sim_lacks(int attribute)
{
	return attribute < SIM_N_ATTRIBUTES && sim.config.lacks[attribute / 8] >> attribute % 8 & 1;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice ordinal)
{
	struct sim_device *device;

	SIM_BEGIN(cuDeviceGetAttribute);
	if (!value || attribute < 1)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(ordinal, &device));
	*value = 0;
	if (sim_lacks(attribute))
		return CUDA_SUCCESS;
	for (size_t i = 0; i < sizeof(attributes) / sizeof(*attributes); i++)
		if (attributes[i].attribute == attribute)
			*value = attributes[i].value;
	return CUDA_SUCCESS;
}

static CUresult uuid_of(CUuuid *uuid, CUdevice ordinal)
{
	struct sim_device *device;

	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(ordinal, &device));
	*uuid = (CUuuid){"simulated gpu"};
	uuid->bytes[sizeof(uuid->bytes) - 1] = (char)ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	SIM_BEGIN(cuDeviceGetUuid);
	return uuid_of(uuid, device);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	SIM_BEGIN(cuDeviceGetUuid_v2);
	return uuid_of(uuid, device);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice ordinal, CUdevice peer)
{
	struct sim_device *device;

	SIM_BEGIN(cuDeviceCanAccessPeer);
	if (!can)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(ordinal, &device));
	SIM_TRY(sim_device_of(peer, &device));
	*can = ordinal != peer;
	return CUDA_SUCCESS;
}
