/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Python's pickle, protocol 2, of dictionaries, lists, numbers and texts: with no more than the opcodes that readers
 * in other languages know. A text that comes again is written once.
 */

#include <stdint.h>
#include <stdio.h>

enum { PICKLE_TEXTS_MAX = 200 };

struct pickle {
	FILE *out;
	const char *texts[PICKLE_TEXTS_MAX]; /* remembered, by their number */
	unsigned n_texts;
};

void pickle_begin(struct pickle *pickle, FILE *out);
void pickle_end(struct pickle *pickle);

/* Between these: a text and a value, again and again. */
void pickle_dict_begin(struct pickle *pickle);
void pickle_dict_end(struct pickle *pickle);

/* Between these: values. Readers take parts of a list at once: a long one is cut, by saying where each value begins. */
struct pickle_list {
	unsigned n; /* in this part */
};

void pickle_list_begin(struct pickle *pickle, struct pickle_list *list);
void pickle_list_next(struct pickle *pickle, struct pickle_list *list);
void pickle_list_end(struct pickle *pickle, struct pickle_list *list);

void pickle_u64(struct pickle *pickle, uint64_t value);

/* A text of the program's own: it stays where it is. */
void pickle_text(struct pickle *pickle, const char *text);

/* Any other, so many bytes of it. */
void pickle_copy(struct pickle *pickle, const char *text, size_t length);

/* A key and its value. */
void pickle_put_u64(struct pickle *pickle, const char *key, uint64_t value);
void pickle_put_text(struct pickle *pickle, const char *key, const char *text);
