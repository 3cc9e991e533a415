/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "device_memory.h"

#include <string.h>

#include "common/compat.h"

#ifdef GP_GLIBC
__asm__(".symver dlsym,dlsym@" GP_GLIBC);
#endif

/* The part of nvml.h that is used here. Every function returns 0 on success. */
struct memory {
	unsigned long long total, free, used;
};
struct process {
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
};

enum { PROCESSES_MAX = 256 };

static struct {
	int (*init)(void);
	int (*by_uuid)(const char *uuid, void **device);
	int (*memory)(void *device, struct memory *memory);
	int (*processes)(void *device, unsigned *n, struct process *processes);
} nvml;

static bool find(void *library, const char *name, void *ret)
{
	void *function = library ? dlsym(library, name) : NULL;

	memcpy(ret, &function, sizeof(function));
	return function;
}

static bool is_ready(void)
{
	static bool was_tried, is_loaded;
	void *library;

	if (was_tried)
		return is_loaded;
	was_tried = true;
	library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	(void)find(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml.processes);
	is_loaded = find(library, "nvmlInit_v2", &nvml.init) &&
		    find(library, "nvmlDeviceGetHandleByUUID", &nvml.by_uuid) &&
		    find(library, "nvmlDeviceGetMemoryInfo", &nvml.memory) && !nvml.init();
	return is_loaded;
}

static uint64_t of_process(void *device, pid_t pid)
{
	static struct process processes[PROCESSES_MAX];
	unsigned n = PROCESSES_MAX;

	if (!nvml.processes || nvml.processes(device, &n, processes))
		return UINT64_MAX;
	for (unsigned i = 0; i < n && i < PROCESSES_MAX; i++)
		if (processes[i].pid == (unsigned)pid)
			return processes[i].used;
	return UINT64_MAX;
}

bool device_memory_read(const char *uuid, pid_t pid, struct device_memory *ret_memory)
{
	struct memory memory;
	void *device;

	if (!is_ready() || nvml.by_uuid(uuid, &device) || nvml.memory(device, &memory))
		return false;
	*ret_memory = (struct device_memory){
		.free_bytes = memory.free,
		.used_bytes = memory.used,
		.process_bytes = of_process(device, pid),
	};
	return true;
}
