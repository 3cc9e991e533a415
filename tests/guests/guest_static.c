/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A statically linked program, into which nothing can be preloaded. */

#include <stdio.h>

int main(void)
{
	puts("alone");
	return 5;
}
