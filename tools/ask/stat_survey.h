/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Finds the processes that have a control socket, and asks them. Each process gets an answer or a reason why it has
 * none, so that a stopped or broken process does not affect the others.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/ctl_proto.h"
#include "ctl_client.h"
#include "stat_reply.h"

struct stat_dir {
	char path[GP_CTL_PATH_MAX];
	int fd; /* open while n_users, else -1; GP_CTL_NO_DIR if is_abstract */
	size_t n_users;
	bool is_abstract; /* not a directory: the entry for this user's sockets without a file */
	uid_t uid;
	dev_t device;
	ino_t inode;
};

/* Numbers of directories, sockets and processes that a survey left out. */
struct stat_missed {
	size_t n_dirs;    /* directories that could not be opened, for lack of descriptors */
	size_t n_sockets; /* directories with too many entries, or too many directories */
	size_t n_places;  /* processes whose user has too many different environments to search them all */
	size_t n_late;    /* sockets for which there was no time */
	size_t n_beyond;  /* processes that exceed, or whose answers exceed, their user's share */
	size_t n_series;  /* processes without metrics: their user has too many series */
};

struct stat_process {
	size_t dir; /* index */
	char name[GP_CTL_NAME_MAX];
	pid_t pid; /* of the peer of the socket, as seen from here; if unknown, the number in the socket's name */
	uint64_t start_ticks;
	uid_t uid;
	bool is_dropped; /* has ended, or is not one that the user wants to ask */
	bool was_silent; /* did not answer the last time */

	/* State of the round that asks this process. */
	bool is_named, is_started;
	size_t user; /* index into its users */

	struct ctl_client client;

	json_t *reply;  /* NULL: the members below say why */
	json_t *before; /* of a question that keeps answers: that of the last time that there was one; NULL: none */
	enum stat_exit exit;
	char error[STAT_ERROR_MAX]; /* reads after "pid 41822 " */
	char next[STAT_ERROR_MAX];  /* "": nothing to advise */
};

struct stat_survey {
	struct stat_dir *dirs;
	size_t n_dirs;
	struct stat_process *processes; /* by pid */
	size_t n_processes;
	size_t n_foreign; /* of other users, before any were dropped */
	struct stat_missed missed;
	int64_t searched_ns; /* when sockets were last searched for; 0: never */
	int64_t looked_ns;   /* when processes were last looked at to find directories; 0: never */
};

/* The earlier answers that stat_survey_again() keeps. */
enum stat_keeps {
	STAT_KEEPS_NONE,
	STAT_KEEPS_BEFORE, /* the answer before the latest one, for rates */
	STAT_KEEPS_LAST,   /* only the latest one, of a process that does not answer now */
};

/* A request, and the processes to ask: these or, if n_pids is 0, all that can be seen. */
struct stat_question {
	const char *request; /* with its line end; NULL: only connect */
	const char *schema;  /* of the answer: "status" */
	size_t max_bytes;    /* of the answer */
	int timeout_ms;      /* of the whole survey */
	const pid_t *pids;
	size_t n_pids;
	enum stat_keeps keeps;
};

/* Finds the sockets of this user, or for root of all users, and asks. Removes the user's sockets of ended processes. */
void stat_survey_run(struct stat_survey *survey, const struct stat_question *question);

/*
 * The same, to be called repeatedly, with a survey that is all zeros at first. Connections stay open, sockets are
 * searched for once a second, and processes that were late the last time are not waited for.
 */
void stat_survey_again(struct stat_survey *survey, const struct stat_question *question);

/* Finds the sockets without asking: of this user, or for root of all users. The survey is all zeros at first. */
void stat_survey_find_all(struct stat_survey *survey);

void stat_survey_deinit(struct stat_survey *survey);

/* Returns true if processes may not have been asked, or answers were left out, and writes why. */
bool stat_survey_is_incomplete(const struct stat_survey *survey, char why[static STAT_ERROR_MAX]);

const struct stat_process *stat_survey_find(const struct stat_survey *survey, pid_t pid);
