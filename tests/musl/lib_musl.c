/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A plug-in; and, built under the name libcuda.so.1, the driver functions that the guest calls. */

#define _GNU_SOURCE

#include <dlfcn.h>
#include <stddef.h>

int lib_musl_answer(void);
int cuMemAlloc_v2(unsigned long long *ptr, size_t bytes);
int cuMemFree_v2(unsigned long long ptr);
int cuCtxGetCurrent(void **context);

static int answer;

/* Calls dlsym in a constructor, as plug-ins do that look for other plug-ins. */
__attribute__((constructor)) static void look_up(void)
{
	answer = dlsym(RTLD_DEFAULT, "puts") && !dlsym(RTLD_NEXT, "lib_musl_nowhere") ? 42 : 0;
}

int lib_musl_answer(void)
{
	return answer;
}

int cuMemAlloc_v2(unsigned long long *ptr, size_t bytes)
{
	*ptr = 0x1000 + bytes;
	return 17;
}

int cuMemFree_v2(unsigned long long ptr)
{
	return ptr == 0x1000 + 512 ? 18 : 19;
}

int cuCtxGetCurrent(void **context)
{
	*context = NULL;
	return 0;
}
