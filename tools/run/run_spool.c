/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "run_spool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run_say.h"

enum { BLOCK = 64 << 10, TAIL_BYTES = 8 << 10 };

int run_spool_open(void)
{
	const char *tmp = getenv("TMPDIR");
	char path[PATH_MAX];
	int fd;

	if (!tmp || *tmp != '/')
		tmp = "/tmp";
	fd = open(tmp, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0)
		return fd;
	/* Some file systems have no files without a name. */
	if ((size_t)snprintf(path, sizeof(path), "%s/gpupool-run-XXXXXX", tmp) < sizeof(path)) {
		fd = mkostemp(path, O_CLOEXEC);
		if (fd >= 0)
			(void)unlink(path);
	}
	if (fd < 0)
		run_error("set TMPDIR to a directory that you may write to.", "cannot make a temporary file in %s: %s.",
			tmp, strerror(errno));
	return fd;
}

/* Copies the line that holds a position, without its end. */
static void copy_line(int fd, off_t line_start, char text[static 128])
{
	ssize_t n = pread(fd, text, 127, line_start);

	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

/* Returns the bytes that are equal, and counts the lines among them. */
static size_t equal_bytes(const char *a, const char *b, size_t n, off_t at, uint64_t *lines, off_t *line_start)
{
	size_t i = 0;

	for (; i < n && a[i] == b[i]; i++)
		if (a[i] == '\n') {
			++*lines;
			*line_start = at + (off_t)i + 1;
		}
	return i;
}

bool run_spool_compare(int a_fd, int b_fd, struct run_difference *ret)
{
	static char a[BLOCK], b[BLOCK];
	off_t at = 0, line_start = 0;
	uint64_t lines = 1;

	*ret = (struct run_difference){.is_different = false};
	for (;;) {
		ssize_t n_a = pread(a_fd, a, sizeof(a), at), n_b = pread(b_fd, b, sizeof(b), at);
		size_t n, equal;

		if (n_a < 0 || n_b < 0)
			return false;
		if (!n_a && !n_b)
			return true;
		n = (size_t)(n_a < n_b ? n_a : n_b);
		equal = equal_bytes(a, b, n, at, &lines, &line_start);
		if (equal < n || !n)
			break;
		at += (off_t)n;
	}
	ret->is_different = true;
	ret->line = lines;
	copy_line(a_fd, line_start, ret->texts[0]);
	copy_line(b_fd, line_start, ret->texts[1]);
	return true;
}

void run_spool_tail(int fd, unsigned n_lines)
{
	static char text[TAIL_BYTES + 1];
	struct stat st;
	off_t at;
	ssize_t n;
	char *start;

	if (fstat(fd, &st) < 0)
		return;
	at = st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0;
	n = pread(fd, text, TAIL_BYTES, at);
	if (n <= 0)
		return;
	if (text[n - 1] == '\n')
		n--;
	text[n] = '\0';
	start = text + n;
	while (start > text && n_lines) {
		start--;
		n_lines -= *start == '\n';
	}
	for (char *rest, *line = strtok_r(start, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		run_say("    %s", line);
}
