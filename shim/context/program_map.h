/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The mappings of the program (cuMemMap), except those of kept.h, and also of memory that is not counted: to unmap a
 * range with several mappings, gpupool needs the size of each.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/driver/cuda_abi.h"

struct gp_program_map {
	struct gp_program_map *next;
	CUdeviceptr addr;
	size_t bytes;
	CUmemGenericAllocationHandle handle; /* 0: its memory is not counted */
	uint64_t buffer_id;                  /* that the program has seen, or 0: the driver's */
};

/* Sets up this module. */
void gp_program_maps_start(void);

/* Adds a mapping, which the module owns from now on. */
void gp_program_map_add(struct gp_program_map *map);

/* Removes the mapping that begins at the address, and returns it to the caller. NULL if there is none. */
struct gp_program_map *gp_program_map_take(CUdeviceptr addr);

extern _Atomic unsigned gp_program_map_n_ids; /* mappings with a buffer id that is not the driver's */

static inline bool gp_program_map_is_any_id(void)
{
	return atomic_load_explicit(&gp_program_map_n_ids, memory_order_relaxed) != 0;
}

/* Returns the buffer id of the mapping at the address, or 0: the driver's. */
uint64_t gp_program_map_buffer_id(CUdeviceptr addr);
