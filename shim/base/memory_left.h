/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include <stdint.h>

/* The party that wants the memory. */
enum gp_memory_for {
	GP_MEMORY_FOR_PROGRAM, /* the program, for which memory of the driver would not count in its control group */
	GP_MEMORY_FOR_USER     /* the user, by a command or a setting about memory of the host */
};

/*
 * Returns how much memory of the host the process may take by touching it, so that neither the machine nor a control
 * group of the process comes close to its limit: beyond it the kernel ends processes. A sixteenth of the machine's
 * memory stays. Of the limit of each control group half stays, since a program cannot know that its pinned memory
 * counts there; a sixteenth, if the user wants the memory. 0 if the machine's memory is unknown.
 *
 * root is put before all file names; it is empty except in tests.
 */
uint64_t gp_memory_left(const char *root, enum gp_memory_for whom);
