/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include <stddef.h>

/* The stack size of gpupool's own threads. */
enum { GP_STACK_SMALL = 256 << 10 };

/*
 * Starts a detached thread with a stack of that size (0: the default size). All signals are blocked in it, so that the
 * program's handlers run in the same threads as without gpupool. Returns 0 or -errno.
 */
int gp_own_thread_start(void *(*body)(void *arg), void *arg, size_t stack_bytes);

/*
 * Runs the body in up to n - 1 threads that end with it, and in the calling thread, and returns once all are done. All
 * signals are blocked in all of these threads meanwhile: a handler of the program that left by longjmp() would leave
 * the others behind with an argument that is gone. Where no thread can be made, the calling thread runs the body alone.
 * Not a cancellation point. Returns the number of threads that ran the body.
 */
unsigned gp_own_threads_run(void *(*body)(void *arg), void *arg, unsigned n);
