/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Turns off the frameworks' own pools of GPU memory, in the environment of the program (common/own_pools.def). */

#include "run_say.h"

/*
 * Sets the switches, and puts the start-up hook for Python into PYTHONPATH. Returns RUN_OK, or another status after a
 * message. RUN_USAGE: the user has set a switch to another value.
 */
enum run_status run_pools_off(void);

/* Says in one line which pools are off. */
void run_pools_say(void);

/* Prints the switches as shell commands, through a function that prints one. */
void run_pools_print(void (*print)(const char *name, const char *value));

/* Prints the table of switches, for --help. */
void run_pools_help(void);
