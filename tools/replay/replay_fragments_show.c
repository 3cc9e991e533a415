/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <inttypes.h>
#include <stdio.h>

#include "tools/text/stat_text.h"
#include "replay_show.h"

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

static void name_group(
	char text[static STAT_TEXT_MAX], const struct replay_contents *contents, const struct replay_fragment *group)
{
	snprintf(text, STAT_TEXT_MAX, contents->is_text ? "the program" : "thread %" PRIu32, group->thread);
}

void replay_show_fragments(enum gp_kind kind, const struct replay_contents *contents, const struct replay_fragments *f,
	const struct replay_fragment_sites *sites)
{
	static const char *const headings[] = {">UNUSED BESIDE", ">BLOCKS", ">AVERAGE SIZE", "<ALLOCATED BY"};
	char a[STAT_TEXT_MAX], b[STAT_TEXT_MAX], c[STAT_TEXT_MAX], text[192];
	struct stat_table *table;

	stat_bytes(a, f->unused_bytes);
	stat_bytes(b, f->taken_bytes);
	stat_bytes(c, f->largest_unused_bytes);
	snprintf(text, sizeof(text), "at the peak of %s %s of %s are not used; the largest unused block has %s",
		gp_kind_name(kind), a, b, c);
	putchar('\n');
	stat_print_lines(text, stat_width());
	if (!f->n)
		return;
	table = stat_table_new(headings, LENGTH(headings));
	for (size_t i = 0; i < f->n; i++) {
		const struct replay_fragment *one = &f->list[i];
		char cells[LENGTH(headings)][STAT_TEXT_MAX];
		const char *row[] = {cells[0], cells[1], cells[2], sites->list[i] ? sites->list[i] : cells[3]};

		stat_bytes(cells[0], one->beside_bytes);
		snprintf(cells[1], STAT_TEXT_MAX, "%" PRIu64, one->n_blocks);
		stat_bytes(cells[2], one->all_bytes / one->n_blocks);
		name_group(cells[3], contents, one);
		stat_table_add(table, row);
	}
	stat_table_print(table, stat_width());
	stat_table_free(table);
	if (f->n < f->n_groups)
		printf("and %zu more groups of blocks\n", f->n_groups - f->n);
}

static void set(json_t *object, const char *name, uint64_t value)
{
	json_object_set_new(object, name, json_integer((json_int_t)gp_min(value, INT64_MAX)));
}

json_t *replay_fragments_json(const struct replay_fragments *f, const struct replay_fragment_sites *sites)
{
	json_t *object = stat_alloc(json_object()), *groups = stat_alloc(json_array());

	set(object, "live_bytes", f->live_bytes);
	set(object, "total_bytes", f->taken_bytes);
	set(object, "unused_bytes", f->unused_bytes);
	set(object, "largest_unused_bytes", f->largest_unused_bytes);
	set(object, "n_groups", f->n_groups);
	for (size_t i = 0; i < f->n; i++) {
		json_t *group = stat_alloc(json_object());

		json_object_set_new(group, "thread", sites->list[i] ? json_null() : json_integer(f->list[i].thread));
		json_object_set_new(group, "stack", sites->list[i] ? json_string(sites->list[i]) : json_null());
		set(group, "requested_bytes", f->list[i].all_bytes / f->list[i].n_blocks);
		set(group, "n_blocks", f->list[i].n_blocks);
		set(group, "unused_beside_bytes", f->list[i].beside_bytes);
		json_array_append_new(groups, group);
	}
	json_object_set_new(object, "groups", groups);
	return object;
}
