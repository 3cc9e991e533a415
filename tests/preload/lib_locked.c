/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A plug-in whose constructor calls the program back. */

#include "lib_locked.h"

__attribute__((constructor)) static void start(void)
{
	locked_constructor();
}
