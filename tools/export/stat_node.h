/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Counters of the node, which rise by what happens in all processes, however short they live and however they end.
 * They are collected from the counter pages of processes or, for a process without a page, from its answers.
 *
 * The collector remembers what it has collected from each process, in memory or in a file (--state). Without a file the
 * counters begin at 0, with what happens after the first collection. With a file they go on where they were.
 */

#include "tools/ask/stat_survey.h"

struct stat_node_counters {
	uint64_t processes; /* that have been seen */
#define NODE(member, ...) uint64_t member;
#include "node.def"
};

struct stat_node_user {
	uid_t uid;
	uint64_t ooms;
};

struct stat_node;

/* state: the name of the file, or NULL. Returns NULL after a message if the file has other content. */
struct stat_node *stat_node_new(const char *state);
void stat_node_free(struct stat_node *node);

/*
 * Collects from the processes of a survey and from all pages, and writes the file. Removes the pages of processes that
 * ended at least a minute ago: an exporter of another user may collect them, too.
 */
void stat_node_collect(struct stat_node *node, struct stat_survey *survey);

const struct stat_node_counters *stat_node_counters(const struct stat_node *node);

/* Returns the users whose programs had errors; *ret_n: how many. */
const struct stat_node_user *stat_node_users(const struct stat_node *node, size_t *ret_n);
