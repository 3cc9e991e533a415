/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A driver that crashes, as one does whose kernel module is of another version. */

#include <stdlib.h>

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
	abort();
}
