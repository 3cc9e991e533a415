/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "region_answer.h"

#include <string.h>
#include <unistd.h>

#include "shim/context/region.h"
#include "shim/ctl/ctl_request.h"

enum { REGION_JSON_BYTES = 1024, END_JSON_BYTES = 256 };

static void write_region(struct gp_json *out, int id, int device, const struct gp_stats *stats)
{
	gp_json_object_begin(out, NULL);
	gp_json_string(out, "name", gp_region_name(id));
	gp_json_i64(out, "device", device);
	gp_json_u64(out, "used_bytes", stats->used_bytes);
	gp_json_u64(out, "requested_bytes", stats->requested_bytes);
	gp_json_u64(out, "cached_bytes", stats->cached_bytes);
	gp_json_u64(out, "pending_bytes", stats->pending_bytes);
	gp_json_u64(out, "returning_bytes", stats->returning_bytes);
	gp_json_u64(out, "total_bytes", stats->total_bytes);
	gp_json_u64(out, "n_used_blocks", stats->n_used_blocks);
	gp_json_u64(out, "n_cached_blocks", stats->n_cached_blocks);
	gp_json_u64(out, "n_pending_blocks", stats->n_pending_blocks);
	gp_json_u64(out, "peak_used_bytes", stats->peak_used_bytes);
	gp_json_u64(out, "peak_total_bytes", stats->peak_total_bytes);
	gp_json_u64(out, "hits", stats->hits);
	gp_json_u64(out, "misses", stats->misses);
	gp_json_u64(out, "driver_allocs", stats->driver_allocs);
	gp_json_u64(out, "driver_frees", stats->driver_frees);
	gp_json_object_end(out);
}

void gp_region_write_device(struct gp_json *out, int device)
{
	struct gp_stats stats;

	gp_json_array_begin(out, "by_region");
	for (int id = 1; id <= gp_region_count() && gp_json_room(out) > REGION_JSON_BYTES + END_JSON_BYTES; id++) {
		if (!gp_region_totals(id, device, &stats))
			continue;
		gp_json_object_begin(out, NULL);
		gp_json_string(out, "name", gp_region_name(id));
		gp_json_u64(out, "used_bytes", stats.used_bytes);
		gp_json_u64(out, "cached_bytes", stats.cached_bytes);
		gp_json_u64(out, "pending_bytes", stats.pending_bytes);
		gp_json_u64(out, "total_bytes", stats.total_bytes);
		gp_json_object_end(out);
	}
	gp_json_array_end(out);
}

/* Writes one region, or with GP_REGION_NONE all of them: an entry for each device on which the region has a pool. */
static void write_regions(struct gp_json *out, int which)
{
	bool is_truncated = false;
	struct gp_stats stats;

	gp_json_array_begin(out, "regions");
	for (int id = 1; id <= gp_region_count(); id++) {
		for (int device = 0; device < GP_DEVICES_MAX && (!which || id == which); device++) {
			if (!gp_device_if_used(device) || !gp_region_totals(id, device, &stats))
				continue;
			is_truncated = is_truncated || gp_json_room(out) < REGION_JSON_BYTES + END_JSON_BYTES;
			if (!is_truncated)
				write_region(out, id, device, &stats);
		}
	}
	gp_json_array_end(out);
	gp_json_bool(out, "truncated", is_truncated);
}

static int value_of(char digit)
{
	static const char digits[] = "0123456789abcdefABCDEF";
	const char *at = digit ? strchr(digits, digit) : NULL;
	int value = at ? (int)(at - digits) : -1;

	return value > 15 ? value - 6 : value;
}

void gp_region_decode(char *name)
{
	char *to = name;

	for (const char *from = name; *from; to++) {
		bool is_code = from[0] == '%' && value_of(from[1]) >= 0 && value_of(from[2]) >= 0;

		*to = is_code ? (char)(value_of(from[1]) << 4 | value_of(from[2])) : *from;
		from += is_code ? 3 : 1;
	}
	*to = '\0';
}

static int invalidate(char *name, struct gp_json *out)
{
	struct gp_invalidated count;
	uint64_t released;
	int id;

	gp_region_decode(name);
	id = gp_region_find(name);
	if (!id)
		return gp_ctl_error(out, GP_CTL_USAGE, "there is no region '%.63s'", name);
	released = gp_region_invalidate(id, &count);
	gp_ctl_answer_begin(out, GP_CTL_region);
	gp_json_i64(out, "pid", getpid());
	gp_json_u64(out, "released_bytes", released);
	gp_json_u64(out, "busy_blocks", count.busy_blocks);
	gp_json_u64(out, "busy_bytes", count.busy_bytes);
	write_regions(out, id);
	gp_json_object_end(out);
	return 0;
}

int gp_region_answer(int argc, char **argv, struct gp_json *out)
{
	if (argc == 3 && strcmp(argv[1], "invalidate") == 0)
		return invalidate(argv[2], out);
	if (argc > 2 || (argc == 2 && strcmp(argv[1], "list") != 0))
		return gp_ctl_error(out, GP_CTL_USAGE, "usage: region list | region invalidate NAME");
	gp_ctl_answer_begin(out, GP_CTL_region);
	gp_json_i64(out, "pid", getpid());
	write_regions(out, GP_REGION_NONE);
	gp_json_object_end(out);
	return 0;
}
