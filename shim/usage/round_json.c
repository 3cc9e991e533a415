/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "round_json.h"

void gp_round_json(
	struct gp_json *out, const char *name, const struct gp_round_stats rounds[static GP_N_ROUNDS], bool is_total)
{
	gp_json_array_begin(out, name);
	for (int i = 0; i < GP_N_ROUNDS; i++) {
		if (!is_total && !rounds[i].count)
			continue;
		gp_json_object_begin(out, NULL);
		gp_json_u64(out, "round", gp_round_number((enum gp_round)i));
		gp_json_string(out, "name", gp_round_name((enum gp_round)i));
		if (is_total)
			gp_json_u64(out, "count", rounds[i].count);
		gp_json_u64(out, "gained_bytes", rounds[i].gained_bytes);
		gp_json_u64(out, "ns", rounds[i].ns);
		gp_json_object_end(out);
	}
	gp_json_array_end(out);
}
