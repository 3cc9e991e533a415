/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Everything that the lint of the library looks for. */

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
