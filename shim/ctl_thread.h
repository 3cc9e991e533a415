/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include <stddef.h>

/* For threads that call nothing but libc, and for those that call the driver. */
enum { GP_STACK_SMALL = 256 << 10, GP_STACK_USUAL = 0 };

/*
 * Starts a detached thread with a stack of that size and every signal blocked, so that the
 * program's handlers run where they always did. 0 or -errno.
 */
int gp_ctl_thread_start(void *(*body)(void *arg), void *arg, size_t stack_bytes);
