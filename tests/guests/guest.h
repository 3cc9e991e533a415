/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What the guests written in C share. They are programs of app.h, linked to the driver. */

#include "tests/preload/app_driver.h"

/* Once per thread that uses memory: the context is the process's. */
void guest_join(void);

/* Allocates, writes, reads back and frees, device and pinned memory; prints what went wrong, and how much did. */
void guest_use(const char *who);
size_t guest_count_wrong(void); /* the same, printing nothing */

/* Prints which of the first descriptors are open: the library keeps its own far above. */
void guest_list_descriptors(const char *when);

/* The program has closed these. */
void guest_forget_descriptors(int first);

unsigned guest_count_entries(const char *directory); /* "." and ".." apart */

void guest_wait(const char *who, int child); /* prints how a child ended */
