/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A stand-in for NVML: the memory in use on the simulated devices, by all processes that share the file of
 * SIMGPU_SHARED. It has the functions that gpupool-run and gpupool-stat call.
 */

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/sim/ledger.h"

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_FOUND = 6, LIBRARY_NOT_FOUND = 12 };

struct memory {
	unsigned long long total, free, used;
};

struct process {
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
};

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlDeviceGetCount_v2(unsigned *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, struct process *processes);

static int fd = -1;
static struct sim_ledger_file *file;
static unsigned devices[SIM_MAX_DEVICES]; /* a handle is the address of one of these */

int nvmlInit_v2(void)
{
	const char *path = getenv("SIMGPU_SHARED");
	void *map;

	fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	if (fd < 0 || ftruncate(fd, sizeof(*file)))
		return LIBRARY_NOT_FOUND;
	map = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return LIBRARY_NOT_FOUND;
	file = map;
	return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
	const char *number = getenv("SIMGPU_DEVICES");

	*count = number ? (unsigned)strtoul(number, NULL, 10) : 1;
	return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	unsigned count;

	(void)nvmlDeviceGetCount_v2(&count);
	if (index >= count || index >= SIM_MAX_DEVICES)
		return INVALID_ARGUMENT;
	*device = &devices[index];
	return SUCCESS;
}

/* The UUIDs are those of the simulated driver: a text, and the number of the device as the last byte. */
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
	static const char begin[] = "GPU-73696d75-6c61-7465-6420-6770750000";
	unsigned ordinal;

	if (strncmp(uuid, begin, sizeof(begin) - 1) != 0 || sscanf(uuid + sizeof(begin) - 1, "%2x", &ordinal) != 1)
		return NOT_FOUND;
	return nvmlDeviceGetHandleByIndex_v2(ordinal, device) ? NOT_FOUND : SUCCESS;
}

/* Returns SIMGPU_MEMORY, which has a unit of one letter, as in 200M or 16GiB. */
static unsigned long long total_bytes(void)
{
	const char *text = getenv("SIMGPU_MEMORY");
	char *unit;
	unsigned long long n = strtoull(text ? text : "16G", &unit, 10);

	return n << (*unit == 'G' ? 30 : *unit == 'M' ? 20 : *unit == 'K' ? 10 : 0);
}

static bool is_alive(int row)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 + row, .l_len = 1};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
	ptrdiff_t ordinal = (unsigned *)device - devices;

	if (!file)
		return UNINITIALIZED;
	*memory = (struct memory){0};
	for (int i = 0; i < SIM_LEDGER_ROWS; i++)
		if (file->rows[i].bytes[ordinal] && is_alive(i))
			memory->used += file->rows[i].bytes[ordinal];
	memory->total = total_bytes();
	memory->free = memory->total - memory->used;
	atomic_fetch_add(&file->n_reads, 1);
	return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, struct process *processes)
{
	ptrdiff_t ordinal = (unsigned *)device - devices;
	unsigned room = *n;

	if (!file)
		return UNINITIALIZED;
	*n = 0;
	for (int i = 0; i < SIM_LEDGER_ROWS && *n < room; i++)
		if (file->rows[i].bytes[ordinal] && is_alive(i))
			processes[(*n)++] = (struct process){
				.pid = (unsigned)atomic_load(&file->rows[i].pid),
				.used = file->rows[i].bytes[ordinal],
			};
	return SUCCESS;
}
