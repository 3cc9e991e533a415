/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Which processes have a control socket, and what they answer. Each ends up with an answer or with
 * a reason, so that one that is stopped or broken takes nothing away from the others.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ctl_client.h"
#include "shim/ctl_proto.h"
#include "stat_reply.h"

struct stat_dir {
	char path[GP_CTL_PATH_MAX];
	int fd; /* open while n_users, else -1; GP_CTL_NO_DIR if is_abstract */
	size_t n_users;
	bool is_abstract; /* stands for the sockets without a file of this user */
	uid_t uid;
	dev_t device;
	ino_t inode;
};

/* Numbers of directories, sockets and processes that a survey left out. */
struct stat_missed {
	size_t n_dirs;	  /* directories that could not be opened: there were no descriptors */
	size_t n_sockets; /* directories with too many entries, or too many directories */
	size_t n_late;	  /* sockets for which there was no time */
	size_t n_beyond;  /* processes beyond the share of their user, or whose answer is */
	size_t n_series;  /* processes without metrics: their user has too many */
};

struct stat_process {
	size_t dir; /* index */
	char name[GP_CTL_NAME_MAX];
	pid_t pid; /* by its socket, as seen from here; else by the socket's name */
	uint64_t start_ticks;
	uid_t uid;
	bool is_dropped; /* dead, or not asked for */
	bool was_silent; /* the last time */

	/* index into the users of the round that asks it */
	bool is_named, is_started;
	size_t user;

	struct ctl_client client;

	json_t *reply; /* NULL: the rest says why */
	enum stat_exit exit;
	char error[STAT_ERROR_MAX]; /* reads after "pid 41822 " */
	char next[STAT_ERROR_MAX];  /* "": nothing to advise */
};

struct stat_survey {
	struct stat_dir *dirs;
	size_t n_dirs;
	struct stat_process *processes; /* by pid */
	size_t n_processes;
	size_t n_foreign; /* of other users, when they were found */
	struct stat_missed missed;
	int64_t looked_ns; /* for sockets, the last time; 0: never */
};

/* What to ask, and whom: these processes, or all that can be seen. */
struct stat_question {
	const char *request; /* with its line end; NULL: only connect */
	const char *schema;  /* of the answer: "status" */
	size_t max_bytes;    /* of the answer */
	int timeout_ms; /* of all of it */
	const pid_t *pids;
	size_t n_pids;
};

/* Looks for sockets of this user, for root of all users, and asks. Sockets of the dead go. */
void stat_survey_run(struct stat_survey *survey, const struct stat_question *question);

/*
 * The same again and again, with a survey that is all zeros at first. Connections stay open, sockets are looked for
 * once a second, and who was late the last time is not waited for.
 */
void stat_survey_again(struct stat_survey *survey, const struct stat_question *question);

void stat_survey_deinit(struct stat_survey *survey);

/* Whether there may be processes that were not asked, or whose answer was left out; if so, why. */
bool stat_survey_is_incomplete(const struct stat_survey *survey, char why[static STAT_ERROR_MAX]);

const struct stat_process *stat_survey_find(const struct stat_survey *survey, pid_t pid);
