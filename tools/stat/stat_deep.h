/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Deep sleep: the driver takes out of the devices what the pool's sleep leaves there (../ask/checkpoint.h). This
 * program calls the driver, and has the process keep its threads from calling it meanwhile. If this program ends in
 * between, the process stays as it is. A wake asks the driver for the state, and goes on from there.
 */

#include "tools/ask/stat_options.h"
#include "tools/ask/stat_survey.h"

struct stat_deep {
	pid_t pid;
	int timeout_ms;
	bool is_done;   /* by this call, or before */
	bool was_so;    /* the process was deep asleep already, or was not */
	uint64_t bytes; /* that the driver took out, or brought back; UINT64_MAX: unknown */
	uint64_t ns;
	char why[STAT_ERROR_MAX];  /* if it is not done: the reason, as a sentence without its period */
	char next[STAT_ERROR_MAX]; /* what the user can do about it, or "" */
	enum stat_exit exit;       /* then; the same before stat_deep_look finds anything wrong: STAT_OK */
};

/*
 * Looks at the process before a sleep or a wake. Returns false if it must stay as it is, because another program has
 * the driver hold it. survey: a survey that is all zeros; the caller ends it.
 */
bool stat_deep_look(struct stat_deep *deep, struct stat_survey *survey);

/* The process is deep asleep, or a call that was to make it so has ended before. */
bool stat_deep_is(const struct stat_survey *survey);

/* Makes a process that is asleep deep asleep. Returns false if it stays as it was. */
bool stat_deep_go(struct stat_deep *deep, const struct stat_survey *survey);

/* Has the driver bring back what it took. The pool's sleep stays. Returns false if the process stays as it was. */
bool stat_deep_undo(struct stat_deep *deep, const struct stat_survey *survey);
