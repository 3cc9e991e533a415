/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Starts a detached thread with a small stack and every signal blocked, so that the program's
 * handlers run where they always did. 0 or -errno.
 */
int gp_ctl_thread_start(void *(*body)(void *arg), void *arg);
