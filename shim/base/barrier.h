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

/* Registers, and waits for the kernel. To be called on the server's thread. */
void gp_barrier_register(void);

/*
 * Registers on a short-lived thread, for processes without a server. If that thread does not start there is no
 * barrier.
 */
void gp_barrier_start(void);
