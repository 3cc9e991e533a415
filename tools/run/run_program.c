/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Follows the steps of execvp() and the kernel, and checks the files: the command is looked up in PATH, a script leads
 * to its interpreter, and "env NAME" to NAME. The last file must be a program that is linked dynamically, with a loader
 * of the right kind.
 */

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "run_program.h"

/*
 * Limits of the kernel: how deep scripts may be interpreters of scripts, and how much of the first line it reads.
 */
#define SCRIPTS_MAX     5
#define FIRST_LINE_SIZE 256

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Sets errno if it returns false. */
static bool is_executable_file(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return false;
	errno = EACCES;
	return S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/*
 * Finds the file that execvp() would start. False if there is none; then path is a file that cannot be executed, or
 * empty.
 */
static bool find_command(const char *command, char path[static PATH_MAX])
{
	const char *directories = getenv("PATH");
	char candidate[PATH_MAX];

	path[0] = '\0';
	if (!*command)
		return false;
	/* These two exist in every directory of PATH; the message must not name one of those directories. */
	if (strchr(command, '/') || !strcmp(command, ".") || !strcmp(command, "..")) {
		snprintf(path, PATH_MAX, "%s", command);
		return is_executable_file(path);
	}
	if (!directories)
		directories = "/bin:/usr/bin";
	for (;;) {
		size_t length = strcspn(directories, ":");
		int n = snprintf(
			candidate, sizeof(candidate), "%.*s%s%s", (int)length, directories, length ? "/" : "", command);
		if (n < PATH_MAX && is_executable_file(candidate)) {
			strcpy(path, candidate);
			return true;
		}
		if (n < PATH_MAX && !*path && access(candidate, F_OK) == 0)
			strcpy(path, candidate);
		if (!directories[length])
			return false;
		directories += length + 1;
	}
}

static enum run_status refuse_missing(const char *command, const char *path)
{
	struct stat st;

	if (!*command) {
		run_error("name a program: gpupool-run [options] CMD [ARG...]; a variable used as CMD may be unset.",
			"the name of CMD is empty.");
		return RUN_NOT_FOUND;
	}
	if (!*path) {
		run_error("check the name, or give a path with a slash in it.", "%s was not found in PATH.", command);
		return RUN_NOT_FOUND;
	}
	if (stat(path, &st) < 0) {
		int error = errno;
		run_error("check the path.", "%s cannot be started: %s.", path, strerror(error));
		return error == EACCES ? RUN_NOT_STARTABLE : RUN_NOT_FOUND;
	}
	if (S_ISDIR(st.st_mode))
		run_error("name a program in it.", "%s is a directory.", path);
	else
		run_error(
			"make it executable (chmod +x), or name its interpreter first.", "%s is not executable.", path);
	return RUN_NOT_STARTABLE;
}

/* Returns why the loader would ignore LD_PRELOAD for a program that gets more rights than its caller, or NULL. */
static const char *find_privilege(const char *path)
{
	struct statvfs fs;
	struct stat st;

	if (stat(path, &st) < 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		return NULL;
	if (statvfs(path, &fs) == 0 && (fs.f_flag & ST_NOSUID))
		return NULL;
	if ((st.st_mode & S_ISUID) && st.st_uid != getuid())
		return "setuid";
	if ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getgid())
		return "setgid";
	if (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0)
		return "a program with file capabilities";
	return NULL;
}

static enum run_status check_privilege(const char *path)
{
	const char *privilege = find_privilege(path);

	if (!privilege)
		return RUN_OK;
	run_error("if it starts CMD, put gpupool-run right before CMD; otherwise use a copy without these rights.",
		"%s is %s: the loader ignores LD_PRELOAD for it.", path, privilege);
	return RUN_FAILED;
}

static enum run_status check_elf(const char *path, const struct run_elf *elf, const struct run_elf *library)
{
	char library_text[32], program_text[32];

	if (!run_elf_is_compatible(elf, library)) {
		run_error("use a build of gpupool for that kind of program (--library=PATH).",
			"%s is a %s program; libgpupool.so is %s.", path, run_elf_describe(elf, program_text),
			run_elf_describe(library, library_text));
		return RUN_FAILED;
	}
	if (elf->type != ET_EXEC && elf->type != ET_DYN) {
		run_error("link it into a program.", "%s is an ELF file, but not a program.", path);
		return RUN_NOT_STARTABLE;
	}
	if (!elf->has_loader) {
		run_error("link it dynamically.", "%s is statically linked: LD_PRELOAD cannot reach it.", path);
		return RUN_FAILED;
	}
	if (!strncmp(base_name(elf->loader), "ld-musl", strlen("ld-musl"))) {
		run_error("build it for glibc, as CUDA itself is.",
			"%s uses the C library musl (%s); libgpupool.so needs glibc.", path, elf->loader);
		return RUN_FAILED;
	}
	if (access(elf->loader, F_OK) < 0) {
		run_error("install the C library that it was built for.", "%s needs the loader %s: %s.", path,
			elf->loader, strerror(errno));
		return RUN_NOT_FOUND;
	}
	return RUN_OK;
}

/* Splits "#! interpreter argument" as the kernel does. Either part may be empty. */
static void split_first_line(char *line, char **ret_interpreter, char **ret_argument)
{
	char *at = line + strlen("#!");
	size_t length;

	at[strcspn(at, "\n")] = '\0';
	at += strspn(at, " \t");
	*ret_interpreter = at;
	at += strcspn(at, " \t");
	if (*at)
		*at++ = '\0';
	at += strspn(at, " \t");
	*ret_argument = at;
	length = strlen(at);
	while (length && strchr(" \t", at[length - 1]))
		at[--length] = '\0';
}

/*
 * Returns the program in "env [-S] [-i] [NAME=VALUE...] PROGRAM ...", or NULL if env has other options.
 */
static char *find_env_program(char *argument)
{
	for (char *word = strtok(argument, " \t"); word; word = strtok(NULL, " \t"))
		if (*word != '-' && !strchr(word, '='))
			return word;
		else if (*word == '-' && strcmp(word, "-S") && strcmp(word, "-i"))
			return NULL;
	return NULL;
}

/* Looks for gcc's and for clang's library of the address sanitizer. */
static bool needs_asan(int fd, const struct run_elf *elf)
{
	return run_elf_needs(fd, elf, "libasan.so") || run_elf_needs(fd, elf, "libclang_rt.asan");
}

static enum run_status check_file(const char *path, const struct run_elf *library, int depth, bool *has_asan);

static enum run_status check_script(
	const char *path, char *first_line, const struct run_elf *library, int depth, bool *has_asan)
{
	char *interpreter, *argument, *program;
	char found[PATH_MAX];
	enum run_status status;

	split_first_line(first_line, &interpreter, &argument);
	if (!*interpreter)
		return RUN_OK; /* execvp() gives it to the shell */
	if (depth >= SCRIPTS_MAX) {
		run_error("name a program as its interpreter.",
			"%s is a script whose interpreter is a script, and so on, too deep for the kernel.", path);
		return RUN_NOT_STARTABLE;
	}
	if (!is_executable_file(interpreter)) {
		run_error("install it, or change the first line of the script.",
			"%s is a script, and its interpreter '%s' cannot be started: %s.", path, interpreter,
			strerror(errno));
		return errno == ENOENT ? RUN_NOT_FOUND : RUN_NOT_STARTABLE;
	}
	status = check_file(interpreter, library, depth + 1, has_asan);
	if (status != RUN_OK || strcmp(base_name(interpreter), "env"))
		return status;
	program = find_env_program(argument);
	/* If the program is not found, env will report it. */
	return program && find_command(program, found) ? check_file(found, library, depth + 1, has_asan) : RUN_OK;
}

static enum run_status check_open_file(
	int fd, const char *path, const struct run_elf *library, int depth, bool *has_asan)
{
	char first_line[FIRST_LINE_SIZE];
	struct run_elf elf;
	int r = run_elf_read(fd, &elf);

	if (r == 0) {
		enum run_status status = check_privilege(path);

		*has_asan |= needs_asan(fd, &elf);
		return status == RUN_OK ? check_elf(path, &elf, library) : status;
	}
	if (r == -ENOEXEC) {
		ssize_t n = pread(fd, first_line, sizeof(first_line) - 1, 0);
		first_line[n > 0 ? n : 0] = '\0';
		/* Any other file is run by the shell, as execvp() does, or by a handler registered with the kernel. */
		return strncmp(first_line, "#!", 2) ? RUN_OK : check_script(path, first_line, library, depth, has_asan);
	}
	run_error("build or copy it again.", "%s cannot be read as a program: %s.", path,
		r == -EINVAL ? "its headers are damaged" : strerror(-r));
	return RUN_NOT_STARTABLE;
}

static enum run_status check_file(const char *path, const struct run_elf *library, int depth, bool *has_asan)
{
	enum run_status status;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	/* A program may be executable but not readable. Then only its mode can be checked. */
	if (fd < 0)
		return check_privilege(path);
	status = check_open_file(fd, path, library, depth, has_asan);
	close(fd);
	return status;
}

enum run_status run_program_check(const char *command, const struct run_elf *library, bool *ret_has_asan)
{
	char path[PATH_MAX];

	*ret_has_asan = false;
	if (!find_command(command, path))
		return refuse_missing(command, path);
	return check_file(path, library, 0, ret_has_asan);
}

/* Follows the first line of a script one step. False if the file is not a script. */
static bool follow_script(const char *path, char next[static PATH_MAX])
{
	char line[FIRST_LINE_SIZE], *interpreter, *argument, *program;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);

	if (fd >= 0)
		close(fd);
	line[n > 0 ? n : 0] = '\0';
	if (strncmp(line, "#!", 2) != 0)
		return false;
	split_first_line(line, &interpreter, &argument);
	if (!*interpreter)
		return false;
	snprintf(next, PATH_MAX, "%s", interpreter);
	if (strcmp(base_name(interpreter), "env") != 0)
		return true;
	program = find_env_program(argument);
	return !program || find_command(program, next);
}

bool run_program_find(const char *command, char path[static PATH_MAX])
{
	char next[PATH_MAX];

	if (!find_command(command, path))
		return false;
	for (int i = 0; i < SCRIPTS_MAX && follow_script(path, next); i++)
		strcpy(path, next);
	return access(path, R_OK) == 0;
}

void run_program_warn(const char *command)
{
	static const char *const names[] = {"docker", "podman", "nerdctl", "apptainer", "singularity", "kubectl",
		"srun", "mpirun", "mpiexec", "ssh", "sudo", "su"};
	const char *name = base_name(command);
	char next[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (strcmp(name, names[i]))
			continue;
		snprintf(next, sizeof(next), "put gpupool-run right before CMD:  %s ... gpupool-run CMD", name);
		run_warn(next, "%s may not pass LD_PRELOAD on to CMD, which would then run without gpupool.", name);
	}
}
