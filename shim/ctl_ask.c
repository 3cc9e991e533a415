/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ctl_ask.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "ctl_proto.h"

int64_t gp_ask_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

void gp_ask_each_dir(bool (*fn)(void *arg, int dir_fd), void *arg)
{
	const struct gp_ctl_places places = {
		.runtime_dir = gp_config_variable("GPUPOOL_RUNTIME_DIR"),
		.xdg_runtime_dir = gp_config_variable("XDG_RUNTIME_DIR"),
		.tmp_dir = gp_config_variable("TMPDIR"),
		.uid = geteuid(),
	};
	char path[GP_CTL_PATH_MAX];
	bool goes_on = true;

	for (unsigned nth = 0; goes_on; nth++) {
		int dir_fd, error = gp_ctl_place(&places, nth, path, sizeof(path));

		if (error == -ERANGE)
			break;
		dir_fd = error ? error : gp_ctl_dir_open(path, places.uid, false);
		if (dir_fd < 0)
			continue;
		goes_on = fn(arg, dir_fd);
		close(dir_fd);
	}
}

bool gp_ask_take_text(const char **at, const char *text)
{
	size_t length = strlen(text);

	if (strncmp(*at, text, length) != 0)
		return false;
	*at += length;
	return true;
}

/* Digits and nothing else: scanf() and strtoull() let a sign and spaces through, and -1 becomes the largest number. */
bool gp_ask_take_number(const char **at, uint64_t *ret_number)
{
	const char *s = *at;

	for (*ret_number = 0; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(*ret_number, 10, ret_number) ||
			__builtin_add_overflow(*ret_number, (uint64_t)(*s - '0'), ret_number))
			return false;
	if (s == *at || (**at == '0' && s - *at > 1))
		return false;
	*at = s;
	return true;
}
