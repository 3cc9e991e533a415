/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Runs the programs of this directory on the simulated GPU, with or without the library preloaded. Captures their
 * output, their exit status and the facts that they report. A test program is called with three paths: those of the
 * library, of the simulated driver's directory and of the programs' directory.
 */

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/emulator.h"

#define LENGTH(array)   (sizeof(array) / sizeof(*(array)))
#define MIB             ((uint64_t)1 << 20)
#define PLAY_OUTPUT_MAX (64 * 1024)

struct play {
	const char *program;    /* in the programs' directory, or a path */
	const char *words[6];   /* its arguments */
	const char *const *env; /* NAME=VALUE up to NULL, added to or replacing the defaults; or NULL */
	const char *preload;    /* the library to preload; NULL: none */
	const char *inside;     /* for play_same: the program with the library linked in, run instead of the preload */
	void (*at_pause)(const char *name);
};

extern const char *play_library; /* the library under test */
extern const char *play_sim_dir, *play_app_dir;
extern const char *play_stat; /* gpupool-stat, or the program of a fourth path that the test is called with */
extern char play_dir[];       /* the test's own directory, also for control sockets */

extern char play_out[PLAY_OUTPUT_MAX], play_err[PLAY_OUTPUT_MAX];
extern int play_status; /* exit code, or 128 + signal */

void play_run(const struct play *play);

/*
 * Runs the program without and with the library, and asserts that output and exit status are the same. play_out,
 * play_err and play_status are those of the run with the library. The run without it is made only once for a program,
 * its arguments and its variables other than GPUPOOL*, which have no meaning there.
 */
void play_same(const struct play *play);

/*
 * Like play_same, but allows the documented difference: an allocation for which the pool has to grow is served even
 * during a capture, and the capture goes on.
 */
void play_same_or_served(const struct play *play);

/* Returns a number that the last program reported. The test fails if the program did not report it. */
uint64_t play_fact(const char *name);

/*
 * Sends a request to the control socket of a paused program. play_number returns the first number of a name in an
 * answer.
 */
const char *play_ask(const char *request);
int play_ask_only(const char *request);                      /* returns the connection */
const char *play_ask_pid(unsigned pid, const char *request); /* if several processes run */
uint64_t play_number(const char *json, const char *name);

/* Answers that the test kept with play_keep during the pauses of the last program, in order. */
extern char play_answers[8][256 * 1024];
extern unsigned play_n_answers;
void play_keep(const char *answer);

/* Runs gpupool-stat with the words, which a shell interprets. Stores its output in text and returns its exit code. */
int play_run_stat(const char *words, char *text, size_t size);
pid_t play_start_stat(const char *words, const char *file); /* without waiting for its end; the file has its output */
void play_read(const char *file, char text[static PLAY_OUTPUT_MAX]);
bool play_is_listening(void); /* true if there is a control socket */
void play_stop(pid_t pid);    /* sends SIGSTOP, and waits until the process is stopped */

/* Makes a page as gpupool-run does for a summary, and writes the variable that names it. */
enum { PLAY_VARIABLE_MAX = 96 };
void play_make_page(char variable[static PLAY_VARIABLE_MAX]);

/* Tests of one file; returns main's result. */
struct play_tests {
	const char *name;
	void (*add)(TCase *tc);
};
int play_main(int argc, char **argv, const struct play_tests *tests, size_t n);
