/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Binds to the symbol versions that glibc has had since 2.2.5 (x86-64) or 2.17 (aarch64), where the linker would take
 * newer ones: the library must load in every process on systems older than the one it was built on.
 *
 * Functions that musl lacks are weak, since the library must load in musl's processes, too, where it does nothing
 * (libc.h).
 */

#include <dlfcn.h>
#include <sys/stat.h>

#if defined(__x86_64__)
#define GP_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define GP_GLIBC "GLIBC_2.17"
#endif

#ifdef GP_GLIBC
__asm__(".symver dlopen,dlopen@" GP_GLIBC);
__asm__(".symver dlvsym,dlvsym@" GP_GLIBC);
__asm__(".symver dladdr,dladdr@" GP_GLIBC);
__asm__(".symver dlclose,dlclose@" GP_GLIBC);
__asm__(".symver dlerror,dlerror@" GP_GLIBC);
__asm__(".symver pthread_create,pthread_create@" GP_GLIBC);
__asm__(".symver pthread_detach,pthread_detach@" GP_GLIBC);
__asm__(".symver pthread_join,pthread_join@" GP_GLIBC);
__asm__(".symver pthread_key_create,pthread_key_create@" GP_GLIBC);
__asm__(".symver pthread_once,pthread_once@" GP_GLIBC);
__asm__(".symver pthread_setspecific,pthread_setspecific@" GP_GLIBC);
__asm__(".symver pthread_attr_setstacksize,pthread_attr_setstacksize@" GP_GLIBC);
#endif

#pragma weak dlvsym
#pragma weak statx

/* pthread_atfork calls this function. pthread_atfork itself is linked into the library, with a strong reference. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object)
	__attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden"))); /* the object argument of __register_atfork */
