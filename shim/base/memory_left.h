/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include <stdint.h>

/*
 * Returns how much memory of the host the process may take by touching it, so that neither the machine nor a control
 * group of the process comes close to its limit: beyond it the kernel ends processes. A sixteenth of the machine's
 * memory, and half of the limit of each control group, stay for the program: memory from the driver would not count
 * there, so the program cannot know of this. 0 if the machine's memory is unknown.
 *
 * root is put before all file names; it is empty except in tests.
 */
uint64_t gp_memory_left(const char *root);
