/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <string.h>

#include "ctx.h"

const struct sim_fn_row sim_fns[SIM_N_FNS] = {
#define SIM_FN(name, public, version, ns, params) {#name, #public, version, false, ns, (void *)name},
#define SIM_STREAM_FN(name, suffix, public, version, ns, params) \
	{#name, #public, version, false, ns, (void *)name},      \
		{#name #suffix, #public, version, true, ns, (void *)name##suffix},
#include "functions.def"
#undef SIM_FN
#undef SIM_STREAM_FN
};

enum sim_fn sim_fn_find(const char *name, size_t len)
{
	int fn = 0;

	while (fn < SIM_N_FNS && (strncmp(sim_fns[fn].name, name, len) || sim_fns[fn].name[len]))
		fn++;
	return (enum sim_fn)fn;
}

/* Finds the newest form of a public name that a program built for that CUDA version knows. */
static int look_up(const char *symbol, int version, bool per_thread, const struct sim_fn_row **row)
{
	int status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;

	*row = NULL;
	for (int fn = 0; fn < SIM_N_FNS; fn++) {
		const struct sim_fn_row *this = &sim_fns[fn];

		if (strcmp(this->public_name, symbol) || sim.config.hidden[fn])
			continue;
		if (this->version > version) {
			if (!*row)
				status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
			continue;
		}
		if (this->per_thread && !per_thread)
			continue;
		if (*row && (*row)->version > this->version)
			continue;
		*row = sim.config.disagrees[fn] ? this + 1 : this;
		status = CU_GET_PROC_ADDRESS_SUCCESS;
	}
	return status;
}

/* A lookup with a version newer than the driver's is an error. */
static bool is_valid_lookup(const char *symbol, void **pfn, int version)
{
	return symbol && pfn && version <= (int)sim.config.driver_version;
}

/* The CUDA runtime probes the driver with an empty name of version 0: that lookup succeeds with NULL. */
static bool is_probe(const char *symbol, int version)
{
	return !*symbol && !version;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags)
{
	const struct sim_fn_row *row;

	SIM_BEGIN(cuGetProcAddress);
	if (!is_valid_lookup(symbol, pfn, version))
		return CUDA_ERROR_INVALID_VALUE;
	if (is_probe(symbol, version)) {
		*pfn = NULL;
		return CUDA_SUCCESS;
	}
	look_up(symbol, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &row);
	if (!row)
		return CUDA_ERROR_NOT_FOUND;
	*pfn = row->address;
	return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status)
{
	const struct sim_fn_row *row;
	int found;

	SIM_BEGIN(cuGetProcAddress_v2);
	if (!is_valid_lookup(symbol, pfn, version))
		return CUDA_ERROR_INVALID_VALUE;
	if (is_probe(symbol, version)) {
		*pfn = NULL;
		return CUDA_SUCCESS;
	}
	found = look_up(symbol, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &row);
	if (status)
		*status = found;
	*pfn = row ? row->address : NULL;
	return CUDA_SUCCESS;
}

/*
 * The interface of the CUDA runtime. The runtime asks it for the handle of each device's primary context before it
 * retains the context. A lookup sees neither these calls nor what they do.
 */
static CUresult primary_handle(CUcontext *ctx, CUdevice ordinal)
{
	struct sim_device *device;

	SIM_TRY(sim_device_of(ordinal, &device));
	*ctx = (CUcontext)device->primary;
	return CUDA_SUCCESS;
}

/* No slots of the real interface. They stand for a driver that creates and selects contexts by ways of its own. */
static CUresult primary_retain(CUcontext *ctx, CUdevice ordinal)
{
	struct sim_device *device;

	SIM_TRY(sim_device_of(ordinal, &device));
	SIM_TRY(sim_primary_retain(device->primary));
	*ctx = (CUcontext)device->primary;
	return CUDA_SUCCESS;
}

CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	static const CUuuid runtime_id = {SIM_RUNTIME_INTERFACE};
	static const struct sim_runtime_interface runtime_interface = {
		.bytes = sizeof(runtime_interface),
		.primary_handle = primary_handle,
		.primary_retain = primary_retain,
		.set_current = sim_set_current,
	};

	SIM_BEGIN(cuGetExportTable);
	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	if (memcmp(id, &runtime_id, sizeof(*id)) != 0)
		return CUDA_ERROR_NOT_FOUND;
	*table = &runtime_interface;
	return CUDA_SUCCESS;
}
