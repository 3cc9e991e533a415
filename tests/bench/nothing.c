/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A process without CUDA. With an argument it prints its numbers of threads and open files. */

#include <dirent.h>
#include <stdio.h>

static int count(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	if (!dir)
		return -1;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2; /* not counted: . and .. */
}

int main(int argc, char **argv)
{
	if (argc > 1)
		printf("nothing threads=%d files=%d\n", count("/proc/self/task"), count("/proc/self/fd"));
	return 0;
}
