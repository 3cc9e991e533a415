/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What the server in the program and its clients agree on: where sockets are, how they are called,
 * how requests and answers are framed. Needs libc alone; reads no environment variables, its
 * callers do.
 *
 * A request is one line of words, an answer one JSON object on one line, whose first member is
 * "schema". A connection takes any number of requests, one after the other.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

enum {
	GP_CTL_REQUEST_MAX = 4096,   /* bytes of a request, its line end included */
	GP_CTL_ANSWER_MAX = 4 << 20, /* bytes of an answer, likewise */
	GP_CTL_WORDS_MAX = 8,        /* words of a request, its name included */
	GP_CTL_PATH_MAX = 1024,      /* bytes of a directory's name, NUL included */
	GP_CTL_NAME_MAX = 64,        /* bytes of a socket's name, NUL included */
	GP_CTL_PROBLEMS_MAX = 512,   /* bytes of what is said of unusable directories, NUL included */
	GP_CTL_SCHEMA_MAX = 32,      /* bytes of a schema's name, NUL included */
	GP_CTL_MAJOR = 1,            /* version of the answers: "gpupool.status/1" */
};

enum gp_ctl_access {
	GP_CTL_READ,  /* looks */
	GP_CTL_WRITE, /* changes the process */
};

enum gp_ctl_command {
#define COMMAND(name, min_words, max_words, access, synopsis, help) GP_CTL_##name,
#include "ctl.def"
	GP_CTL_N_COMMANDS
};

struct gp_ctl_command_row {
	const char *name;
	int min_words, max_words;
	enum gp_ctl_access access;
	const char *synopsis, *help;
};

extern const struct gp_ctl_command_row gp_ctl_commands[GP_CTL_N_COMMANDS];

/* The command of that name, or GP_CTL_N_COMMANDS. */
enum gp_ctl_command gp_ctl_command_find(const char *name);

/* Cuts a line into words, in place. Their number, or -E2BIG if there are more than max. */
int gp_ctl_split(char *line, char **words, int max);

/*
 * The user's choice of places for the socket directory, in the order of preference. NULL and ""
 * mean unset; everything else counts only if it is an absolute path.
 */
struct gp_ctl_places {
	const char *runtime_dir;     /* $GPUPOOL_RUNTIME_DIR, taken as it is */
	const char *xdg_runtime_dir; /* $XDG_RUNTIME_DIR, gpupool/ in it */
	const char *tmp_dir;         /* $TMPDIR, or /tmp: gpupool-UID/ in it */
	uid_t uid;
};

/*
 * The directory of one of these places; 0, -ENOENT (not set), -EINVAL (relative), -ENAMETOOLONG,
 * -ERANGE (no more).
 */
int gp_ctl_place(const struct gp_ctl_places *places, unsigned nth, char *path, size_t size);

/*
 * Opens a socket directory without following a link in its last component. It must belong to uid
 * and be closed to everybody else. A descriptor (O_PATH, close on exec), or -errno: -ELOOP (a
 * link), -EPERM (somebody else's, or open to others), -ENOTDIR, -ENOENT. With create it is made if
 * it is not there.
 */
int gp_ctl_dir_open(const char *path, uid_t uid, bool create);

/*
 * The first usable place, made if necessary, and its name; a descriptor, or the error of the last
 * one tried.
 */
int gp_ctl_dir_find(const struct gp_ctl_places *places, char *path, size_t size);

/* For a message: why a user's socket directory cannot be used, by the error of opening it or of making a socket. */
void gp_ctl_dir_explain(const char *path, uid_t uid, int error, char *text, size_t size);

/* In place of an open directory: the name is that of a socket without a file (ctl_abstract.h). */
enum { GP_CTL_NO_DIR = -3 };

/*
 * The address of a socket in an open directory. It leads through /proc, so that a path may be
 * longer than the 107 bytes that fit an address, and that nobody can exchange a directory on the
 * way.
 */
int gp_ctl_address(int dir_fd, const char *name, struct sockaddr_un *address, socklen_t *length);

/* Whether the process at the other end of a connection is this user's or root's. */
bool gp_ctl_may_ask(int fd);

/* The number of the process at the other end; 0 if it cannot be seen from here, as in another container. */
pid_t gp_ctl_peer_pid(int fd);

/*
 * A connection to a socket in an open directory, with this user or root at the other end; does not
 * wait. A descriptor, or -errno: -EAGAIN (too busy to accept), -EPERM (somebody else), -ECONNREFUSED (gone), -ENOENT.
 */
int gp_ctl_connect(int dir_fd, const char *name);

/*
 * The same for root and another user's directory, in which nothing is to be trusted: the process of that number and
 * user must be at the other end, not one that a link leads to.
 */
int gp_ctl_connect_to(int dir_fd, const char *name, uid_t uid, pid_t pid);

/*
 * A socket is called PID.START.sock, with the process's start time in clock ticks: a number that is
 * used again for another process does not make an old socket look alive.
 */
void gp_ctl_name_format(char name[static GP_CTL_NAME_MAX], pid_t pid, uint64_t start_ticks);
bool gp_ctl_name_parse(const char *name, pid_t *pid, uint64_t *start_ticks);

/* Decimal digits; the position behind them, or NULL. */
const char *gp_ctl_parse_digits(const char *text, uint64_t *value);

/*
 * What /proc says of a process (0: the own one): start time and state ('S', 'T', 'Z'...). 0 or
 * -errno.
 */
int gp_ctl_process_stat(pid_t pid, uint64_t *start_ticks, char *state);

/* Takes "gpupool.status/1" apart. */
bool gp_ctl_schema_parse(const char *schema, char name[static GP_CTL_SCHEMA_MAX], unsigned *major);
