/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Lets a static libmicrohttpd run with glibc 2.28 (old_glibc.c). glibc 2.34 gave the functions of libpthread newer
 * symbol versions when it moved them into libc. The linker directs the calls of the static library here (--wrap), and
 * compat.h binds the calls below to the old versions. On an older system these are found in libpthread.so.0, which the
 * program names for that reason.
 */

#include <pthread.h>

#include "common/compat.h"

#ifdef GP_GLIBC
__asm__(".symver pthread_join,pthread_join@" GP_GLIBC);
#endif

int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attributes, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attributes, void *(*fn)(void *), void *arg)
{
	return pthread_create(ret, attributes, fn, arg);
}

int __wrap_pthread_join(pthread_t thread, void **ret);
int __wrap_pthread_join(pthread_t thread, void **ret)
{
	return pthread_join(thread, ret);
}

int __wrap_pthread_attr_setstacksize(pthread_attr_t *attributes, size_t bytes);
int __wrap_pthread_attr_setstacksize(pthread_attr_t *attributes, size_t bytes)
{
	return pthread_attr_setstacksize(attributes, bytes);
}
