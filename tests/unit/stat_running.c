/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_running.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

void stat_start(struct stat_running *running, const char *const *words)
{
	int out[2];

	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	running->pid = fork();
	if (running->pid == 0) {
		dup2(out[1], STDOUT_FILENO);
		dup2(out[1], STDERR_FILENO);
		stat_become(stat_path, words);
	}
	close(out[1]);
	running->out = fdopen(out[0], "r");
	ck_assert_ptr_nonnull(running->out);
}

bool stat_next_line(struct stat_running *running)
{
	return fgets(running->line, sizeof(running->line), running->out) != NULL;
}

void stat_await(struct stat_running *running, const char *part)
{
	do
		ck_assert_msg(stat_next_line(running), "expected '%s' before the end of the program", part);
	while (!strstr(running->line, part));
}

int stat_finish(struct stat_running *running)
{
	int status;

	fclose(running->out);
	ck_assert_int_eq(waitpid(running->pid, &status, 0), running->pid);
	return status;
}
