/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "guest.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 32, TOUCHED = 4096, FIRST_DESCRIPTORS = 64, PASSING_MS = 500, LISTENING_MS = 20000 };

void guest_join(void)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
}

static size_t use_once(unsigned i)
{
	CUdeviceptr ptr = app_alloc(i % 2 ? MIB : 64 * KIB);
	size_t wrong;
	void *host;

	APP_MUST(cuMemHostAlloc(&host, 64 * KIB, 0));
	memset(host, (int)i, 64 * KIB);
	app_fill(NULL, ptr, TOUCHED, i);
	wrong = app_count_wrong(NULL, ptr, TOUCHED, i);
	APP_MUST(cuMemFreeHost(host));
	APP_MUST(cuMemFree_v2(ptr));
	return wrong;
}

size_t guest_count_wrong(void)
{
	size_t wrong = 0;

	for (unsigned i = 0; i < ROUNDS; i++)
		wrong += use_once(i);
	return wrong;
}

void guest_use(const char *label)
{
	printf("%s: wrong words: %zu\n", label, guest_count_wrong());
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/*
 * Recognises the library's socket because it listens. A preloaded library may have opened it before the program began.
 */
static bool is_listening(int fd)
{
	socklen_t size = sizeof(int);
	int value = 0;

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &size) == 0 && value;
}

/* The descriptor was open when the program began, and the program has not closed it since. */
static bool was_open[FIRST_DESCRIPTORS];

static __attribute__((constructor)) void note_descriptors(void)
{
	for (int fd = 0; fd < FIRST_DESCRIPTORS; fd++)
		was_open[fd] = is_open(fd) && !is_listening(fd);
}

void guest_forget_descriptors(int first)
{
	for (int fd = first; fd < FIRST_DESCRIPTORS; fd++)
		was_open[fd] = false;
}

/*
 * The server's socket has a low number for a moment when it is new, and when the server creates another. A socket that
 * listens is the server's, so it is awaited until it has moved, however slow the machine is. Other descriptors of the
 * library, such as that of a file which it reads, are open for less time.
 */
static bool stays_open(int fd)
{
	for (unsigned n = 0; !was_open[fd] && is_open(fd) && n < (is_listening(fd) ? LISTENING_MS : PASSING_MS); n++)
		usleep(1000);
	return is_open(fd);
}

void guest_list_descriptors(const char *when)
{
	printf("%s:", when);
	for (int fd = 0; fd < FIRST_DESCRIPTORS; fd++)
		if (stays_open(fd))
			printf(" %d", fd);
	printf("\n");
}

unsigned guest_count_entries(const char *directory)
{
	DIR *dir = opendir(directory);
	const struct dirent *entry;
	unsigned n = 0;

	if (!dir)
		return 0;
	while ((entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

void guest_wait(const char *label, int child)
{
	int status;

	if (waitpid(child, &status, 0) != child)
		exit(72);
	app_result(label, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}
