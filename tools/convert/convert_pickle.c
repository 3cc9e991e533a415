/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "convert_pickle.h"

#include <string.h>

enum { PART_MAX = 1000 };

enum opcode {
	PROTO = 0x80,
	LONG1 = 0x8a,
	MARK = '(',
	STOP = '.',
	BININT = 'J',
	BININT1 = 'K',
	BINUNICODE = 'X',
	EMPTY_LIST = ']',
	EMPTY_DICT = '}',
	APPENDS = 'e',
	SETITEMS = 'u',
	BINPUT = 'q',
	BINGET = 'h',
};

static void put(struct pickle *p, int byte)
{
	fputc(byte, p->out);
}

static void put_little(struct pickle *p, uint64_t value, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		put(p, (int)(value >> (8 * i) & 0xff));
}

void pickle_begin(struct pickle *p, FILE *out)
{
	*p = (struct pickle){.out = out};
	put(p, PROTO);
	put(p, 2);
}

void pickle_end(struct pickle *p)
{
	put(p, STOP);
}

void pickle_dict_begin(struct pickle *p)
{
	put(p, EMPTY_DICT);
	put(p, MARK);
}

void pickle_dict_end(struct pickle *p)
{
	put(p, SETITEMS);
}

void pickle_list_begin(struct pickle *p, struct pickle_list *list)
{
	list->n = 0;
	put(p, EMPTY_LIST);
	put(p, MARK);
}

void pickle_list_next(struct pickle *p, struct pickle_list *list)
{
	if (list->n++ < PART_MAX)
		return;
	put(p, APPENDS);
	put(p, MARK);
	list->n = 1;
}

void pickle_list_end(struct pickle *p, struct pickle_list *list)
{
	put(p, APPENDS);
}

/* BININT and LONG1 are signed: a value whose top bit is set takes one more byte. */
void pickle_u64(struct pickle *p, uint64_t value)
{
	unsigned n = 1;

	if (value <= UINT8_MAX) {
		put(p, BININT1);
		put(p, (int)value);
	} else if (value <= INT32_MAX) {
		put(p, BININT);
		put_little(p, value, 4);
	} else {
		while (n < 8 && value >> (8 * n - 1))
			n++;
		put(p, LONG1);
		put(p, (int)(n + (value >> 63)));
		put_little(p, value, n);
		if (value >> 63)
			put(p, 0);
	}
}

void pickle_copy(struct pickle *p, const char *text, size_t length)
{
	put(p, BINUNICODE);
	put_little(p, length, 4);
	fwrite(text, 1, length, p->out);
}

void pickle_text(struct pickle *p, const char *text)
{
	for (unsigned i = 0; i < p->n_texts; i++) {
		if (strcmp(p->texts[i], text) != 0)
			continue;
		put(p, BINGET);
		put(p, (int)i);
		return;
	}
	pickle_copy(p, text, strlen(text));
	if (p->n_texts == PICKLE_TEXTS_MAX)
		return;
	put(p, BINPUT);
	put(p, (int)p->n_texts);
	p->texts[p->n_texts++] = text;
}

void pickle_put_u64(struct pickle *p, const char *key, uint64_t value)
{
	pickle_text(p, key);
	pickle_u64(p, value);
}

void pickle_put_text(struct pickle *p, const char *key, const char *text)
{
	pickle_text(p, key);
	pickle_text(p, text);
}
