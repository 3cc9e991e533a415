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
