/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Shared by the tests of gpupool-stat: a private directory, processes in it whose sockets behave well or
 * badly, and gpupool-stat itself, run with its output captured.
 */

#include <check.h>
#include <sys/types.h>
#include <unistd.h>

#define LENGTH(a)         ((int)(sizeof(a) / sizeof(*(a))))
#define STAT_WORDS        8
#define STAT_CATCH_SIZE   (64 * 1024)
#define STAT_COMMANDS_MAX 32

extern const char *stat_path;          /* path of gpupool-stat */
extern char peer_dir[64];              /* where the sockets are */
extern char stat_out[STAT_CATCH_SIZE]; /* what gpupool-stat has printed */
extern char stat_err[STAT_CATCH_SIZE];

enum peer_manner {
	PEER_ANSWERS,   /* answers with the text, or with a good answer if that is NULL */
	PEER_SILENT,    /* reads requests and never answers */
	PEER_ENDLESS,   /* sends without end, and never a newline */
	PEER_HANGS_UP,  /* closes in the middle of its answer */
	PEER_STOPS,     /* stops itself in the middle of its answer (SIGSTOP) */
	PEER_LATE,      /* hangs up on two clients before it answers the third */
	PEER_STAYS,     /* answers each connection with peer_counted until it ends */
	PEER_DEAF,      /* has closed its listening socket */
	PEER_STOPPED,   /* stopped before it accepts (SIGSTOP) */
	PEER_NO_SOCKET, /* a process without a socket */
	PEER_LIBRARY,   /* a process without a socket that has mapped a file called libgpupool.so */
	PEER_HIDDEN,    /* a process without a socket whose mappings the kernel shows to CAP_SYS_PTRACE only */
};

void peer_setup(void);
void peer_teardown(void); /* ends all peers */

/* Starts a process that answers each request with one line. Its socket exists when this returns. */
pid_t peer_start(enum peer_manner manner, const char *text);

/* Like peer_start with PEER_ANSWERS, but the process runs as another user, who must own the directory. Needs root. */
pid_t peer_start_as(uid_t uid, const char *text);

/* Kills a peer and leaves its socket behind. */
void peer_kill(pid_t pid);

/* Like peer_start, but the process is started with a given environment. Its socket is in `dir`. */
pid_t peer_exec(const char *dir);

/* Returns the path of the peer's socket; valid until the next call. */
const char *peer_socket(pid_t pid);

/* The answer of PEER_STAYS to any request: the number of the connection, and of the answer on it. */
#define peer_counted \
	"{\"schema\":\"gpupool.limit/2\",\"devices\":[{\"index\":%d,\"limit_bytes\":null,\"counted_bytes\":%d}]}"

/* Good answers to "status", "status callers", "leaks" and "oom". */
extern const char peer_status[], peer_status_callers[], peer_leaks[], peer_oom[];

/* The main function of such a program of tests, whose one argument is the path of gpupool-stat. */
int stat_main(int argc, char **argv, const char *name, void (*add_tests)(TCase *tc));

/* Returns the path of the program of tests. */
const char *stat_self(void);

/* Called in a child: becomes the program at `path` with up to STAT_WORDS words, ended by NULL. */
_Noreturn void stat_become(const char *path, const char *const *words);

/* Runs gpupool-stat with up to STAT_WORDS words, ended by NULL. Returns the exit code. */
int stat_execute(uid_t uid, const char *const *words);
#define STAT(...) stat_execute(geteuid(), (const char *const[STAT_WORDS]){__VA_ARGS__})

/* Returns a process id as a word; valid for STAT_WORDS calls. */
const char *stat_word(pid_t pid);

void stat_check_in(const char *text, const char *part);

/* Checks that these words are refused with exit code 2, the reason, and what to do instead. */
void stat_check_refused(const char *const *words, const char *why);

/* Reports in the output that the rest of this test was skipped, and why. */
void stat_skip(const char *why);

/* Reads the commands of gpupool-stat --help, in its order; returns their number. */
int stat_find_commands(char names[STAT_COMMANDS_MAX][16]);
