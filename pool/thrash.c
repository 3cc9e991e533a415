/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "thrash.h"

#include <string.h>

#include "tuning.h"

static bool is_higher(const struct gp_thrash *thrash, uint64_t used_bytes)
{
	return used_bytes > thrash->level + thrash->level / GP_THRASH_GROWTH_SHARE;
}

static uint64_t hash_of(const struct gp_thrash *thrash, uint64_t size, uint64_t used_bytes)
{
	uint64_t step = used_bytes / (thrash->level / GP_THRASH_USE_STEPS + 1);

	/* Never 0, which means no note. */
	return (size / GP_ALIGN + (step << 40)) * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

static unsigned slot_of(uint64_t hash)
{
	return (unsigned)(hash >> (64 - GP_THRASH_LOG2));
}

void gp_thrash_begin(struct gp_thrash *thrash, uint64_t used_bytes)
{
	if (!is_higher(thrash, used_bytes))
		return;
	memset(thrash, 0, sizeof(*thrash));
	thrash->level = used_bytes;
}

void gp_thrash_note(struct gp_thrash *thrash, uint64_t size, uint64_t used_bytes)
{
	uint64_t hash = hash_of(thrash, size, used_bytes);

	thrash->count++;
	thrash->notes[slot_of(hash)] = hash;
}

bool gp_thrash_is_known(const struct gp_thrash *thrash, uint64_t size, uint64_t used_bytes)
{
	uint64_t hash = hash_of(thrash, size, used_bytes);

	return thrash->notes[slot_of(hash)] == hash;
}

unsigned gp_thrash_excess(const struct gp_thrash *thrash)
{
	return thrash->count > GP_THRASH_EXPECTED ? thrash->count - GP_THRASH_EXPECTED : 0;
}
