/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Declarations that the files of the program app_sleep share. */

#include "api/gpupool.h"
#include "app_blocks.h"

enum { TIMEOUT_MS = 2000, N_BLOCKS = 6 };

/* The program's memory. */
extern const size_t sizes[N_BLOCKS];
extern CUdeviceptr blocks[N_BLOCKS];

void make_blocks(void);
size_t count_wrong(void);

/* Reports a result of gpupool_sleep or gpupool_wake. */
void report(const char *name, int64_t result);

void sleep_now(void);

/* Scenarios of app_sleep_wake.c. */
void changes(void);
void queries(void);
void one_call(void);
void ends(void);
void ends_in_order(void);
void ends_in_order_without_room(void);
void exits(void);
void forks(void);
void short_wake(void);
void crowded_wake(void);
void asks_waking(void);
void full(void);
void ends_asleep(void);

/* Scenarios of app_sleep_fault.c. */
void faulty(void);
void in_pieces(void);
void no_host(void);
void stopped(void);
void neighbour(void);
void signalled(void);
