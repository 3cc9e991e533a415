/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Usage: app_fleet WORD...
 *
 * A CUDA program for tests of many processes, which knows nothing of gpupool. It does what the words say, in their
 * order:
 *
 *	begin		lets the runtime begin, without an allocation
 *	device=N	uses this device from now on
 *	hold=MIB	allocates a block and keeps it
 *	cache=MIB	allocates a block and frees it
 *	pinned=MIB	allocates a block of host memory and keeps it
 *	fail=N		makes N requests that the device is too small for
 *	hits=N		allocates and frees a small block N times
 *	info		prints the size of the device as cudaMemGetInfo reports it
 *	say=TEXT	prints the text, once all before it has been done
 *	await		reads a line from the standard input
 *	memory		prints "free=BYTES total=BYTES", as the runtime reports them
 *	try=MIB		prints "got" and keeps a block, or "refused"
 *	child=S		forks a child that does nothing for that many seconds
 *	fork		goes on in a child, whose end the parent awaits
 *	exec		goes on as a new program in the same process
 *	sleep=S		waits for that many seconds
 *	kill		kills itself (SIGKILL)
 *	_exit		ends without exit handlers
 */

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int cudaGetDeviceCount(int *count);
int cudaSetDevice(int device);
int cudaMalloc(void **ptr, size_t bytes);
int cudaFree(void *ptr);
int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
int cudaMallocHost(void **ptr, size_t bytes);

#define MIB        ((size_t)1 << 20)
#define MUCH_BYTES ((size_t)1 << 46)

static void must(int result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "app_fleet: %s: error %d\n", what, result);
	exit(3);
}

static void allocate(size_t bytes, bool is_kept)
{
	void *ptr;

	must(cudaMalloc(&ptr, bytes), "cudaMalloc");
	if (!is_kept)
		must(cudaFree(ptr), "cudaFree");
}

static void fail(long n)
{
	void *ptr;

	while (n-- > 0)
		if (!cudaMalloc(&ptr, MUCH_BYTES))
			exit(4);
}

static void go_on_in_child(void)
{
	pid_t child = fork();
	int status = 0;

	if (child == 0)
		return;
	waitpid(child, &status, 0);
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : 5);
}

static void print_memory(void)
{
	size_t free_bytes, total_bytes;

	must(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
	printf("free=%zu total=%zu\n", free_bytes, total_bytes);
	fflush(stdout);
}

static void print_total(void)
{
	size_t free_bytes, total_bytes;

	must(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
	printf("%zu MiB in all\n", total_bytes / MIB);
	fflush(stdout);
}

static void try(size_t bytes)
{
	void *ptr;

	puts(cudaMalloc(&ptr, bytes) ? "refused" : "got");
	fflush(stdout);
}

static void wait_for(const char *seconds)
{
	double time = strtod(seconds, NULL);
	struct timespec rest = {.tv_sec = (time_t)time, .tv_nsec = (long)((time - (double)(time_t)time) * 1e9)};

	nanosleep(&rest, NULL);
}

static void start_idle_child(const char *seconds)
{
	if (fork() != 0)
		return;
	close(0);
	close(1);
	close(2);
	wait_for(seconds);
	_exit(0);
}

static void run(const char *word, char **words)
{
	const char *value = strchr(word, '=') ? strchr(word, '=') + 1 : "";
	long number = strtol(value, NULL, 10);
	char line[64];
	void *ptr;
	int count;

	if (!strcmp(word, "begin")) {
		must(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
	} else if (!strncmp(word, "device=", 7)) {
		must(cudaSetDevice((int)number), "cudaSetDevice");
	} else if (!strncmp(word, "hold=", 5) || !strncmp(word, "cache=", 6)) {
		allocate((size_t)number * MIB, *word == 'h');
	} else if (!strncmp(word, "pinned=", 7)) {
		must(cudaMallocHost(&ptr, (size_t)number * MIB), "cudaMallocHost");
	} else if (!strncmp(word, "fail=", 5)) {
		fail(number);
	} else if (!strncmp(word, "hits=", 5)) {
		while (number-- > 0)
			allocate(4096, false);
	} else if (!strcmp(word, "info")) {
		print_total();
	} else if (!strncmp(word, "say=", 4)) {
		puts(value);
		fflush(stdout);
	} else if (!strcmp(word, "await")) {
		if (!fgets(line, sizeof(line), stdin))
			exit(0);
	} else if (!strcmp(word, "memory")) {
		print_memory();
	} else if (!strncmp(word, "try=", 4)) {
		try((size_t)number * MIB);
	} else if (!strncmp(word, "child=", 6)) {
		start_idle_child(value);
	} else if (!strcmp(word, "fork")) {
		go_on_in_child();
	} else if (!strcmp(word, "exec")) {
		words[-1] = (char *)(uintptr_t) "app_fleet";
		execv("/proc/self/exe", words - 1);
		exit(6);
	} else if (!strncmp(word, "sleep=", 6)) {
		wait_for(value);
	} else if (!strcmp(word, "kill")) {
		kill(getpid(), SIGKILL);
	} else if (!strcmp(word, "_exit")) {
		_exit(0);
	} else {
		fprintf(stderr, "app_fleet: unknown word '%s'\n", word);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		run(argv[i], argv + i + 1);
	return 0;
}
