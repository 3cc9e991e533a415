/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The kernel's barrier for all threads of the process (membarrier). The process has to register for it, and in a
 * process with several threads that takes the kernel 10 to 25 ms, which no thread of the program is to wait for.
 */

#include "../pool/ownlock.h"

/* NULL until the process is registered; for ever where the kernel has no such barrier. */
extern gp_barrier_source gp_barrier;

/* Registers, and waits for the kernel: for the server's thread. */
void gp_barrier_register(void);

/* The same on a thread of its own, which ends then: where there is no server. Without that thread there is none. */
void gp_barrier_start(void);
