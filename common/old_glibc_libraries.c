/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Lets gpupool-stat, which starts threads, and static libraries that use threads or dlopen run with glibc 2.28
 * (old_glibc.c). glibc 2.34 gave the functions of libpthread and libdl newer symbol versions when it moved them into
 * libc. The linker directs their calls here (--wrap), and the calls below are bound to the old versions. On an older
 * system these are found in libpthread.so.0 and libdl.so.2, which the program names for that reason. tools/meson.build
 * lists the functions, too.
 */

#include <dlfcn.h>
#include <pthread.h>

#include "common/compat.h"

#ifdef GP_GLIBC
__asm__(".symver dlsym,dlsym@" GP_GLIBC);
__asm__(".symver pthread_join,pthread_join@" GP_GLIBC);
__asm__(".symver pthread_rwlock_destroy,pthread_rwlock_destroy@" GP_GLIBC);
__asm__(".symver pthread_rwlock_init,pthread_rwlock_init@" GP_GLIBC);
__asm__(".symver pthread_rwlock_rdlock,pthread_rwlock_rdlock@" GP_GLIBC);
__asm__(".symver pthread_rwlock_tryrdlock,pthread_rwlock_tryrdlock@" GP_GLIBC);
__asm__(".symver pthread_rwlock_unlock,pthread_rwlock_unlock@" GP_GLIBC);
__asm__(".symver pthread_rwlock_wrlock,pthread_rwlock_wrlock@" GP_GLIBC);
#endif

/* Defines the function that the linker calls instead of fn. */
#define WRAP(result, fn, parameters, arguments) \
	__typeof__(fn) __wrap_##fn;             \
	result __wrap_##fn parameters           \
	{                                       \
		return fn arguments;            \
	}

WRAP(int, dlclose, (void *library), (library))
WRAP(void *, dlopen, (const char *path, int flags), (path, flags))
WRAP(void *, dlsym, (void *library, const char *name), (library, name))
WRAP(int, pthread_attr_setstacksize, (pthread_attr_t * attributes, size_t bytes), (attributes, bytes))
WRAP(int, pthread_create, (pthread_t * ret, const pthread_attr_t *attributes, void *(*fn)(void *), void *arg),
	(ret, attributes, fn, arg))
WRAP(int, pthread_join, (pthread_t thread, void **ret), (thread, ret))
WRAP(int, pthread_once, (pthread_once_t * once, void (*fn)(void)), (once, fn))
WRAP(int, pthread_rwlock_destroy, (pthread_rwlock_t * lock), (lock))
WRAP(int, pthread_rwlock_init, (pthread_rwlock_t * lock, const pthread_rwlockattr_t *attributes), (lock, attributes))
WRAP(int, pthread_rwlock_rdlock, (pthread_rwlock_t * lock), (lock))
WRAP(int, pthread_rwlock_tryrdlock, (pthread_rwlock_t * lock), (lock))
WRAP(int, pthread_rwlock_unlock, (pthread_rwlock_t * lock), (lock))
WRAP(int, pthread_rwlock_wrlock, (pthread_rwlock_t * lock), (lock))
