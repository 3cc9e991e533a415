/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A program that is linked with musl, like those of Alpine Linux: guest_musl SCENARIO. Its output is the same with
 * and without the library in LD_PRELOAD.
 */

#define _GNU_SOURCE

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/gpupool.h"

extern char **environ;
static const char *folder; /* directory of the plug-in and the driver */

static void print_number(const char *what, long value)
{
	printf("%s: %ld\n", what, value);
}

static int hello(void)
{
	puts("hello");
	return 3;
}

/* Prints the loader's message, or "none". This also clears the message. */
static void print_error(const char *what)
{
	const char *error = dlerror();

	printf("%s: %s\n", what, error ? error : "none");
}

static void look_up(void *scope, const char *name)
{
	void *found = dlsym(scope, name);

	printf("%s: %s\n", name, found ? "found" : "not found");
	print_error(name);
}

static int lookups(void)
{
	static const char *const names[] = {"puts", "dlsym", "dlopen", "cuMemAlloc_v2", "cuGetProcAddress_v2",
		"cuLaunchKernel", "cudaMalloc", "cudaFree", "cuNowhere", "nowhere"};
	void *const scopes[] = {RTLD_DEFAULT, RTLD_NEXT, dlopen(NULL, RTLD_NOW)};

	print_error("dlopen of the program");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		for (size_t j = 0; j < sizeof(scopes) / sizeof(scopes[0]); j++)
			if (scopes[j] != RTLD_NEXT || strncmp(names[i], "dl", 2) != 0)
				look_up(scopes[j], names[i]);
	print_number("puts is puts", dlsym(RTLD_DEFAULT, "puts") == (void *)puts);
	return 0;
}

static void *open_in_folder(const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static int plugins(void)
{
	void *plugin = open_in_folder("libplugin_musl.so");
	int (*answer)(void) = plugin ? (int (*)(void))dlsym(plugin, "lib_musl_answer") : NULL;
	Dl_info info = {0};

	print_error("dlopen");
	print_number("answer", answer ? answer() : -1);
	print_number("address", answer && dladdr((void *)answer, &info) && !strcmp(info.dli_sname, "lib_musl_answer"));
	look_up(plugin, "lib_musl_nowhere");
	print_number("close", plugin ? dlclose(plugin) : -1);
	print_number("nowhere", dlopen("libnowhere_musl.so", RTLD_LAZY) != NULL);
	print_error("nowhere");
	return 0;
}

/* Calls the driver through a handle. A program that was linked to the driver reaches the same functions. */
static int driver(void)
{
	void *handle = open_in_folder("libcuda.so.1");
	int (*alloc)(unsigned long long *, size_t) = handle ? dlsym(handle, "cuMemAlloc_v2") : NULL;
	int (*release)(unsigned long long) = handle ? dlsym(handle, "cuMemFree_v2") : NULL;
	unsigned long long ptr = 0;

	print_number("handle", handle != NULL);
	if (!alloc || !release)
		return 1;
	print_number("alloc", alloc(&ptr, 512));
	print_number("pointer", (long)ptr);
	print_number("free", release(ptr));
	print_number("free of another", release(5));
	return 0;
}

static int n_prepared, n_parents, n_children;

static void prepare(void)
{
	n_prepared++;
}

static void in_parent(void)
{
	n_parents++;
}

static void in_child(void)
{
	n_children++;
}

static int forks(void)
{
	char self[4096], *words[] = {self, "hello", NULL};
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int status = 0;
	pid_t pid;

	print_number("atfork", pthread_atfork(prepare, in_parent, in_child));
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(n_prepared == 1 && n_children == 1 && !n_parents ? 5 : 6);
	print_number("child", waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : -1);
	print_number("parent", n_parents);
	if (length < 0)
		return 1;
	self[length] = '\0';
	fflush(stdout);
	print_number("spawn", posix_spawn(&pid, self, NULL, NULL, words, environ));
	print_number("spawned", waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : -1);
	print_number("shell", WEXITSTATUS(system("exit 7")));
	return 0;
}

static int files(void)
{
	struct stat st;
	DIR *dir = opendir("/");
	char byte = 0;
	int fds[2], n = 0;

	while (dir && readdir(dir))
		n++;
	print_number("entries", n > 2);
	print_number("closedir", dir ? closedir(dir) : -1);
	print_number("stat", stat("/", &st));
	print_number("directory", S_ISDIR(st.st_mode));
	print_number("lstat of nothing", lstat("/nowhere/at/all", &st));
	print_number("errno", errno);
	print_number("pipe", pipe(fds));
	print_number("copy", fcntl(fds[0], F_DUPFD_CLOEXEC, 100));
	print_number("flags", fcntl(100, F_GETFD));
	print_number("write", write(fds[1], "x", 1));
	print_number("poll", poll(&(struct pollfd){.fd = 100, .events = POLLIN}, 1, -1));
	print_number("read", read(100, &byte, 1));
	print_number("map", mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
	return byte != 'x';
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int n_turns, n_keys, n_ended;

static void end_key(void *value)
{
	pthread_mutex_lock(&lock);
	n_ended++;
	pthread_mutex_unlock(&lock);
}

static void make_key(void)
{
	n_keys++;
	pthread_key_create(&key, end_key);
}

static void *take_turns(void *nth)
{
	pthread_once(&once, make_key);
	pthread_setspecific(key, &n_turns);
	pthread_mutex_lock(&lock);
	while (n_turns != (int)(long)nth)
		pthread_cond_wait(&changed, &lock);
	n_turns++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return nth;
}

static void *wait_forever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static int threads(void)
{
	enum { N = 8 };
	pthread_t all[N];
	void *result = NULL;

	for (long i = 0; i < N; i++)
		if (pthread_create(&all[i], NULL, take_turns, (void *)i))
			return 1;
	for (int i = 0; i < N; i++)
		pthread_join(all[i], NULL);
	print_number("turns", n_turns);
	print_number("keys", n_keys);
	print_number("ended", n_ended);
	if (pthread_create(&all[0], NULL, wait_forever, NULL))
		return 1;
	print_number("cancel", pthread_cancel(all[0]));
	pthread_join(all[0], &result);
	print_number("cancelled", result == PTHREAD_CANCELED);
	return 0;
}

static int network(void)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *found = NULL;
	int fds[2];

	print_number("getaddrinfo", getaddrinfo("127.0.0.1", "80", &hints, &found));
	print_number("family", found ? found->ai_family : -1);
	freeaddrinfo(found);
	print_number("sockets", socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	print_number("send", send(fds[0], "word", 4, 0));
	return 0;
}

static volatile sig_atomic_t n_signals;

static void count_signal(int number)
{
	n_signals++;
}

static int signals(void)
{
	struct sigaction action = {.sa_handler = count_signal};

	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	print_number("signals", n_signals);
	fflush(stdout);
	abort();
}

/* The library is loaded, and answers that it is not active. */
static int api_calls(void)
{
	struct gpupool_status status;

	print_number("status", gpupool_get_status(0, &status));
	print_number("reclaim", gpupool_reclaim(GPUPOOL_ALL_DEVICES));
	print_number("limit", gpupool_set_limit(0, 1 << 20));
	print_number("region", gpupool_region_begin("mine"));
	return 0;
}

static const struct {
	const char *name;
	int (*run)(void);
} scenarios[] = {
	{"hello", hello},
	{"lookups", lookups},
	{"plugins", plugins},
	{"driver", driver},
	{"forks", forks},
	{"files", files},
	{"threads", threads},
	{"network", network},
	{"signals", signals},
	{"api-calls", api_calls},
};

int main(int argc, char **argv)
{
	static char path[4096];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (argc < 2 || length < 0)
		return 70;
	path[length] = '\0';
	*strrchr(path, '/') = '\0';
	folder = path;
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (!strcmp(scenarios[i].name, argv[1]))
			return scenarios[i].run();
	return 71;
}
