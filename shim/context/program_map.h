/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The mappings of the program (cuMemMap), except those of kept.h, and also of memory that is not counted: to unmap a
 * range with several mappings, gpupool needs the size of each.
 */

#include "shim/driver/cuda_abi.h"

struct gp_program_map {
	struct gp_program_map *next;
	CUdeviceptr addr;
	size_t bytes;
	CUmemGenericAllocationHandle handle; /* 0: its memory is not counted */
};

/* Sets up this module. */
void gp_program_maps_start(void);

/* Adds a mapping, which the module owns from now on. */
void gp_program_map_add(struct gp_program_map *map);

/* Removes the mapping that begins at the address, and returns it to the caller. NULL if there is none. */
struct gp_program_map *gp_program_map_take(CUdeviceptr addr);
