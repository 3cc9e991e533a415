/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_sites.h"

#include <stdlib.h>
#include <string.h>

#include "tools/ask/stat_reply.h"
#include "tools/text/stat_number.h"
#include "stat_stack.h"
#include "stat_symbols.h"

#define BETWEEN_LENGTH (sizeof(STAT_FRAMES_BETWEEN) - 1)

/* Splits the text into its frames. */
static void split(struct stat_site *site)
{
	size_t n = 1;

	for (const char *at = site->text; (at = strstr(at, STAT_FRAMES_BETWEEN)); at += BETWEEN_LENGTH)
		n++;
	site->frames = stat_alloc(calloc(n, sizeof(*site->frames)));
	for (char *at = site->text; at;) {
		char *end = strstr(at, STAT_FRAMES_BETWEEN);

		if (end)
			*end = '\0';
		site->frames[site->n_frames++] = at;
		at = end ? end + BETWEEN_LENGTH : NULL;
	}
}

/* Takes ownership of the text. */
static void add(struct stat_sites *sites, const json_t *holders, char *text)
{
	struct stat_site *site;

	sites->list = stat_alloc(reallocarray(sites->list, sites->n + 1, sizeof(*sites->list)));
	site = &sites->list[sites->n++];
	*site = (struct stat_site){
		.text = text,
		.blocks = stat_reply_u64_or_0(holders, "blocks"),
		.bytes = stat_reply_u64_or_0(holders, "bytes"),
		.allocs = stat_reply_u64_or_0(holders, "allocs"),
		.alloc_bytes = stat_reply_u64_or_0(holders, "alloc_bytes"),
	};
	split(site);
}

void stat_sites_make(struct stat_sites *sites, const json_t *leaks, pid_t pid, uid_t uid)
{
	struct stat_stacks *stacks = stat_stacks_new(leaks, pid, uid);
	const json_t *list = json_object_get(leaks, "sites"), *site;
	const json_t *without = json_object_get(leaks, "without_stack"), *rest = json_object_get(leaks, "rest");
	size_t i;

	*sites = (struct stat_sites){0};
	json_array_foreach(list, i, site)
		add(sites, site, stat_stacks_full_text(stacks, json_object_get(site, "frames")));
	if (stat_reply_u64_or_0(rest, "blocks"))
		add(sites, rest, stat_alloc(strdup("(other stacks)")));
	if (stat_reply_u64_or_0(without, "blocks"))
		add(sites, without, stat_alloc(strdup("(no stack)")));
	stat_stacks_free(stacks);
}

void stat_sites_free(struct stat_sites *sites)
{
	for (size_t i = 0; i < sites->n; i++) {
		free(sites->list[i].frames);
		free(sites->list[i].text);
	}
	free(sites->list);
	*sites = (struct stat_sites){0};
}

struct stat_frame stat_frame_parse(const char *text)
{
	size_t length = strlen(text);
	struct stat_frame frame = {.name = text, .file = "", .name_length = (int)length};
	const char *open = NULL, *colon = strrchr(text, ':');
	char digits[24];

	for (const char *at = text; (at = strstr(at, " (")); at++)
		open = at;
	if (!open || !colon || colon < open || text[length - 1] != ')')
		return frame;
	length = (size_t)(text + length - 1 - (colon + 1));
	if (length >= sizeof(digits))
		return frame;
	memcpy(digits, colon + 1, length);
	digits[length] = '\0';
	if (!stat_number_parse(digits, INT64_MAX, &frame.line))
		return frame;
	frame.name_length = (int)(open - text);
	frame.file = open + 2;
	frame.file_length = (int)(colon - frame.file);
	return frame;
}
