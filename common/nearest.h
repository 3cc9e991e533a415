/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Finds the name that was probably meant by a mistyped word. The functions are inline, since both programs and the
 * library use them, and nothing else of this folder needs them.
 */

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum {
	GP_NEAREST_MAX = 64, /* a longer word is near to no name */
	GP_NEAREST_PREFIX_MIN = 3,
};

struct gp_nearest {
	const char *word;
	size_t length;    /* of the word */
	size_t distance;  /* of the nearest so far; before, one more than the largest that counts as near */
	size_t n_same;    /* letters at its beginning that are those of the word */
	const char *name; /* the nearest so far; NULL: none is near */
};

/* at_most: how many letters may be wrong. A word that ends in "=VALUE" is compared without that end. */
static inline void gp_nearest_init(struct gp_nearest *nearest, const char *word, size_t at_most)
{
	*nearest = (struct gp_nearest){.word = word, .length = strcspn(word, "="), .distance = at_most + 1};
}

/* The same for a word of a command line: a third of its letters may be wrong, and at least one. */
static inline void gp_nearest_init_word(struct gp_nearest *nearest, const char *word)
{
	gp_nearest_init(nearest, word, (strcspn(word, "=") + 2) / 3);
}

static inline size_t gp_nearest_min(size_t a, size_t b)
{
	return a < b ? a : b;
}

/*
 * Returns how many letters must be inserted, removed, replaced or exchanged with their neighbour to make one text of
 * the other (optimal string alignment), computed one row at a time. The texts have at most GP_NEAREST_MAX letters.
 */
static inline size_t gp_nearest_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
	size_t rows[3][GP_NEAREST_MAX + 1] = {{0}};

	for (size_t j = 0; j <= b_length; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= a_length; i++) {
		size_t *row = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];

		row[0] = i;
		for (size_t j = 1; j <= b_length; j++) {
			row[j] = gp_nearest_min(
				last[j - 1] + (a[i - 1] != b[j - 1]), gp_nearest_min(last[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = gp_nearest_min(row[j], before[j - 2] + 1);
		}
	}
	return rows[a_length % 3][b_length];
}

/*
 * Takes a name into account. Of equally near names it is the one that begins like the word, or the first. A name of
 * which the word is the beginning counts as one wrong letter.
 */
static inline void gp_nearest_try(struct gp_nearest *nearest, const char *name)
{
	size_t length = strlen(name), distance, n_same = 0;

	if (!nearest->length || nearest->length > GP_NEAREST_MAX || length > GP_NEAREST_MAX)
		return;
	distance = gp_nearest_distance(nearest->word, nearest->length, name, length);
	while (n_same < nearest->length && name[n_same] == nearest->word[n_same])
		n_same++;
	if (n_same == nearest->length && n_same >= GP_NEAREST_PREFIX_MIN)
		distance = gp_nearest_min(distance, 1);
	if (distance > nearest->distance ||
		(distance == nearest->distance && (!nearest->name || n_same <= nearest->n_same)))
		return;
	nearest->name = name;
	nearest->distance = distance;
	nearest->n_same = n_same;
}
