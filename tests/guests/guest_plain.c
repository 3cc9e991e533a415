/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A program without CUDA that describes the process in which it runs. */

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <malloc.h>
#include <signal.h>

#include "tests/preload/app.h"

enum { LINE_MAX_BYTES = 4096, MAPPED_MAX = 64 };

static void print_file(const char *name, const char *const *lines_with)
{
	FILE *file = fopen(name, "r");
	char line[LINE_MAX_BYTES];

	while (file && fgets(line, sizeof(line), file))
		for (const char *const *with = lines_with; *with; with++)
			if (strncmp(line, *with, strlen(*with)) == 0)
				fputs(line, stdout);
	if (file)
		fclose(file);
}

static unsigned count(const char *directory)
{
	DIR *dir = opendir(directory);
	unsigned n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static void print_signals(void)
{
	for (int number = 1; number < NSIG; number++) {
		struct sigaction action = {0};

		if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
			printf("signal %d has a handler\n", number);
	}
}

/*
 * Inserts a path in alphabetical order, once, since files are mapped at different addresses in each run.
 * Returns the new number of paths.
 */
static size_t insert(char paths[][LINE_MAX_BYTES], size_t n, const char *path)
{
	size_t at = 0;

	while (at < n && strcmp(paths[at], path) < 0)
		at++;
	if (at < n && strcmp(paths[at], path) == 0)
		return n;
	memmove(paths[at + 1], paths[at], (n - at) * sizeof(*paths));
	strcpy(paths[at], path);
	return n + 1;
}

/* Prints every mapped file except those that a preload and its dependencies must bring. */
static void print_mapped(void)
{
	static const char *const own[] = {"libgpupool.so", "libdl.so.2", "libpthread.so.0"};
	static char paths[MAPPED_MAX][LINE_MAX_BYTES];
	char line[LINE_MAX_BYTES];
	FILE *maps = fopen("/proc/self/maps", "r");
	size_t n = 0;

	while (maps && n < MAPPED_MAX && fgets(line, sizeof(line), maps)) {
		const char *path = strchr(line, '/');
		bool is_own = false;

		for (size_t i = 0; path && i < LENGTH(own); i++)
			is_own |= strstr(path, own[i]) != NULL;
		if (path && !is_own)
			n = insert(paths, n, path);
	}
	for (size_t i = 0; i < n; i++)
		fputs(paths[i], stdout);
	if (maps)
		fclose(maps);
}

static void describe(void)
{
	static const char *const status[] = {"Umask:", "Threads:", "Uid:", "Gid:", "SigBlk:", "SigIgn:", "SigCgt:",
		"SigPnd:", "NoNewPrivs:", "Seccomp:", NULL};
	struct mallinfo2 heap = mallinfo2();

	printf("errno %d, locale %s\n", errno, setlocale(LC_ALL, NULL));
	printf("heap %zu in use, %zu mapped\n", heap.uordblks, heap.hblkhd);
	printf("%u threads, %u descriptors\n", count("/proc/self/task") - 2, count("/proc/self/fd") - 2);
	print_file("/proc/self/status", status);
	print_signals();
	print_mapped();
	printf("a driver is loaded: %d\n", dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != NULL);
}

const struct app_scenario app_scenarios[] = {
	{"describe", describe},
	{0},
};
