/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "convert_snapshot.h"

#include <string.h>

enum { SMALL_SEGMENT = 2 << 20 };

void snapshot_begin(struct pickle *p, FILE *out)
{
	pickle_begin(p, out);
	pickle_dict_begin(p);
	pickle_text(p, "segments");
}

void snapshot_traces(struct pickle *p)
{
	pickle_text(p, "device_traces");
}

void snapshot_end(struct pickle *p)
{
	pickle_text(p, "allocator_settings");
	pickle_dict_begin(p);
	pickle_put_text(p, "allocator", "gpupool " GPUPOOL_VERSION);
	pickle_dict_end(p);
	pickle_dict_end(p);
	pickle_end(p);
}

static void put_frame(struct pickle *p, const struct stat_frame *frame)
{
	pickle_dict_begin(p);
	pickle_text(p, "name");
	pickle_copy(p, frame->name, (size_t)frame->name_length);
	pickle_text(p, "filename");
	pickle_copy(p, frame->file, (size_t)frame->file_length);
	pickle_put_u64(p, "line", frame->line);
	pickle_dict_end(p);
}

/* Writes a placeholder if there is no site: without any frame, viewers tell the user to turn on stacks in PyTorch. */
void snapshot_put_frames(struct pickle *p, const struct stat_site *site, uint64_t thread)
{
	struct pickle_list list;

	pickle_text(p, "frames");
	pickle_list_begin(p, &list);
	for (size_t i = 0; site && i < site->n_frames; i++) {
		struct stat_frame frame = stat_frame_parse(site->frames[i]);

		pickle_list_next(p, &list);
		put_frame(p, &frame);
	}
	if (!site) {
		pickle_dict_begin(p);
		pickle_put_text(p, "name", "no stack");
		pickle_put_text(p, "filename", "thread");
		pickle_put_u64(p, "line", thread);
		pickle_dict_end(p);
	}
	pickle_list_end(p, &list);
}

/* block: NULL for free memory. */
static void put_block(struct pickle *p, uint64_t addr, uint64_t bytes, const struct snapshot_block *block)
{
	static const char *const states[] = {
		[SNAPSHOT_USED] = "active_allocated",
		[SNAPSHOT_PENDING] = "active_pending_free",
	};

	pickle_dict_begin(p);
	pickle_put_u64(p, "address", addr);
	pickle_put_u64(p, "size", bytes);
	pickle_put_u64(p, "requested_size", block ? block->requested_bytes : 0);
	pickle_put_text(p, "state", block ? states[block->state] : "inactive");
	snapshot_put_frames(p, block ? block->site : NULL, 0);
	pickle_dict_end(p);
}

static void put_blocks(struct pickle *p, const struct snapshot_segment *s)
{
	struct pickle_list list;
	uint64_t at = s->addr, end = s->addr + s->bytes;

	pickle_text(p, "blocks");
	pickle_list_begin(p, &list);
	for (size_t i = 0; i < s->n_blocks; i++) {
		const struct snapshot_block *block = &s->blocks[i];

		if (block->addr > at) {
			pickle_list_next(p, &list);
			put_block(p, at, block->addr - at, NULL);
		}
		pickle_list_next(p, &list);
		put_block(p, block->addr, block->bytes, block);
		at = block->addr + block->bytes;
	}
	if (at < end) {
		pickle_list_next(p, &list);
		put_block(p, at, end - at, NULL);
	}
	pickle_list_end(p, &list);
}

static void put_pool_id(struct pickle *p)
{
	struct pickle_list list;

	pickle_text(p, "segment_pool_id");
	pickle_list_begin(p, &list);
	pickle_u64(p, 0);
	pickle_u64(p, 0);
	pickle_list_end(p, &list);
}

void snapshot_put_segment(struct pickle *p, const struct snapshot_segment *s)
{
	uint64_t used = 0, active = 0, requested = 0;

	for (size_t i = 0; i < s->n_blocks; i++) {
		used += s->blocks[i].state == SNAPSHOT_USED ? s->blocks[i].bytes : 0;
		active += s->blocks[i].bytes;
		requested += s->blocks[i].requested_bytes;
	}
	pickle_dict_begin(p);
	pickle_put_u64(p, "device", s->device);
	pickle_put_u64(p, "address", s->addr);
	pickle_put_u64(p, "total_size", s->bytes);
	pickle_put_u64(p, "allocated_size", used);
	pickle_put_u64(p, "active_size", active);
	pickle_put_u64(p, "requested_size", requested);
	pickle_put_u64(p, "stream", 0);
	pickle_put_text(p, "segment_type", s->bytes > SMALL_SEGMENT ? "large" : "small");
	put_pool_id(p);
	snapshot_put_frames(p, NULL, 0);
	put_blocks(p, s);
	pickle_dict_end(p);
}
