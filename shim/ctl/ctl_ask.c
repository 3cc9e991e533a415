/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ctl_ask.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/config.h"
#include "common/ctl_proto.h"

enum { USERS_MAX = 48, ENTRIES_MAX = 10000 };

int64_t gp_ask_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

void gp_ask_each_dir(bool (*fn)(void *arg, int dir_fd), void *arg)
{
	const struct gp_ctl_dirs dirs = {
		.runtime_dir = gp_config_variable("GPUPOOL_RUNTIME_DIR"),
		.xdg_runtime_dir = gp_config_variable("XDG_RUNTIME_DIR"),
		.tmp_dir = gp_config_variable("TMPDIR"),
		.uid = geteuid(),
		.run_dir = gp_ctl_run_dir(GP_CTL_RUN_DIR, geteuid()),
	};
	char path[GP_CTL_PATH_MAX];
	bool goes_on = true;

	for (unsigned nth = 0; goes_on; nth++) {
		int dir_fd, error = gp_ctl_dir(&dirs, nth, path, sizeof(path));

		if (error == -ERANGE)
			break;
		dir_fd = error ? error : gp_ctl_dir_open(path, dirs.uid, false);
		if (dir_fd < 0)
			continue;
		goes_on = fn(arg, dir_fd);
		close(dir_fd);
	}
}

bool gp_ask_is_dir_named(void)
{
	const char *named = gp_config_variable("GPUPOOL_RUNTIME_DIR");
	int dir_fd = named && *named ? gp_ctl_dir_open(named, geteuid(), false) : -ENOENT;

	if (dir_fd >= 0)
		close(dir_fd);
	return dir_fd >= 0;
}

struct users {
	bool (*fn)(void *arg, int dir_fd, uid_t uid);
	void *arg;
	unsigned n_left;
};

/* Parses a name that consists of the prefix and the number of another user, as in gpupool-1000. */
static bool parse_user(const char *name, const char *prefix, uid_t *ret_uid)
{
	uint64_t number;

	if (!gp_ask_take_text(&name, prefix) || !gp_ask_take_number(&name, &number) || *name)
		return false;
	*ret_uid = (uid_t)number;
	return number < UINT32_MAX && number != geteuid();
}

static void open_user(struct users *users, const char *path, uid_t uid)
{
	int dir_fd = gp_ctl_dir_open(path, uid, false);

	if (dir_fd < 0)
		return;
	users->n_left = users->fn(users->arg, dir_fd, uid) ? users->n_left - 1 : 0;
	close(dir_fd);
}

static void each_user_in(struct users *users, const char *base, const char *prefix, const char *rest)
{
	DIR *dir = opendir(base);
	const struct dirent *entry;
	char path[GP_CTL_PATH_MAX];
	uid_t uid;

	for (unsigned n = 0; dir && users->n_left && n < ENTRIES_MAX && (entry = readdir(dir)); n++) {
		if (!parse_user(entry->d_name, prefix, &uid))
			continue;
		if ((size_t)snprintf(path, sizeof(path), "%s/%s%s", base, entry->d_name, rest) < sizeof(path))
			open_user(users, path, uid);
	}
	if (dir)
		closedir(dir);
}

void gp_ask_each_user(bool (*fn)(void *arg, int dir_fd, uid_t uid), void *arg)
{
	struct users users = {fn, arg, USERS_MAX};
	const char *tmp = gp_config_variable("TMPDIR");

	each_user_in(&users, GP_CTL_RUN_DIR, "", "");
	each_user_in(&users, "/run/user", "", "/gpupool");
	each_user_in(&users, "/tmp", "gpupool-", "");
	if (tmp && *tmp == '/' && strcmp(tmp, "/tmp") != 0)
		each_user_in(&users, tmp, "gpupool-", "");
}

bool gp_ask_take_text(const char **at, const char *text)
{
	size_t length = strlen(text);

	if (strncmp(*at, text, length) != 0)
		return false;
	*at += length;
	return true;
}

/* Accepts digits only: scanf() and strtoull() accept a sign and spaces, and turn -1 into the largest number. */
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
