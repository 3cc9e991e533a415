/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The memory in use on the devices, by the driver's own count. NVML comes with the driver. It is loaded when it is
 * needed, and makes no CUDA call.
 */

#include <stdbool.h>
#include <stdint.h>

enum { RUN_NVML_DEVICES_MAX = 64 };

struct run_nvml {
	unsigned n_devices; /* 0: NVML cannot be used */
	void *devices[RUN_NVML_DEVICES_MAX];
	void *get_memory;
	const char *why; /* why there may be no figure, for a message */
};

/* Finds the devices: those of CUDA_VISIBLE_DEVICES, or all. */
void run_nvml_open(struct run_nvml *nvml);

/* Adds up the memory in use on the devices, by all programs. Returns false if a device does not answer. */
bool run_nvml_used(const struct run_nvml *nvml, uint64_t *ret_bytes);
