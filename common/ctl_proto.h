/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The protocol between the server in the program and its clients: where sockets are, how they are named, how requests
 * and answers are framed. This needs libc alone and reads no environment variables: its callers do.
 *
 * A request is one line of words. An answer is one JSON object on one line, with "schema" as its first member. A
 * connection takes any number of requests, one after the other.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

enum {
	GP_CTL_REQUEST_MAX = 4096,   /* bytes of a request, with its line end */
	GP_CTL_ANSWER_MAX = 4 << 20, /* bytes of an answer, with its line end */
	GP_CTL_WORDS_MAX = 8,        /* words of a request, with its name */
	GP_CTL_PATH_MAX = 1024,      /* bytes of a directory's path, with the NUL */
	GP_CTL_NAME_MAX = 64,        /* bytes of a socket's name, with the NUL */
	GP_CTL_PROBLEMS_MAX = 512,   /* bytes of the text about unusable directories, with the NUL */
	GP_CTL_SCHEMA_MAX = 32,      /* bytes of a schema's name, with the NUL */
};

enum gp_ctl_access {
	GP_CTL_READ,  /* only reads state */
	GP_CTL_WRITE, /* changes the process */
};

enum gp_ctl_command {
#define COMMAND(name, version, min_words, max_words, access, synopsis, help) GP_CTL_##name,
#include "ctl.def"
	GP_CTL_N_COMMANDS
};

struct gp_ctl_command_row {
	const char *name;
	unsigned version; /* of the answer: "gpupool.NAME/VERSION" */
	int min_words, max_words;
	enum gp_ctl_access access;
	const char *synopsis, *help;
};

extern const struct gp_ctl_command_row gp_ctl_commands[GP_CTL_N_COMMANDS];

/* Returns the command of that name, or GP_CTL_N_COMMANDS. */
enum gp_ctl_command gp_ctl_command_find(const char *name);

/* Cuts a line into words, in place. Returns their number, or -E2BIG if there are more than max. */
int gp_ctl_split(char *line, char **words, int max);

/*
 * The user's choices for the socket directory, in order of preference. NULL and "" mean not set. Other values must be
 * absolute paths.
 */
struct gp_ctl_dirs {
	const char *runtime_dir;     /* $GPUPOOL_RUNTIME_DIR itself */
	const char *xdg_runtime_dir; /* $XDG_RUNTIME_DIR/gpupool */
	const char *tmp_dir;         /* $TMPDIR/gpupool-UID or /tmp/gpupool-UID */
	uid_t uid;
	const char *run_dir; /* RUN_DIR/UID, after runtime_dir; left out if that is set */
};

/*
 * The folder of the machine for socket directories of all users. Containers can share it, and it does not depend on the
 * environment of a job.
 */
#define GP_CTL_RUN_DIR "/run/gpupool"

/*
 * Returns the path if it is a directory of root or of the user, in which no other user can remove a directory; else
 * NULL.
 */
const char *gp_ctl_run_dir(const char *path, uid_t uid);

/*
 * Writes the path of the nth choice. Returns 0, -ENOENT (not set), -EINVAL (relative), -ENAMETOOLONG, or -ERANGE
 * (there are no more).
 */
int gp_ctl_dir(const struct gp_ctl_dirs *dirs, unsigned nth, char *path, size_t size);

/*
 * Opens a socket directory without following a link in its last component. It must belong to uid and be closed to
 * other users. With `create` a missing directory is created. Returns a descriptor (O_PATH, close on exec), or -errno:
 * -ELOOP (a link), -EPERM (it belongs to another user, or is open to others), -ENOTDIR, -ENOENT.
 */
int gp_ctl_dir_open(const char *path, uid_t uid, bool create);

/*
 * Opens the first usable directory of these, and creates it if it is missing. Writes its path. Returns a descriptor,
 * or the error of the last one tried.
 */
int gp_ctl_dir_find(const struct gp_ctl_dirs *dirs, char *path, size_t size);

/*
 * Writes for a message why a user's socket directory cannot be used, by the error of opening it or of creating a
 * socket.
 */
void gp_ctl_dir_explain(const char *path, uid_t uid, int error, char *text, size_t size);

/* Passed instead of an open directory: the name belongs to a socket without a file (ctl_abstract.h). */
enum { GP_CTL_NO_DIR = -3 };

/*
 * Writes the address of a socket in an open directory. It leads through /proc, so that the path may be longer than the
 * 107 bytes that fit into an address, and so that no directory on the way can be exchanged.
 */
int gp_ctl_address(int dir_fd, const char *name, struct sockaddr_un *address, socklen_t *length);

enum { GP_CTL_OVERFLOW_UID = 65534 }; /* every user without a number in this user namespace is shown as this one */

/* True if this user namespace has numbers for all users, as that of the machine has. */
bool gp_ctl_has_all_users(void);

/* True if the process at the other end of a connection runs as this user or as root. */
bool gp_ctl_is_peer_trusted(int fd);

/* Returns the pid of the process at the other end, or 0 if it is not visible from here, as in another container. */
pid_t gp_ctl_peer_pid(int fd);

/*
 * Connects to a socket in an open directory, with this user or root at the other end. Does not wait. Returns a
 * descriptor, or -errno: -EAGAIN (too busy to accept), -EPERM (another user), -ECONNREFUSED (its process has ended),
 * -ENOENT.
 */
int gp_ctl_connect(int dir_fd, const char *name);

/*
 * As gp_ctl_connect, for root and the directory of another user. That user controls the directory's contents, so the
 * process with that uid and pid must be at the other end, not one to which a link leads.
 */
int gp_ctl_connect_to(int dir_fd, const char *name, uid_t uid, pid_t pid);

/* As gp_ctl_connect, with any user at the other end, whom the caller has to judge. */
int gp_ctl_connect_any(int dir_fd, const char *name, uid_t *ret_uid);

/*
 * A socket is named PID.START.sock, with the process's start time in clock ticks. So a pid that is used again does not
 * make an old socket look alive.
 */
void gp_ctl_name_format(char name[static GP_CTL_NAME_MAX], pid_t pid, uint64_t start_ticks);
bool gp_ctl_name_parse(const char *name, pid_t *pid, uint64_t *start_ticks);

/* Reads decimal digits. Returns the position behind them, or NULL. */
const char *gp_ctl_parse_digits(const char *text, uint64_t *value);

/*
 * Gets the start time and state ('S', 'T', 'Z'...) of a process from /proc; pid 0 is this process. Returns 0 or
 * -errno.
 */
int gp_ctl_process_stat(pid_t pid, uint64_t *start_ticks, char *state);

/* Splits a schema such as "gpupool.status/1" into its name and version. */
bool gp_ctl_schema_parse(const char *schema, char name[static GP_CTL_SCHEMA_MAX], unsigned *major);
