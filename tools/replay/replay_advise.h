/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-stat advise FILE: which pool type and which limit a program needs, by replays of its recording. */

#include "replay_conclude.h"
#include "replay_fragments.h"
#include "replay_search.h"
#include "tools/ask/stat_command.h"

enum { REPLAY_LIMITS = 5 };

struct replay_advice {
	struct replay_found kinds[GP_N_KINDS];
	struct replay_conclusion conclusion;
	size_t n_limits;
	struct replay_try limits[REPLAY_LIMITS]; /* of the recommended pool type, from the smallest up */
	bool has_fragments;
	struct replay_fragments fragments; /* of the recorded pool type */
	struct replay_fragment_sites sites;
};

/* Runs the command on options->file. */
enum stat_exit replay_advise_file(const struct stat_options *options);

/* Prints the advice as text, or as "gpupool.advise/1". */
void replay_advise_show(const struct replay_contents *contents, const struct replay_advice *advice);
void replay_advise_show_json(const struct replay_contents *contents, const struct replay_advice *advice);
