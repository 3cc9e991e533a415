/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_run.h"

const char *run_path;
char run_directory[] = "/tmp/gpupool-run-XXXXXX";
char run_out[RUN_OUTPUT_SIZE];
char run_err[RUN_OUTPUT_SIZE];

void run_write_file(const char *name, const void *bytes, size_t size, mode_t mode)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

void run_write_text(const char *name, const char *text)
{
	run_write_file(name, text, strlen(text), 0755);
}

void run_read_text(const char *name, char text[static RUN_OUTPUT_SIZE])
{
	int fd = open(name, O_RDONLY);
	ssize_t n;

	ck_assert_msg(fd >= 0, "%s", name);
	n = read(fd, text, RUN_OUTPUT_SIZE - 1);
	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	close(fd);
}

/* Copies libm, which exists wherever these tests run. */
void run_make_library(const char *name)
{
	void *handle = dlopen("libm.so.6", RTLD_NOW);
	struct link_map *map;
	char command[2 * PATH_MAX];

	ck_assert_ptr_nonnull(handle);
	ck_assert_int_eq(dlinfo(handle, RTLD_DI_LINKMAP, &map), 0);
	snprintf(command, sizeof(command), "cp '%s' '%s'", map->l_name, name);
	ck_assert_int_eq(system(command), 0);
}

static void setup(void)
{
	ck_assert_int_eq(clearenv(), 0);
	/* A launcher with the address sanitizer would not start after another preloaded library. */
	setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
	setenv("PATH", "/usr/bin:/bin", 1);
	strcpy(run_directory + strlen(run_directory) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(run_directory));
	ck_assert_int_eq(chmod(run_directory, 0755), 0);
	ck_assert_int_eq(chdir(run_directory), 0);
	run_make_library("libgpupool.so");
}

static void teardown(void)
{
	char command[64];

	unsetenv("LD_PRELOAD");
	snprintf(command, sizeof(command), "rm -r %s", run_directory);
	ck_assert_int_eq(system(command), 0);
}

void run_add_fixture(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
}

int run_execute(const char *const *words)
{
	pid_t child = fork();
	int status;

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		int out_fd = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600);
		int err_fd = open("err", O_WRONLY | O_CREAT | O_TRUNC, 0600);
		dup2(out_fd, STDOUT_FILENO);
		dup2(err_fd, STDERR_FILENO);
		close(out_fd);
		close(err_fd);
		execv(words[0], (char *const *)words);
		_exit(99);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status), "expected a normal exit of %s", words[1]);
	run_read_text("out", run_out);
	run_read_text("err", run_err);
	return WEXITSTATUS(status);
}

int run_launcher(const char *const *words)
{
	const char *all[RUN_WORDS + 3] = {run_path, "--library=libgpupool.so"};

	for (size_t i = 0; i < RUN_WORDS && words[i]; i++)
		all[i + 2] = words[i];
	return run_execute(all);
}

void run_check_in(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part), "expected '%s' in: %s", part, text);
}
