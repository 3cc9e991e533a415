/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A 32-bit program without a C library. All it needs is the loader, which has to preload a 64-bit library. */

static int call(int number, int first, const void *second, int third)
{
	int result;

	__asm__ volatile("int $0x80" : "=a"(result) : "0"(number), "b"(first), "c"(second), "d"(third) : "memory");
	return result;
}

void _start(void);

__attribute__((force_align_arg_pointer)) void _start(void)
{
	enum { SYS_EXIT = 1, SYS_WRITE = 4 };

	call(SYS_WRITE, 1, "alone\n", 6);
	call(SYS_EXIT, 5, 0, 0);
}
