/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Reads the Python frames of a thread from the structures of CPython 3.11 to 3.13 (python.def). */

#include <stdint.h>

/* Looks for an interpreter in the process. May be called again. */
void gp_python_find(void);

/* Stores the thread's innermost Python frames, at most max, as code locations (location.h). Returns their number. */
unsigned gp_python_take(uintptr_t *frames, unsigned max);

/*
 * Returns the address of the interpreter's evaluation loop, or 0 if there is none. In a C stack, the loop and the
 * frames outside of it belong to the interpreter.
 */
uintptr_t gp_python_loop(void);
