/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A probe is this program again, in a process of its own. It reports the driver and the library that are in it. So the
 * loader itself answers what it finds, and a driver that crashes or hangs only ends the probe.
 */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* argv[0] of a probe. */
#define RUN_PROBE_NAME "gpupool-run-probe"

struct run_probe {
	int status;             /* exit status of the probe, or -errno (run_child.h) */
	char error[512];        /* the loader's message about a library that it cannot preload; "": none */
	char driver_error[128]; /* why the loader cannot load the driver */
	char version[32];       /* of the library in the process; "": it is not there */
	char driver[PATH_MAX];  /* path of libcuda; "": it is not there */
	int driver_version;     /* 13000: CUDA 13.0; 0: unknown */
	int init;               /* result of cuInit */
	char init_name[64];     /* its name, such as CUDA_ERROR_NO_DEVICE */
	int n_devices;
	char device[128]; /* name of the first */
	uint64_t device_bytes;
	int alloc; /* result of an allocation of 1 MiB on the first device; -1: none was made */
	char alloc_name[64];
	char pool[256];  /* the pool type that GPUPOOL_POOL=auto has chosen on the first device, and why; or "" */
	uint64_t served; /* allocations that the library counted */
};

/*
 * Starts a probe with these libraries preloaded, before the driver. is_allocating: the probe allocates on the first
 * device.
 */
void run_probe(const char *preload, bool is_allocating, struct run_probe *ret);

/* Runs in the probe. words: its arguments. Returns the exit status. */
int run_probe_main(char **words);
