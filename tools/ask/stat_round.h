/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Asks the processes of a survey within one deadline, and shares the time, the connections and the memory among their
 * users, so that no user can use up what the answers of others need. The processes of the user who asks are "own", all
 * others foreign; only root has foreign ones.
 */

#include "stat_survey.h"

/* Bounds for foreign processes. */
enum {
	STAT_USER_PROCESSES = 256,     /* asked per user */
	STAT_USER_BYTES = 16 << 20,    /* of all answers per user */
	STAT_USER_VALUES = 1 << 18,    /* of all answers per user; a parsed value takes up to 200 bytes */
	STAT_FOREIGN_BYTES = 64 << 20, /* of all foreign users together */
	STAT_FOREIGN_VALUES = 1 << 20,
};

/*
 * Asks the processes. Each of them then has an answer or an error, or is dropped; survey->missed counts those that were
 * not asked. is_repeated: connections are kept, as far as there are descriptors.
 */
void stat_round_ask(struct stat_survey *survey, const struct stat_question *question, bool is_repeated);
