/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Lets the tools run with glibc 2.28, whichever version they are built with. Functions to which a newer glibc gives a
 * newer symbol version are defined here, so that calls of the tools and of static libraries end here. They are hidden,
 * so they replace nothing in shared libraries. compat.h does the same for libgpupool.so, which must not define them.
 *
 * The start of a program is part of it. Since 2.34 crt1.o passes no function for the constructors, which older versions
 * of __libc_start_main do not find themselves. The linker directs crt1.o's call to __wrap___libc_start_main
 * (--wrap=__libc_start_main).
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/compat.h"

#define HIDDEN(name) __asm__(name) __attribute__((visibility("hidden")))

typedef int main_function(int argc, char **argv, char **envp);
typedef void init_function(int argc, char **argv, char **envp);
typedef void end_function(void);

int gp_old_start_main(main_function *main, int argc, char **argv, init_function *init, end_function *fini,
	end_function *rtld_fini, void *stack_end);
__asm__(".symver gp_old_start_main,__libc_start_main@" GP_GLIBC);

int gp_start_main(main_function *main, int argc, char **argv, init_function *init, end_function *fini,
	end_function *rtld_fini, void *stack_end) HIDDEN("__wrap___libc_start_main");

extern init_function *gp_init_array_start[] HIDDEN("__init_array_start");
extern init_function *gp_init_array_end[] HIDDEN("__init_array_end");
void gp_init(void) HIDDEN("_init");

static void call_constructors(int argc, char **argv, char **envp)
{
	gp_init();
	for (init_function **init = gp_init_array_start; init < gp_init_array_end; init++)
		(*init)(argc, argv, envp);
}

int gp_start_main(main_function *main, int argc, char **argv, init_function *init, end_function *fini,
	end_function *rtld_fini, void *stack_end)
{
	return gp_old_start_main(main, argc, argv, init ? init : call_constructors, fini, rtld_fini, stack_end);
}

/* On 64-bit machines the kernel's structure is that of the C library. */
int gp_fstatat(int directory, const char *path, struct stat *ret, int flags) HIDDEN("fstatat");
int gp_fstatat(int directory, const char *path, struct stat *ret, int flags)
{
	return (int)syscall(SYS_newfstatat, directory, path, ret, flags);
}

int gp_stat(const char *path, struct stat *ret) HIDDEN("stat");
int gp_stat(const char *path, struct stat *ret)
{
	return gp_fstatat(AT_FDCWD, path, ret, 0);
}

int gp_lstat(const char *path, struct stat *ret) HIDDEN("lstat");
int gp_lstat(const char *path, struct stat *ret)
{
	return gp_fstatat(AT_FDCWD, path, ret, AT_SYMLINK_NOFOLLOW);
}

int gp_fstat(int fd, struct stat *ret) HIDDEN("fstat");
int gp_fstat(int fd, struct stat *ret)
{
	return (int)syscall(SYS_fstat, fd, ret);
}

/* The names that _FILE_OFFSET_BITS=64 leads to. */
__typeof__(gp_fstatat) gp_fstatat64 HIDDEN("fstatat64") __attribute__((alias("fstatat")));
__typeof__(gp_stat) gp_stat64 HIDDEN("stat64") __attribute__((alias("stat")));
__typeof__(gp_lstat) gp_lstat64 HIDDEN("lstat64") __attribute__((alias("lstat")));
__typeof__(gp_fstat) gp_fstat64 HIDDEN("fstat64") __attribute__((alias("fstat")));

/* glibc's sigprocmask sets the mask of the calling thread. */
int gp_sigmask(int how, const sigset_t *set, sigset_t *ret_old) HIDDEN("pthread_sigmask");
int gp_sigmask(int how, const sigset_t *set, sigset_t *ret_old)
{
	return sigprocmask(how, set, ret_old) < 0 ? errno : 0;
}
