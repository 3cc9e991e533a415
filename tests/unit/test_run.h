/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Shared by the tests of gpupool-run. Each test runs in its own process and directory, with an empty environment,
 * on files that it makes.
 */

#include <check.h>
#include <stddef.h>
#include <sys/types.h>

#define LENGTH(a)       (sizeof(a) / sizeof(*(a)))
#define RUN_WORDS       8
#define RUN_OUTPUT_SIZE (64 * 1024)

extern const char *run_path;          /* path of the launcher */
extern char run_directory[];          /* the current directory */
extern char run_out[RUN_OUTPUT_SIZE]; /* output of the program that ran last */
extern char run_err[RUN_OUTPUT_SIZE];

void run_add_fixture(TCase *tc);

void run_write_file(const char *name, const void *bytes, size_t size, mode_t mode);
void run_write_text(const char *name, const char *text);
void run_read_text(const char *name, char text[static RUN_OUTPUT_SIZE]);

/* Makes a real library that does nothing when preloaded. The fixture makes libgpupool.so this way. */
void run_make_library(const char *name);

/* Runs a program; the words end with NULL, and the first is its path. Returns the exit code. */
int run_execute(const char *const *words);

/* Runs the launcher with the fixture's library and up to RUN_WORDS words, ended by NULL. */
int run_launcher(const char *const *words);
#define RUN(...) run_launcher((const char *const[RUN_WORDS]){__VA_ARGS__})

void run_check_in(const char *text, const char *part);

/* The tests of test_run_program.c, test_run_pools.c, test_run_wait.c and test_run_compare.c. */
void run_add_program_tests(TCase *tc);
void run_add_pools_tests(TCase *tc);
void run_add_wait_tests(TCase *tc);
void run_add_compare_tests(TCase *tc);

/* A command for the tests of test_run_wait.c: test_run --count-signals. Returns its exit status. */
int run_count_signals(void);
