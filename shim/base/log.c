/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A line is built on the stack and written with one write(2). A log file is opened and closed for each line: the
 * program could close a descriptor that stayed open, and its next file would get that number and gpupool's lines. The
 * cost does not matter, since each log statement stops after GP_LOG_REPEATS lines.
 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "common/clean.h"
#include "common/compat.h"
#include "common/file.h"

#define LINE_SIZE 1024
#define PATH_SIZE 1024

/* Written before current_level is set. A thread that reads a level other than off also sees the template. */
static char path_template[PATH_SIZE];
static struct statx stderr_at_start; /* all zeros: descriptor 2 was closed */
static _Atomic int current_level = GP_LOG_OFF;
static _Atomic bool is_failure_told; /* of the log file that cannot be opened */

static bool is_same_file(const struct statx *a, const struct statx *b)
{
	return a->stx_ino == b->stx_ino && a->stx_dev_major == b->stx_dev_major && a->stx_dev_minor == b->stx_dev_minor;
}

static int stat_fd(int fd, struct statx *ret)
{
	return statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, ret);
}

/*
 * Returns true if descriptor 2 still is stderr. The program may have closed it, and a socket or a data file of the
 * program may have got the number since. Lines may be written to
 *
 *   - the file that was stderr at the first call of the library, as in "program 2>file";
 *   - a terminal;
 *   - another regular file, if it is open for appending or also is stdout: daemons redirect both.
 */
static bool is_stderr_usable(void)
{
	struct statx now, out;

	if (stat_fd(STDERR_FILENO, &now) < 0)
		return false;
	if (is_same_file(&now, &stderr_at_start) || S_ISCHR(now.stx_mode))
		return true;
	if (!S_ISREG(now.stx_mode))
		return false;
	return fcntl(STDERR_FILENO, F_GETFL) & O_APPEND ||
	       (stat_fd(STDOUT_FILENO, &out) == 0 && is_same_file(&now, &out));
}

/* O_NONBLOCK: a fifo without a reader must not block the program. */
static int open_file(void)
{
	char path[PATH_SIZE];
	int fd;

	if (!gp_file_expand(path, sizeof(path), path_template))
		return -ENAMETOOLONG;
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0600);
	return fd < 0 ? -errno : fd;
}

/*
 * Ends the line. Replaces control characters, because names in a line can come from anywhere and must not control the
 * terminal.
 */
static size_t finish_line(char line[static LINE_SIZE], int wanted)
{
	static const char mark[] = "...";
	size_t length = strlen(line);

	if (wanted >= LINE_SIZE - 1) {
		length = LINE_SIZE - 2;
		memcpy(line + length - strlen(mark), mark, strlen(mark));
	}
	line[length] = '\0';
	gp_clean(line, LINE_SIZE, line);
	length = strlen(line);
	line[length++] = '\n';
	return length;
}

static void send_to_stderr(const char *line, size_t length)
{
	if (is_stderr_usable())
		(void)gp_file_write(STDERR_FILENO, line, length);
}

/* Says once why the lines are not in the log file. */
static void tell_failure(int error)
{
	char line[LINE_SIZE];
	int wanted;

	if (atomic_exchange(&is_failure_told, true))
		return;
	wanted = snprintf(line, sizeof(line),
		"gpupool[%d]: warn: cannot open the log file %s (error %d): messages go to stderr; correct "
		"GPUPOOL_LOG_FILE",
		(int)getpid(), path_template, error);
	send_to_stderr(line, finish_line(line, wanted));
}

static void send_line(const char *line, size_t length)
{
	int fd;

	if (!*path_template) {
		send_to_stderr(line, length);
		return;
	}
	fd = open_file();
	if (fd < 0) {
		tell_failure(-fd);
		send_to_stderr(line, length);
		return;
	}
	(void)gp_file_write(fd, line, length);
	close(fd);
}

static const char *level_name(enum gp_log_level level)
{
	static const char *const names[] = {"off", "error", "warn", "info", "debug"};

	return names[level];
}

void gp_log_note_stderr(void)
{
	int saved_errno = errno;

	if (stat_fd(STDERR_FILENO, &stderr_at_start) < 0)
		memset(&stderr_at_start, 0, sizeof(stderr_at_start));
	errno = saved_errno;
}

void gp_log_open(enum gp_log_level level, const char *template)
{
	path_template[0] = '\0';
	atomic_store(&is_failure_told, false);
	if (template && strcmp(template, "stderr") && strlen(template) < sizeof(path_template))
		strcpy(path_template, template);
	atomic_store_explicit(&current_level, (int)level, memory_order_release);
}

enum gp_log_level gp_log_level(void)
{
	return (enum gp_log_level)atomic_load_explicit(&current_level, memory_order_acquire);
}

/* Returns false once the log statement has reached its limit. The count then stops, so it never wraps. */
static bool site_may_log(struct gp_log_site *site, bool *ret_is_last)
{
	unsigned lines;

	if (atomic_load_explicit(&site->lines, memory_order_relaxed) > GP_LOG_REPEATS)
		return false;
	lines = atomic_fetch_add_explicit(&site->lines, 1, memory_order_relaxed);
	*ret_is_last = lines == GP_LOG_REPEATS;
	return lines <= GP_LOG_REPEATS;
}

void gp_log_write(struct gp_log_site *site, enum gp_log_level level, const char *format, ...)
{
	int saved_errno = errno;
	int cancel_state;
	char line[LINE_SIZE];
	bool is_last;
	int wanted;

	if (level == GP_LOG_OFF || level > gp_log_level() || !site_may_log(site, &is_last))
		return;
	/* If the thread were cancelled here, a descriptor would stay open and signals would stay blocked. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	wanted = snprintf(line, sizeof(line), "gpupool[%d]: %s: ", (int)getpid(), level_name(level));
	if (is_last) {
		wanted += snprintf(
			line + wanted, sizeof(line) - (size_t)wanted, "further messages like this are not shown");
	} else {
		va_list args;
		va_start(args, format);
		wanted += vsnprintf(line + wanted, sizeof(line) - (size_t)wanted, format, args);
		va_end(args);
	}
	send_line(line, finish_line(line, wanted));
	pthread_setcancelstate(cancel_state, NULL);
	errno = saved_errno;
}

void gp_log_tell(const char *format, ...)
{
	int saved_errno = errno, cancel_state, wanted;
	char line[LINE_SIZE];
	va_list args;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	wanted = snprintf(line, sizeof(line), "gpupool[%d]: ", (int)getpid());
	va_start(args, format);
	wanted += vsnprintf(line + wanted, sizeof(line) - (size_t)wanted, format, args);
	va_end(args);
	send_line(line, finish_line(line, wanted));
	pthread_setcancelstate(cancel_state, NULL);
	errno = saved_errno;
}
