/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What the tests of gpupool-stat share: a directory of their own, processes in it with a socket and
 * good or bad manners, and gpupool-stat itself, run with what it prints caught.
 */

#include <check.h>
#include <sys/types.h>
#include <unistd.h>

#define LENGTH(a)         ((int)(sizeof(a) / sizeof(*(a))))
#define STAT_WORDS        8
#define STAT_CATCH_SIZE   (64 * 1024)
#define STAT_COMMANDS_MAX 32

extern const char *stat_path;          /* of gpupool-stat */
extern char peer_dir[64];              /* where the sockets are */
extern char stat_out[STAT_CATCH_SIZE]; /* what gpupool-stat has printed */
extern char stat_err[STAT_CATCH_SIZE];

enum peer_manner {
	PEER_ANSWERS,   /* text, or peer_status() and so on if that is NULL */
	PEER_SILENT,    /* takes requests and says nothing */
	PEER_ENDLESS,   /* says everything but a line end */
	PEER_HANGS_UP,  /* in the middle of its answer */
	PEER_STOPS,     /* likewise: SIGSTOP */
	PEER_LATE,      /* hangs up on two clients before it answers the third */
	PEER_STAYS,     /* answers on a connection until it ends, with peer_counted */
	PEER_DEAF,      /* has closed its socket */
	PEER_STOPPED,   /* SIGSTOP */
	PEER_NO_SOCKET, /* just a process */
	PEER_LIBRARY,   /* likewise, with a file called libgpupool.so mapped */
};

void peer_setup(void);
void peer_teardown(void); /* ends all peers */

/* A process that answers each request with a line, good or bad. Its socket is there on return. */
pid_t peer_start(enum peer_manner manner, const char *text);

/* The same for PEER_ANSWERS of another user, to whom the directory belongs; takes root. */
pid_t peer_start_as(uid_t uid, const char *text);

/* Ends one, and leaves its socket behind. */
void peer_kill(pid_t pid);

/* The same in a process with an environment of its own, whose socket is in that directory. */
pid_t peer_exec(const char *dir);

/* Its socket's file name; valid until the next call. */
const char *peer_socket(pid_t pid);

/* What that peer says to anything: the how manieth connection it is, and the how manieth answer on it. */
#define peer_counted \
	"{\"schema\":\"gpupool.limit/1\",\"devices\":[{\"index\":%d,\"limit_bytes\":null,\"total_bytes\":%d}]}"

/* Good answers to "status", "leaks" and "oom". */
extern const char peer_status[], peer_status_callers[], peer_leaks[], peer_oom[];

/* A program of such tests, whose one word is the path of gpupool-stat: each test has the fixture. */
int stat_main(int argc, char **argv, const char *name, void (*add_tests)(TCase *tc));

/* The path of the program of tests. */
const char *stat_self(void);

/* In a child: what runs from now on is a program with up to STAT_WORDS words up to a NULL. */
_Noreturn void stat_become(const char *path, const char *const *words);

/* gpupool-stat with up to STAT_WORDS words up to a NULL. Returns the exit code. */
int stat_execute(uid_t uid, const char *const *words);
#define STAT(...) stat_execute(geteuid(), (const char *const[STAT_WORDS]){__VA_ARGS__})

/* A process id as a word; valid for as many calls as there are words. */
const char *stat_word(pid_t pid);

void stat_check_in(const char *text, const char *part);

/* These words are refused: it says why, and what to do instead, and ends with 2. */
void stat_check_refused(const char *const *words, const char *why);

/* Says in the output of the tests that the rest of this one was not run, and why. */
void stat_skip(const char *why);

/* The commands of gpupool-stat --help, in its order; how many. */
int stat_find_commands(char names[STAT_COMMANDS_MAX][16]);
