/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The frames of a Python program, read where CPython 3.11 to 3.13 keeps them (python.def). */

#include <stdint.h>

/* Looks for an interpreter in the process. May be called again. */
void gp_python_find(void);

/* The innermost frames of the thread's Python code, at most max, as places (place.h). How many. */
unsigned gp_python_take(uintptr_t *frames, unsigned max);

/* Where the function starts that runs Python code: above it the interpreter's frames are all there is. 0: none. */
uintptr_t gp_python_loop(void);
