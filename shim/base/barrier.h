/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The kernel's barrier for all threads of the process (membarrier). The process has to register for it. In a
 * process with several threads the registration takes 10 to 25 ms, for which no thread of the program should wait.
 */

#include "pool/ownlock.h"

/* NULL until the process is registered, and always where the kernel has no such barrier. */
extern gp_barrier_source gp_barrier;

/* Registers the process, which waits for the kernel. To be called on the server's thread. */
void gp_barrier_register(void);

/*
 * Registers the process on a short-lived thread, if it has no server. If that thread cannot be started, gp_barrier
 * stays NULL.
 */
void gp_barrier_start(void);
