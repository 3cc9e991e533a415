/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "job.h"

enum { VALUE_SIZE = 128 };

/*
 * The values of the letters in file names. These texts are used until gp_file_read_names, and for values that are not
 * set.
 */
static struct {
	char letter;
	char value[VALUE_SIZE];
} names[] = {
	{'h', "no-host"},
	{'r', "no-rank"},
	{'j', "no-job"},
	{'u', "no-user"},
};

static const char *find_variable(const void *environment, const char *name)
{
	size_t length = strlen(name);

	for (char *const *entry = environment; *entry; entry++)
		if (!strncmp(*entry, name, length) && (*entry)[length] == '=')
			return *entry + length + 1;
	return NULL;
}

static bool is_plain(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
	       c == '-';
}

static void set_name(char letter, const char *value)
{
	bool is_directory = value && (!strcmp(value, ".") || !strcmp(value, ".."));

	for (size_t i = 0; value && *value && i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].letter != letter)
			continue;
		snprintf(names[i].value, VALUE_SIZE, "%s", value);
		for (char *c = names[i].value; *c; c++)
			if (!is_plain(*c) || is_directory)
				*c = '_';
	}
}

/* Does not use getpwuid(), which may query a server and loads libraries into the program. */
static void set_user(char *const *environment)
{
	const char *user = find_variable(environment, "USER");
	char number[16];

	if (!user || !*user)
		user = find_variable(environment, "LOGNAME");
	if (!user || !*user) {
		snprintf(number, sizeof(number), "%u", (unsigned)getuid());
		user = number;
	}
	set_name('u', user);
}

void gp_file_read_names(char *const *environment)
{
	char host[VALUE_SIZE] = "";

	if (gethostname(host, sizeof(host) - 1) == 0)
		set_name('h', host);
	set_name('r', gp_job_value("rank", find_variable, environment));
	set_name('j', gp_job_value("job", find_variable, environment));
	set_user(environment);
}

/* Returns the value of a letter after %, or "%" for any other character, such as a second percent sign. */
static const char *value_of(char letter, char number[static 16])
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].letter == letter)
			return names[i].value;
	snprintf(number, 16, "%d", (int)getpid());
	return letter == 'p' ? number : "%";
}

bool gp_file_expand(char *path, size_t size, const char *path_template)
{
	size_t used = 0;

	for (const char *from = path_template; *from; from++) {
		char text[16] = {*from};
		const char *value = text;

		if (from[0] == '%' && from[1])
			value = value_of(*++from, text);
		used += (size_t)snprintf(path + used, size - used, "%s", value);
		if (used >= size)
			return false;
	}
	return used > 0;
}

static int write_all(int fd, const char *data, size_t length)
{
	while (length) {
		ssize_t n = write(fd, data, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		length -= (size_t)n;
	}
	return 0;
}

/*
 * A write to a pipe without a reader raises SIGPIPE in this thread, and a write to a file at its size limit SIGXFSZ.
 * Both are blocked during the write. Afterwards they are consumed, unless they were pending before.
 */
int gp_file_write(int fd, const void *data, size_t length)
{
	static const int raised[] = {SIGPIPE, SIGXFSZ};
	static const struct timespec no_wait;
	sigset_t blocked, old, pending, raised_here;
	int r;

	sigemptyset(&blocked);
	sigemptyset(&raised_here);
	for (size_t i = 0; i < sizeof(raised) / sizeof(raised[0]); i++)
		sigaddset(&blocked, raised[i]);
	sigprocmask(SIG_BLOCK, &blocked, &old);
	sigpending(&pending);
	for (size_t i = 0; i < sizeof(raised) / sizeof(raised[0]); i++)
		if (!sigismember(&pending, raised[i]))
			sigaddset(&raised_here, raised[i]);
	r = write_all(fd, data, length);
	while (sigtimedwait(&raised_here, NULL, &no_wait) >= 0 || errno == EINTR)
		;
	sigprocmask(SIG_SETMASK, &old, NULL);
	return r;
}

void gp_file_read_command(char *text, size_t size)
{
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	for (ssize_t i = 0; i + 1 < n; i++)
		if (text[i] == '\0')
			text[i] = ' ';
}
