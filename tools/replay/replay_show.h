/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Prints the results of a replay, as text and as "gpupool.replay/1". */

#include <jansson.h>

#include "replay_fragments.h"

/* Prints two or three lines about the file. */
void replay_show_contents(const struct replay_contents *contents);

/* The fragmentation of one of the replayed pool types, with the call sites that cause it. */
struct replay_causes {
	enum gp_kind kind;
	struct replay_fragments fragments;
	struct replay_fragment_sites sites;
};

/* causes: NULL without call sites. */
void replay_show(const struct replay_contents *contents, const struct replay_result *results, size_t n,
	const struct replay_causes *causes);
void replay_show_json(const struct replay_contents *contents, const struct replay_result *results, size_t n,
	const struct replay_causes *causes);

/* Prints the fragmentation at the peak of a pool type, and returns it as an object. */
void replay_show_fragments(enum gp_kind kind, const struct replay_contents *contents,
	const struct replay_fragments *fragments, const struct replay_fragment_sites *sites);
json_t *replay_fragments_json(const struct replay_fragments *fragments, const struct replay_fragment_sites *sites);

/* Returns "auto", "ordered" or "completed". */
const char *replay_reuse_name(enum replay_reuse reuse);
