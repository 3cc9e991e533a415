/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Runs the programs of this directory on the simulated GPU, with the library preloaded or not, and catches what they
 * print, how they end, and their facts. A test program is called with three paths: the library's, and the
 * directories of the simulated driver and of the programs.
 */

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/emulator.h"

#define LENGTH(array)   (sizeof(array) / sizeof(*(array)))
#define MIB             ((uint64_t)1 << 20)
#define PLAY_OUTPUT_MAX (64 * 1024)

struct play {
	const char *program;   /* in the programs' directory, or a path */
	const char *words[6];  /* its arguments */
	const char *const *env; /* NAME=VALUE, up to a NULL: beside, or instead of, what every program gets; or NULL */
	const char *preload;   /* the library to preload; NULL: none */
	const char *inside;    /* for play_same: the program with the library in it, instead of the preload */
	void (*at_pause)(const char *name);
};

extern const char *play_library; /* the library under test */
extern const char *play_sim_dir, *play_app_dir;
extern const char *play_stat; /* gpupool-stat, if the test program is called with a fourth path */
extern char play_dir[]; /* the current one, private to the test; control sockets go there */

extern char play_out[PLAY_OUTPUT_MAX], play_err[PLAY_OUTPUT_MAX];
extern int play_status; /* exit code, or 128 + signal */

void play_run(const struct play *play);

/*
 * Runs it without and with the library, and asserts that nobody could tell the difference. What is left behind is
 * from the second run.
 */
void play_same(const struct play *play);

/*
 * The same, but for what is documented: where memory is mapped, an allocation that misses the cache is served whatever
 * is captured, and the capture goes on.
 */
void play_same_or_served(const struct play *play);

/* A number that the last program told; the test fails if it told none. */
uint64_t play_fact(const char *name);

/* While a program pauses: a request through its control socket, and the first number of that name in an answer. */
const char *play_ask(const char *request);
const char *play_ask_pid(unsigned pid, const char *request); /* of several processes */
uint64_t play_number(const char *json, const char *name);

/* What was answered in the pauses of the last program, in their order, as far as the test keeps it. */
extern char play_answers[8][256 * 1024];
extern unsigned play_n_answers;
void play_keep(const char *answer);

/* The exit code of gpupool-stat with these words, and what a shell follows them with; what it says goes into text. */
int play_stat_says(const char *words, char *text, size_t size);
bool play_is_listening(void); /* whether there is a control socket */

/* Tests of one file; returns main's result. */
struct play_tests {
	const char *name;
	void (*add)(TCase *tc);
};
int play_main(int argc, char **argv, const struct play_tests *tests, size_t n);
