/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ask/stat_reply.h"
#include "tools/text/stat_text.h"

static const char *const by_words[STAT_N_BY] = {"site", "library", "size", "age"};

bool stat_by_parse(const char *word, enum stat_by *ret)
{
	*ret = STAT_BY_SITE;
	for (int i = 0; word && i <= STAT_N_BY; i++) {
		if (i == STAT_N_BY)
			return false;
		*ret = (enum stat_by)i;
		if (strcmp(by_words[i], word) == 0)
			break;
	}
	return true;
}

/* Takes ownership of the key. */
static struct stat_group *new_group(struct stat_groups *groups, char *key)
{
	if (groups->n == groups->room) {
		groups->room = groups->room ? groups->room * 2 : 64;
		groups->list = stat_alloc(reallocarray(groups->list, groups->room, sizeof(*groups->list)));
	}
	groups->list[groups->n] = (struct stat_group){.key = key};
	return &groups->list[groups->n++];
}

static void add(struct stat_group *group, const json_t *holders)
{
	uint64_t bytes = stat_reply_u64_or_0(holders, "bytes");
	uint64_t oldest_ns = stat_reply_u64_or_0(holders, "oldest_ns");

	group->blocks += stat_reply_u64_or_0(holders, "blocks");
	group->bytes = group->bytes > INT64_MAX - bytes ? INT64_MAX : group->bytes + bytes;
	group->oldest_ns = oldest_ns > group->oldest_ns ? oldest_ns : group->oldest_ns;
}

static void add_site(struct stat_groups *groups, const json_t *site, struct stat_stacks *stacks)
{
	const json_t *frames = json_object_get(site, "frames");

	if (groups->by == STAT_BY_SITE)
		add(new_group(groups, stat_stacks_text(stacks, frames)), site);
	else
		add(new_group(groups, stat_alloc(strdup(stat_stacks_library(stacks, frames)))), site);
}

static void add_sites(struct stat_groups *groups, const json_t *reply, struct stat_stacks *stacks)
{
	const json_t *sites = json_object_get(reply, "sites"), *site;
	const json_t *without = json_object_get(reply, "without_stack");
	size_t i;

	json_array_foreach(sites, i, site)
		add_site(groups, site, stacks);
	if (stat_reply_u64_or_0(without, "blocks"))
		add(new_group(groups, stat_alloc(strdup("(no stack)"))), without);
}

/* Adds the libraries that the process lists itself: it knows them also without stacks, and after their unloading. */
static void add_callers(struct stat_groups *groups, const json_t *callers)
{
	const json_t *item;
	size_t i;

	json_array_foreach(callers, i, item) {
		const char *caller = json_string_value(json_object_get(item, "caller"));

		add(new_group(groups, stat_alloc(strdup(caller ? caller : "(unknown)"))), item);
	}
}

static void add_classes(struct stat_groups *groups, const json_t *classes, const char *from,
	void (*write)(char text[static STAT_TEXT_MAX], uint64_t value))
{
	const json_t *class;
	size_t i;

	json_array_foreach(classes, i, class) {
		char text[STAT_TEXT_MAX], key[STAT_TEXT_MAX + 16];
		uint64_t begin = stat_reply_u64_or_0(class, from);
		struct stat_group *group;

		write(text, begin);
		snprintf(key, sizeof(key), "%s and more", text);
		group = new_group(groups, stat_alloc(strdup(key)));
		group->order = begin;
		add(group, class);
	}
}

static int compare_keys(const void *a, const void *b)
{
	const struct stat_group *one = a, *other = b;

	return strcmp(one->key, other->key);
}

/* Merges groups with equal keys, such as the call sites of an unrolled loop at one line. Sorts the groups by key. */
static void merge_equal(struct stat_groups *groups)
{
	size_t n = 0;

	qsort(groups->list, groups->n, sizeof(*groups->list), compare_keys);
	for (size_t i = 0; i < groups->n; i++) {
		struct stat_group *group = &groups->list[i], *last = n ? &groups->list[n - 1] : NULL;

		if (!last || strcmp(last->key, group->key) != 0) {
			groups->list[n++] = *group;
			continue;
		}
		last->blocks += group->blocks;
		last->bytes = last->bytes > INT64_MAX - group->bytes ? INT64_MAX : last->bytes + group->bytes;
		last->oldest_ns = group->oldest_ns > last->oldest_ns ? group->oldest_ns : last->oldest_ns;
		free(group->key);
	}
	groups->n = n;
}

static int compare(const void *a, const void *b)
{
	const struct stat_group *one = a, *other = b;

	if (one->order != other->order)
		return one->order < other->order ? -1 : 1;
	if (one->bytes != other->bytes)
		return one->bytes < other->bytes ? 1 : -1;
	return strcmp(one->key, other->key);
}

void stat_groups_make(struct stat_groups *groups, enum stat_by by, const json_t *reply, struct stat_stacks *stacks)
{
	*groups = (struct stat_groups){.by = by};
	if (by == STAT_BY_SIZE)
		add_classes(groups, json_object_get(reply, "sizes"), "from_bytes", stat_bytes);
	else if (by == STAT_BY_AGE)
		add_classes(groups, json_object_get(reply, "ages"), "from_ns", stat_age);
	else if (by == STAT_BY_LIBRARY && json_is_array(json_object_get(reply, "callers")))
		add_callers(groups, json_object_get(reply, "callers"));
	else
		add_sites(groups, reply, stacks);
	if (!groups->n)
		return;
	merge_equal(groups);
	qsort(groups->list, groups->n, sizeof(*groups->list), compare);
}

void stat_groups_free(struct stat_groups *groups)
{
	for (size_t i = 0; i < groups->n; i++)
		free(groups->list[i].key);
	free(groups->list);
	*groups = (struct stat_groups){0};
}

static struct stat_group *find(struct stat_group *list, size_t n, const char *key)
{
	struct stat_group wanted = {.key = (char *)(uintptr_t)key};

	return n ? bsearch(&wanted, list, n, sizeof(*list), compare_keys) : NULL;
}

void stat_groups_compare(struct stat_groups *groups, const struct stat_groups *older)
{
	size_t n_current = groups->n;

	groups->has_growth = true;
	if (n_current)
		qsort(groups->list, n_current, sizeof(*groups->list), compare_keys);
	for (size_t i = 0; i < n_current; i++)
		groups->list[i].growth = (int64_t)groups->list[i].bytes;
	for (size_t i = 0; i < older->n; i++) {
		const struct stat_group *older_group = &older->list[i];
		struct stat_group *current = find(groups->list, n_current, older_group->key);

		if (!current)
			current = new_group(groups, stat_alloc(strdup(older_group->key)));
		current->growth -= (int64_t)older_group->bytes;
		current->order = older_group->order;
	}
	if (groups->n)
		qsort(groups->list, groups->n, sizeof(*groups->list), compare);
}
