/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The source of two files: a program that needs a library called libasan.so, and a library of that name that
 * is not the sanitizer.
 */

#include <stdio.h>
#include <stdlib.h>

#ifdef IS_LIBRARY
__attribute__((visibility("default"))) int needs_asan_answer(void);
int needs_asan_answer(void)
{
	return 0;
}
#else
int needs_asan_answer(void);

int main(void)
{
	const char *options = getenv("ASAN_OPTIONS");

	printf("%s\n", options ? options : "not set");
	return needs_asan_answer();
}
#endif
