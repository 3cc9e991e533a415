/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <stdlib.h>
#include <string.h>

#include "ctx.h"

#define UNIT    512
#define N_UNITS (SIM_CHUNK / UNIT)

struct sim_slab {
	struct sim_slab *next;
	struct sim_device *device;
	uint64_t addr;
	unsigned used, first_free;
	unsigned char taken[N_UNITS];
};

size_t sim_slab_round(size_t bytes)
{
	return (bytes + UNIT - 1) / UNIT * UNIT;
}

/* Returns the start of the lowest run of n free units, or N_UNITS if there is none. */
static unsigned find_run(const struct sim_slab *slab, unsigned n)
{
	unsigned run = 0;

	if (N_UNITS - slab->used < n)
		return N_UNITS;
	for (unsigned i = slab->first_free; i < N_UNITS; i++) {
		run = slab->taken[i] ? 0 : run + 1;
		if (run == n)
			return i + 1 - n;
	}
	return N_UNITS;
}

static struct sim_slab *slab_new(struct sim_slab **slabs, struct sim_device *device)
{
	uint64_t addr;
	struct sim_slab *slab;

	if (sim_device_take(device, SIM_CHUNK, &addr))
		return NULL;
	slab = sim_alloc_zeroed(1, sizeof(*slab));
	slab->device = device;
	slab->addr = addr;
	slab->next = *slabs;
	*slabs = slab;
	return slab;
}

CUresult sim_slab_take(
	struct sim_slab **slabs, struct sim_device *device, size_t bytes, uint64_t *addr, struct sim_slab **slab)
{
	unsigned n = (unsigned)(sim_slab_round(bytes) / UNIT), first = N_UNITS;
	struct sim_slab *s = *slabs;

	for (; s && (first = find_run(s, n)) == N_UNITS;)
		s = s->next;
	if (!s) {
		s = slab_new(slabs, device);
		first = 0;
	}
	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(s->taken + first, 1, n);
	s->used += n;
	while (s->first_free < N_UNITS && s->taken[s->first_free])
		s->first_free++;
	*addr = s->addr + first * UNIT;
	*slab = s;
	return CUDA_SUCCESS;
}

void sim_slab_give(struct sim_slab **slabs, struct sim_slab *slab, uint64_t addr, size_t bytes)
{
	unsigned n = (unsigned)(sim_slab_round(bytes) / UNIT), first = (unsigned)((addr - slab->addr) / UNIT);

	memset(slab->taken + first, 0, n);
	slab->used -= n;
	if (first < slab->first_free)
		slab->first_free = first;
	if (slab->used)
		return;
	while (*slabs != slab)
		slabs = &(*slabs)->next;
	*slabs = slab->next;
	sim_device_give(slab->device, slab->addr, SIM_CHUNK, true);
	free(slab);
}
