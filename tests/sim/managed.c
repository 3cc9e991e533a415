/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Managed memory on the device. A block has no device memory at first. Work brings the bytes that it touches to the
 * device, as far as they fit, and the least recently used blocks leave to make room. Managed memory also leaves for
 * every other allocation. The simulator knows how much of a block is on the device, but not which part: work moves
 * bytes again only if the block has lost some.
 */

#include "ctx.h"

#define MOVE_NS_PER_MIB 40000 /* in either direction */

static size_t size_of(const struct sim_block *block)
{
	return block->range.hi - block->range.lo;
}

static size_t in_chunks(size_t bytes)
{
	return (bytes + SIM_CHUNK - 1) / SIM_CHUNK * SIM_CHUNK;
}

static struct sim_block *find_oldest(const struct sim_device *device, const struct sim_block *spared)
{
	struct sim_block *block = (struct sim_block *)sim_range_after(sim_blocks, 0), *oldest = NULL;

	for (; block; block = (struct sim_block *)sim_range_after(sim_blocks, block->range.hi))
		if (block->kind == SIM_MANAGED && block->device == device && block != spared && block->resident_bytes &&
			(!oldest || block->touched < oldest->touched))
			oldest = block;
	return oldest;
}

static void evict(struct sim_block *block, size_t bytes)
{
	block->resident_bytes -= bytes;
	block->device->resident -= bytes;
	sim_device_discharge(block->device, bytes);
}

bool sim_managed_make_room(struct sim_device *device, size_t bytes, const struct sim_block *spared)
{
	struct sim_block *oldest;

	while (bytes > device->capacity - device->used) {
		size_t missing = in_chunks(bytes - (device->capacity - device->used));

		oldest = device->resident ? find_oldest(device, spared) : NULL;
		if (!oldest)
			return false;
		evict(oldest, missing < oldest->resident_bytes ? missing : oldest->resident_bytes);
	}
	return true;
}

uint64_t sim_managed_bring(struct sim_device *device, struct sim_block *block, size_t bytes)
{
	static uint64_t touches;
	size_t want = in_chunks(bytes < size_of(block) ? bytes : size_of(block)), missing;

	block->touched = ++touches;
	if (block->device != device || want <= block->resident_bytes)
		return 0;
	missing = want - block->resident_bytes;
	(void)sim_managed_make_room(device, missing, block);
	if (missing > device->capacity - device->used)
		missing = (device->capacity - device->used) / SIM_CHUNK * SIM_CHUNK;
	if (!missing || sim_device_charge(device, missing))
		return bytes / SIM_MIB * MOVE_NS_PER_MIB; /* no byte can stay on the device */
	block->resident_bytes += missing;
	device->resident += missing;
	return missing / SIM_MIB * MOVE_NS_PER_MIB;
}

void sim_managed_leave(struct sim_block *block)
{
	if (block->resident_bytes)
		evict(block, block->resident_bytes);
}
