/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "spill_calm.h"

#include <stdbool.h>

#include "pool/base.h"

static uint64_t time_of_calm(const struct gp_spill_calm *calm)
{
	return GP_SPILL_CALM_NS + calm->extra_ns;
}

void gp_spill_calm_note_out(struct gp_spill_calm *calm, uint64_t now_ns)
{
	uint64_t time_ns = time_of_calm(calm);

	calm->since_ns = 0;
	/* Memory goes in many small moves. Only the first one after a return shows whether that came too early. */
	if (!calm->came_ns)
		return;
	if (now_ns - calm->came_ns < GP_SPILL_SOON * time_ns)
		calm->extra_ns = gp_min(2 * time_ns, GP_SPILL_CALM_MAX_NS) - GP_SPILL_CALM_NS;
	else
		calm->extra_ns = 0;
	calm->came_ns = 0;
}

uint64_t gp_spill_calm_look(struct gp_spill_calm *calm, uint64_t now_ns, uint64_t room_bytes)
{
	bool has_grown = calm->bytes <= calm->tried_bytes && room_bytes > calm->tried_bytes;

	if (!room_bytes || !calm->since_ns || has_grown) {
		calm->since_ns = room_bytes ? now_ns : 0;
		calm->bytes = room_bytes;
	}
	calm->bytes = gp_min(calm->bytes, room_bytes);
	if (!calm->since_ns || now_ns - calm->since_ns < time_of_calm(calm))
		return 0;
	return now_ns >= calm->retry_ns || calm->bytes > calm->tried_bytes ? calm->bytes : 0;
}

void gp_spill_calm_note_back(struct gp_spill_calm *calm, uint64_t now_ns, uint64_t bytes)
{
	if (!bytes) {
		/*
		 * The GPU is busy, say: the program should not wait for it over and over. Or the room is too small for
		 * any chunk: it may have been so at one look only, and is measured anew.
		 */
		calm->since_ns = 0;
		calm->tried_bytes = calm->bytes;
		calm->pause_ns = gp_min(gp_max(2 * calm->pause_ns, GP_SPILL_CALM_NS), GP_SPILL_CALM_MAX_NS);
		calm->retry_ns = now_ns + calm->pause_ns;
		return;
	}
	calm->pause_ns = calm->retry_ns = calm->tried_bytes = 0;
	calm->came_ns = now_ns;
	calm->bytes -= gp_min(bytes, calm->bytes);
	/* All memory that had room is back: more room has to last as long again. */
	if (!calm->bytes)
		calm->since_ns = 0;
}
