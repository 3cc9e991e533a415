/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * startup LIBRARY ROUNDS PROGRAM: starts PROGRAM without and with LIBRARY preloaded, in turn, and prints wall time and
 * processor time of each from start to end, in microseconds.
 */

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

struct cost {
	double wall_us, cpu_us;
};

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double us_of(struct timeval time)
{
	return (double)time.tv_sec * 1e6 + (double)time.tv_usec;
}

static int start(char *program, char **environment, struct cost *ret_cost)
{
	char *words[] = {program, NULL};
	double begin = now_us();
	struct rusage usage;
	pid_t pid;
	int status;

	if (posix_spawn(&pid, program, NULL, NULL, words, environment) || wait4(pid, &status, 0, &usage) != pid)
		return -EIO;
	*ret_cost = (struct cost){now_us() - begin, us_of(usage.ru_utime) + us_of(usage.ru_stime)};
	return status ? -EIO : 0;
}

int main(int argc, char **argv)
{
	char preload[4096], *without[] = {NULL}, *with[] = {preload, NULL};

	if (argc != 4 || (size_t)snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", argv[1]) >= sizeof(preload))
		return EXIT_FAILURE;
	for (int i = 0; i < atoi(argv[2]); i++) {
		struct cost raw, preloaded;

		if (start(argv[3], without, &raw) || start(argv[3], with, &preloaded))
			return EXIT_FAILURE;
		printf("start raw_us=%.1f preload_us=%.1f raw_cpu_us=%.1f preload_cpu_us=%.1f\n", raw.wall_us,
			preloaded.wall_us, raw.cpu_us, preloaded.cpu_us);
	}
	return EXIT_SUCCESS;
}
