/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_name.h"

#include <stdbool.h>
#include <string.h>

/* TRIES: the number of argument lists without an end that are scanned, since a text need not be a C++ name. */
enum { LIST_MAX = 24, NAME_MAX_SHOWN = 200, TRIES = 16 };

static const char ellipsis[] = "...", elided[] = "<...>";

const char *stat_name_end(const char *frame, size_t length)
{
	const char *end = frame + length, *at = end;

	if (!length || *--at != ')')
		return end;
	while (at > frame && at[-1] >= '0' && at[-1] <= '9')
		at--;
	if (at == end - 1 || at == frame || at[-1] != ':')
		return end;
	while (--at > frame)
		if (at[-1] == ' ' && *at == '(')
			return at - 1;
	return end;
}

/* Returns the length of an operator's symbol at this position, as in "operator<<" and "operator->", or 0. */
static size_t operator_length(const char *name, const char *at)
{
	static const char word[] = "operator";
	static const char *const operators[] = {"<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">"};
	const size_t length = sizeof(word) - 1;

	if ((*at != '<' && *at != '>' && *at != '-') || (size_t)(at - name) < length ||
		strncmp(at - length, word, length) != 0)
		return 0;
	for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++)
		if (strncmp(at, operators[i], strlen(operators[i])) == 0)
			return strlen(operators[i]);
	return 0;
}

/* Returns the end of the list of arguments that opens here, or NULL. '<' in parentheses may be an operator. */
static const char *find_close(const char *name, const char *open, const char *end)
{
	size_t depth = 0, parentheses = 0;

	for (const char *at = open; at < end; at++) {
		size_t skipped = operator_length(name, at);

		if (skipped) {
			at += skipped - 1;
		} else if (*at == '(' || *at == ')') {
			if (*at == ')' && !parentheses)
				return NULL;
			parentheses += *at == '(' ? 1 : (size_t)-1;
		} else if (!parentheses && *at == '<') {
			depth++;
		} else if (!parentheses && *at == '>' && at[-1] != '-' && !--depth) {
			return at;
		}
	}
	return NULL;
}

/* Writes a name without its long lists to its own position, or before it. Returns the end of the written name. */
static char *elide_lists(char *to, const char *name, const char *end)
{
	int n_open = 0;

	for (const char *from = name; from < end; from++) {
		size_t kept = operator_length(name, from);
		bool is_list = !kept && *from == '<' && n_open < TRIES;
		const char *close = is_list ? find_close(name, from, end) : NULL;

		n_open += is_list && !close;
		if (close && close - from - 1 > LIST_MAX) {
			memcpy(to, elided, sizeof(elided) - 1);
			to += sizeof(elided) - 1;
			from = close;
			continue;
		}
		kept = close ? (size_t)(close + 1 - from) : kept ? kept : 1;
		memmove(to, from, kept);
		to += kept;
		from += kept - 1;
	}
	return to;
}

static bool is_inside_character(const char *text)
{
	return (*text & 0xc0) == 0x80;
}

/* Cuts the middle of a name that is longer than max. Returns its new end. */
static char *cut_middle(char *name, char *end, size_t max)
{
	size_t length = (size_t)(end - name), dots = sizeof(ellipsis) - 1;
	char *head, *tail;

	if (length <= max || max <= dots)
		return end;
	head = name + (max - dots) * 3 / 5;
	tail = end - (max - dots - (size_t)(head - name));
	while (head > name && is_inside_character(head))
		head--;
	while (tail < end && is_inside_character(tail))
		tail++;
	memcpy(head, ellipsis, dots);
	memmove(head + dots, tail, (size_t)(end - tail));
	return head + dots + (end - tail);
}

void stat_name_shorten(char *text)
{
	char *to = text, *from = text;

	while (from) {
		char *next = strstr(from, STAT_FRAMES_BETWEEN);
		size_t length = next ? (size_t)(next - from) : strlen(from);
		const char *end = stat_name_end(from, length);
		char *name = to;

		to = cut_middle(name, elide_lists(to, from, end), NAME_MAX_SHOWN);
		memmove(to, end, (size_t)(from + length - end));
		to += from + length - end;
		if (next) {
			memmove(to, next, strlen(STAT_FRAMES_BETWEEN));
			to += strlen(STAT_FRAMES_BETWEEN);
			next += strlen(STAT_FRAMES_BETWEEN);
		}
		from = next;
	}
	*to = '\0';
}

void stat_name_fit(char *text, size_t columns)
{
	char *next = strstr(text, STAT_FRAMES_BETWEEN), *end, *cut;
	size_t length = next ? (size_t)(next - text) : strlen(text), location_length;

	end = text + (stat_name_end(text, length) - text);
	location_length = (size_t)(text + length - end);
	if (!location_length || length <= columns || location_length >= columns)
		return;
	cut = cut_middle(text, end, columns - location_length);
	memmove(cut, end, strlen(end) + 1);
}
