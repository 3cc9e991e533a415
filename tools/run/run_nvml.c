/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "run_nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/compat.h"

#ifdef GP_GLIBC
__asm__(".symver dlsym,dlsym@" GP_GLIBC);
#endif

#define LIBRARY "libnvidia-ml.so.1"

/* The part of nvml.h that is used here. Every function returns 0 on success. */
struct memory {
	unsigned long long total, free, used;
};
typedef int init_fn(void);
typedef int count_fn(unsigned *count);
typedef int by_index_fn(unsigned index, void **device);
typedef int by_uuid_fn(const char *uuid, void **device);
typedef int memory_fn(void *device, struct memory *memory);

struct functions {
	init_fn *init;
	count_fn *count;
	by_index_fn *by_index;
	by_uuid_fn *by_uuid;
};

static bool find_functions(struct functions *nvml, memory_fn **memory)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return false;
	nvml->init = (init_fn *)dlsym(library, "nvmlInit_v2");
	nvml->count = (count_fn *)dlsym(library, "nvmlDeviceGetCount_v2");
	nvml->by_index = (by_index_fn *)dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	nvml->by_uuid = (by_uuid_fn *)dlsym(library, "nvmlDeviceGetHandleByUUID");
	*memory = (memory_fn *)dlsym(library, "nvmlDeviceGetMemoryInfo");
	return nvml->init && nvml->count && nvml->by_index && nvml->by_uuid && *memory;
}

/* Adds the device of an entry of CUDA_VISIBLE_DEVICES. */
static bool add_named(struct run_nvml *ret, const struct functions *nvml, const char *name)
{
	void **device = &ret->devices[ret->n_devices];
	char *end;
	unsigned long index = strtoul(name, &end, 10);
	bool is_index = end != name && !*end && *name >= '0' && *name <= '9';

	if (is_index ? nvml->by_index((unsigned)index, device) : nvml->by_uuid(name, device))
		return false;
	ret->n_devices++;
	return true;
}

/* Returns false if an entry names no device: then the programs see other devices than this finds. */
static bool add_visible(struct run_nvml *ret, const struct functions *nvml, const char *visible)
{
	char *names = strdup(visible), *rest;
	bool is_found = names;

	for (char *name = names ? strtok_r(names, ",", &rest) : NULL; is_found && name;
		name = strtok_r(NULL, ",", &rest))
		is_found = ret->n_devices < RUN_NVML_DEVICES_MAX && add_named(ret, nvml, name);
	free(names);
	return is_found && ret->n_devices;
}

static void add_all(struct run_nvml *ret, const struct functions *nvml)
{
	unsigned count = 0;

	if (nvml->count(&count))
		return;
	for (unsigned i = 0; i < count && ret->n_devices < RUN_NVML_DEVICES_MAX; i++)
		if (!nvml->by_index(i, &ret->devices[ret->n_devices]))
			ret->n_devices++;
}

void run_nvml_open(struct run_nvml *nvml)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	struct functions functions;
	memory_fn *memory;

	*nvml = (struct run_nvml){.why = LIBRARY " cannot be loaded"};
	if (!find_functions(&functions, &memory))
		return;
	nvml->why = "NVML does not work";
	if (functions.init())
		return;
	nvml->get_memory = (void *)memory;
	nvml->why = "NVML knows no device";
	if (visible && *visible && !add_visible(nvml, &functions, visible))
		nvml->n_devices = 0;
	else if (!visible || !*visible)
		add_all(nvml, &functions);
	if (nvml->n_devices)
		nvml->why = "NVML did not answer";
}

bool run_nvml_used(const struct run_nvml *nvml, uint64_t *ret_bytes)
{
	struct memory memory;
	uint64_t sum = 0;

	for (unsigned i = 0; i < nvml->n_devices; i++) {
		if (((memory_fn *)nvml->get_memory)(nvml->devices[i], &memory))
			return false;
		sum += memory.used;
	}
	*ret_bytes = sum;
	return nvml->n_devices;
}
