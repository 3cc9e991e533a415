/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A stand-in for NVML: the memory in use on the simulated devices, by all processes that share the file of
 * SIMGPU_SHARED. It has the functions that gpupool-run calls. Of the three amounts only the memory in use is true.
 */

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/sim/ledger.h"

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_FOUND = 6, LIBRARY_NOT_FOUND = 12 };

struct memory {
	unsigned long long total, free, used;
};

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlDeviceGetCount_v2(unsigned *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);

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

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
	return NOT_FOUND;
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
	atomic_fetch_add(&file->n_reads, 1);
	return SUCCESS;
}
