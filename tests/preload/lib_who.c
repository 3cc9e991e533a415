/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "lib_who.h"

#include <dlfcn.h>
#include <stddef.h>

int who(void)
{
	/* Look up twice: the second answer must not depend on the first. */
	int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "who");
	int (*again)(void) = (int (*)(void))dlsym(RTLD_NEXT, "who");

	if (next == who || next != again)
		return -1;
	return next ? LIB_DIGIT + 10 * next() : LIB_DIGIT;
}

int LIB_NAME(void)
{
	return LIB_DIGIT;
}
