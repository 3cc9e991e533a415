/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Shared by the guests that are written in C: programs of app.h that are linked with the driver. */

#include "tests/preload/app_driver.h"

/* Each thread calls this before it uses memory. All use the context of the process. */
void guest_join(void);

/* Allocates, writes, reads back and frees device and pinned memory. Prints the number of wrong words. */
void guest_use(const char *label);
size_t guest_count_wrong(void); /* like guest_use, but prints nothing */

/* Prints which of the first descriptors are open. The library's descriptors have far higher numbers. */
void guest_list_descriptors(const char *when);

/* Records that the program has closed the descriptors from first on. */
void guest_forget_descriptors(int first);

unsigned guest_count_entries(const char *directory); /* without "." and ".." */

void guest_wait(const char *label, int child); /* prints the exit status of a child */
