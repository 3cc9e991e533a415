/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A library with every problem that the lint of the library must report. */

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

__attribute__((visibility("default"))) double bad_export(double x);

static _Thread_local volatile char much[2048];

double bad_export(double x)
{
	much[0] = 1;
	return cos(x);
}

__attribute__((constructor)) static void start(void)
{
	struct stat st;

	/* New in GLIBC_2.33. */
	if (stat("/", &st) || !aligned_alloc(64, 64))
		exit(1);
}
