/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "record_command.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "record.h"

_Static_assert(GP_RECORD_COMMAND_MAX + 2 * GP_RECORD_VARINT_MAX <= GP_RECORD_BODY_MAX, "the longest command line fits");

/* Reads up to size bytes. Returns their number, 0 after an error. */
static size_t read_file(const char *path, uint8_t *bytes, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	size_t n = 0;
	ssize_t r = 0;

	if (fd < 0)
		return 0;
	do {
		n += (size_t)r;
		r = read(fd, bytes + n, size - n);
	} while (r > 0 && n < size);
	close(fd);
	return r < 0 ? 0 : n;
}

/* A thread that is cancelled while the file is open would leave its descriptor open, so cancellation is disabled. */
void gp_record_command(void)
{
	uint8_t words[GP_RECORD_COMMAND_MAX + 1], body[GP_RECORD_BODY_MAX];
	int saved_errno = errno, cancel_state;
	size_t n, length = 0;
	bool is_cut;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	n = read_file("/proc/self/cmdline", words, sizeof(words));
	pthread_setcancelstate(cancel_state, NULL);
	is_cut = n > GP_RECORD_COMMAND_MAX;
	n = is_cut ? GP_RECORD_COMMAND_MAX : n;
	if (n) {
		length += gp_record_put_varint(body + length, is_cut);
		length += gp_record_put_varint(body + length, n);
		memcpy(body + length, words, n);
		gp_record_add_long(GP_RECORD_COMMAND, body, length + n);
	}
	errno = saved_errno;
}
