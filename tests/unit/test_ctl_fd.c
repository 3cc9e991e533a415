/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Descriptors of the library whose numbers the program uses for files of its own at any moment. */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/ctl/ctl_fd.h"
#include "tests/suite.h"

static int program_fd;  /* a file of the program */
static int before_copy; /* the number to which the program copies it before the library's call, or NEVER */
static bool takes_new;  /* the program copies it to the number that the call returns */
static bool closes_old; /* the program closes the number that the call copies */
enum { NEVER = -1 };

/* The library's call, beside which the program's thread runs. */
int fcntl(int fd, int command, ...)
{
	va_list args;
	int argument, r;

	if (command == F_GETFD)
		return (int)syscall(SYS_fcntl, fd, command);
	ck_assert_int_eq(command, F_DUPFD_CLOEXEC);
	va_start(args, command);
	argument = va_arg(args, int);
	va_end(args);
	if (before_copy != NEVER)
		ck_assert_int_eq(dup2(program_fd, before_copy), before_copy);
	r = (int)syscall(SYS_fcntl, fd, command, argument);
	if (takes_new)
		ck_assert_int_eq(dup2(program_fd, r), r);
	if (closes_old)
		close(fd);
	return r;
}

static bool is_open(int fd)
{
	struct stat st;

	return !fstat(fd, &st);
}

static bool is_of_program(int fd)
{
	struct stat program, found;

	return !fstat(program_fd, &program) && !fstat(fd, &found) && program.st_ino == found.st_ino;
}

static struct gp_ctl_fd open_own(void)
{
	struct gp_ctl_fd own;

	before_copy = NEVER;
	takes_new = closes_old = false;
	program_fd = open("/", O_RDONLY | O_DIRECTORY);
	ck_assert_int_ge(program_fd, 0);
	ck_assert_int_eq(gp_ctl_fd_identify(open("/proc/self", O_RDONLY | O_DIRECTORY), "", &own), 0);
	return own;
}

START_TEST(a_descriptor_is_raised_and_its_old_number_is_free)
{
	struct gp_ctl_fd own = open_own();
	int old = own.fd;

	gp_ctl_fd_raise(&own);
	ck_assert_int_ge(own.fd, 512);
	ck_assert(gp_ctl_fd_is_ours(&own) && !is_open(old));
	gp_ctl_fd_close(&own);
}
END_TEST

START_TEST(a_file_that_the_program_puts_at_the_new_number_stays_open)
{
	struct gp_ctl_fd own = open_own();

	takes_new = true;
	closes_old = _i;
	gp_ctl_fd_raise(&own);
	ck_assert(is_of_program(512));
	ck_assert_int_eq(gp_ctl_fd_is_ours(&own), !closes_old);
}
END_TEST

START_TEST(a_file_that_the_program_puts_at_the_new_number_is_not_adopted)
{
	struct gp_ctl_fd own = open_own();
	int fd = own.fd;

	takes_new = true;
	closes_old = _i;
	ck_assert_int_eq(gp_ctl_fd_adopt(&own, fd), closes_old ? -EBADF : 0);
	ck_assert(is_of_program(512));
	ck_assert_int_eq(own.fd, closes_old ? -1 : fd);
	ck_assert_int_eq(gp_ctl_fd_is_ours(&own), !closes_old);
}
END_TEST

START_TEST(no_copy_of_a_file_that_the_program_puts_at_the_old_number_stays_open)
{
	struct gp_ctl_fd own = open_own();

	before_copy = own.fd;
	gp_ctl_fd_raise(&own);
	ck_assert(is_of_program(own.fd) && !gp_ctl_fd_is_ours(&own));
	ck_assert(!is_open(512));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ctl_fd");
	TCase *tc = tcase_create("ctl_fd");

	tcase_add_test(tc, a_descriptor_is_raised_and_its_old_number_is_free);
	tcase_add_loop_test(tc, a_file_that_the_program_puts_at_the_new_number_stays_open, 0, 2);
	tcase_add_loop_test(tc, a_file_that_the_program_puts_at_the_new_number_is_not_adopted, 0, 2);
	tcase_add_test(tc, no_copy_of_a_file_that_the_program_puts_at_the_old_number_stays_open);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
