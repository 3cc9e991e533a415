/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Writes Python's pickle format, protocol 2: dictionaries, lists, numbers and texts. It uses only opcodes that readers
 * in other languages know. A repeated text is written once and referred to by its number.
 */

#include <stdint.h>
#include <stdio.h>

enum { PICKLE_TEXTS_MAX = 200 };

struct pickle {
	FILE *out;
	const char *texts[PICKLE_TEXTS_MAX]; /* written before, by number */
	unsigned n_texts;
};

void pickle_begin(struct pickle *pickle, FILE *out);
void pickle_end(struct pickle *pickle);

/* Between begin and end the caller writes keys, each a text, and behind each its value. */
void pickle_dict_begin(struct pickle *pickle);
void pickle_dict_end(struct pickle *pickle);

/*
 * Between begin and end the caller writes values, each behind a call of pickle_list_next(). A reader holds the values
 * of one APPENDS opcode on its stack, so a long list is written in parts.
 */
struct pickle_list {
	unsigned n; /* values in this part */
};

void pickle_list_begin(struct pickle *pickle, struct pickle_list *list);
void pickle_list_next(struct pickle *pickle, struct pickle_list *list);
void pickle_list_end(struct pickle *pickle, struct pickle_list *list);

void pickle_u64(struct pickle *pickle, uint64_t value);

/* Writes a text that stays valid until pickle_end(): the pickle keeps the pointer, to write a repeated text once. */
void pickle_text(struct pickle *pickle, const char *text);

/* Writes the first length bytes of any other text. */
void pickle_copy(struct pickle *pickle, const char *text, size_t length);

/* These write a key and its value. */
void pickle_put_u64(struct pickle *pickle, const char *key, uint64_t value);
void pickle_put_text(struct pickle *pickle, const char *key, const char *text);
