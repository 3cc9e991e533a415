/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "marks.h"

#include <string.h>

enum { MANY = 64 };

/*
 * A loop may leak: so by such a share more has to be used until it counts as more, and what differs by less than such
 * a step counts as the same.
 */
#define SHARE 16
#define STEPS 1024

static bool is_higher(const struct gp_marks *marks, uint64_t used_bytes)
{
	return used_bytes > marks->level + marks->level / SHARE;
}

static uint64_t hash_of(const struct gp_marks *marks, uint64_t size, uint64_t used_bytes)
{
	uint64_t step = used_bytes / (marks->level / STEPS + 1);

	/* Never 0, which is no note. */
	return (size / GP_ALIGN + (step << 40)) * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

static unsigned place_of(uint64_t hash)
{
	return (unsigned)(hash >> (64 - GP_MARKS_LOG2));
}

void gp_marks_begin(struct gp_marks *marks, uint64_t used_bytes)
{
	if (!is_higher(marks, used_bytes))
		return;
	memset(marks, 0, sizeof(*marks));
	marks->level = used_bytes;
}

void gp_marks_note(struct gp_marks *marks, uint64_t size, uint64_t used_bytes)
{
	uint64_t hash = hash_of(marks, size, used_bytes);

	marks->count++;
	marks->notes[place_of(hash)] = hash;
}

bool gp_marks_is_known(const struct gp_marks *marks, uint64_t size, uint64_t used_bytes)
{
	uint64_t hash = hash_of(marks, size, used_bytes);

	return marks->notes[place_of(hash)] == hash;
}

unsigned gp_marks_excess(const struct gp_marks *marks)
{
	return marks->count > MANY ? marks->count - MANY : 0;
}
