/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include <stddef.h>

/* Stack sizes: for threads that call only libc, and for threads that call the driver. */
enum { GP_STACK_SMALL = 256 << 10, GP_STACK_USUAL = 0 };

/*
 * Starts a detached thread with a stack of that size. All signals are blocked in it, so that the program's handlers
 * run in the same threads as without gpupool. Returns 0 or -errno.
 */
int gp_own_thread_start(void *(*body)(void *arg), void *arg, size_t stack_bytes);
