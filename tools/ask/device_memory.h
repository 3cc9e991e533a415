/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The memory of a device, by NVML, which comes with the driver and makes no CUDA call. It is loaded when needed. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct device_memory {
	uint64_t free_bytes;
	uint64_t used_bytes;    /* by all processes */
	uint64_t process_bytes; /* by this process; UINT64_MAX: NVML does not know, as in a container */
};

/* Returns false if NVML does not know the device of that UUID. */
bool device_memory_read(const char *uuid, pid_t pid, struct device_memory *ret_memory);
