/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ctl_abstract.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define PREFIX "gpupool-"

enum {
	LINE_MAX_BYTES = 512, /* of /proc/net/unix: 7 columns and a name of at most 108 bytes */
	RANDOM_DIGITS = 8,
};

static void format(char name[static GP_CTL_NAME_MAX], const struct gp_ctl_abstract *parts, uint32_t random)
{
	snprintf(name, GP_CTL_NAME_MAX, PREFIX "%u/%d.%" PRIu64 ".%0*" PRIx32, (unsigned)parts->uid, (int)parts->pid,
		parts->start_ticks, RANDOM_DIGITS, random);
}

int gp_ctl_abstract_draw(char name[static GP_CTL_NAME_MAX], uid_t uid)
{
	struct gp_ctl_abstract parts = {.uid = uid, .pid = getpid()};
	uint32_t random;
	char state;
	int error = gp_ctl_process_stat(0, &parts.start_ticks, &state);

	if (error)
		return error;
	while (getrandom(&random, sizeof(random), 0) != sizeof(random))
		if (errno != EINTR)
			return -errno;
	format(name, &parts, random);
	return 0;
}

/* Reads hexadecimal digits as format() writes them. Returns false for other text. */
static bool parse_random(const char *text, uint32_t *ret)
{
	static const char digits[] = "0123456789abcdef";

	*ret = 0;
	for (int i = 0; i < RANDOM_DIGITS; i++) {
		const char *digit = text[i] ? strchr(digits, text[i]) : NULL;

		if (!digit)
			return false;
		*ret = *ret << 4 | (uint32_t)(digit - digits);
	}
	return !text[RANDOM_DIGITS];
}

bool gp_ctl_abstract_parse(const char *name, struct gp_ctl_abstract *ret)
{
	uint64_t uid, pid;
	uint32_t random;
	const char *at;

	if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
		return false;
	at = gp_ctl_parse_digits(name + strlen(PREFIX), &uid);
	if (!at || *at != '/' || uid >= UINT32_MAX)
		return false;
	at = gp_ctl_parse_digits(at + 1, &pid);
	if (!at || *at != '.' || !pid || pid > INT32_MAX)
		return false;
	at = gp_ctl_parse_digits(at + 1, &ret->start_ticks);
	if (!at || *at != '.' || !parse_random(at + 1, &random))
		return false;
	ret->uid = (uid_t)uid;
	ret->pid = (pid_t)pid;
	format(ret->name, ret, random);
	return strcmp(ret->name, name) == 0;
}

/*
 * True for a listening socket (SO_ACCEPTCON). An accepted connection has the name of its listener, but not that flag.
 */
static bool is_listening(const char *flags)
{
	return strcmp(flags, "00010000") == 0;
}

/*
 * Reads a line: "Num RefCount Protocol Flags Type St Inode Path". In Path an '@' stands for the NUL of an abstract
 * name.
 */
static bool parse_line(char *line, struct gp_ctl_abstract *ret)
{
	enum { FLAGS = 3, PATH = 7 };
	char *save = NULL, *column = strtok_r(line, " ", &save);
	bool is_wanted = true;

	for (int i = 0; column && i < PATH; i++) {
		is_wanted &= i != FLAGS || is_listening(column);
		column = strtok_r(NULL, i + 1 == PATH ? "\n" : " ", &save);
	}
	return is_wanted && column && column[0] == '@' && gp_ctl_abstract_parse(column + 1, ret);
}

/*
 * Handles the complete lines in a buffer, and keeps the text after the last line end. Returns false once fn has
 * returned false.
 */
static bool take_lines(
	char *buffer, size_t *length, bool (*fn)(void *arg, const struct gp_ctl_abstract *found), void *arg)
{
	char *line = buffer, *end;
	bool goes_on = true;

	while (goes_on && (end = memchr(line, '\n', *length - (size_t)(line - buffer)))) {
		struct gp_ctl_abstract found;

		*end = '\0';
		if (parse_line(line, &found))
			goes_on = fn(arg, &found);
		line = end + 1;
	}
	*length -= (size_t)(line - buffer);
	memmove(buffer, line, *length);
	return goes_on;
}

void gp_ctl_abstract_each(bool (*fn)(void *arg, const struct gp_ctl_abstract *found), void *arg)
{
	/* Not /proc/self, which names the main thread: that may have ended. */
	int fd = open("/proc/thread-self/net/unix", O_RDONLY | O_CLOEXEC);
	char buffer[8 * LINE_MAX_BYTES];
	size_t length = 0;
	ssize_t n;

	if (fd < 0)
		return;
	while ((n = read(fd, buffer + length, sizeof(buffer) - length)) > 0) {
		length += (size_t)n;
		if (!take_lines(buffer, &length, fn, arg))
			break;
		if (length >= LINE_MAX_BYTES)
			length = 0; /* too long for a line of this file: skip it */
	}
	close(fd);
}
