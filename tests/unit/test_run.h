/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What the tests of gpupool-run share: each runs in a process and a directory of its own, with an
 * empty environment, on files that it makes.
 */

#include <check.h>
#include <stddef.h>
#include <sys/types.h>

#define LENGTH(a)       (sizeof(a) / sizeof(*(a)))
#define RUN_WORDS       8
#define RUN_OUTPUT_SIZE (64 * 1024)

extern const char *run_path;          /* of the launcher */
extern char run_directory[];          /* the current one */
extern char run_out[RUN_OUTPUT_SIZE]; /* what the last one started has printed */
extern char run_err[RUN_OUTPUT_SIZE];

void run_add_fixture(TCase *tc);

void run_write_file(const char *name, const void *bytes, size_t size, mode_t mode);
void run_write_text(const char *name, const char *text);
void run_read_text(const char *name, char text[static RUN_OUTPUT_SIZE]);

/* A real library that does no harm where it is preloaded. The fixture makes libgpupool.so. */
void run_make_library(const char *name);

/* Words up to a NULL, the first one a path. Returns the exit code. */
int run_execute(const char *const *words);

/* The launcher with the fixture's library, and up to RUN_WORDS words up to a NULL. */
int run_launcher(const char *const *words);
#define RUN(...) run_launcher((const char *const[RUN_WORDS]){__VA_ARGS__})

void run_check_in(const char *text, const char *part);

/* The tests of test_run_program.c. */
void run_add_program_tests(TCase *tc);
