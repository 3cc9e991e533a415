/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "broker.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compat.h"

enum { MAP_MAX = 4096 };

/* Reads the three numbers of a line: the first id inside, the first id outside, and how many there are. */
static const char *parse_line(const char *at, uint64_t numbers[static 3])
{
	for (int i = 0; at && i < 3; i++)
		at = gp_ctl_parse_digits(at + strspn(at, " "), &numbers[i]);
	return at;
}

bool gp_broker_may_be_root(uid_t uid, const char *map)
{
	uint64_t numbers[3];
	const char *end;

	if (uid == 0)
		return true;
	if (uid != GP_CTL_OVERFLOW_UID || !*map)
		return false;
	for (const char *at = map; *at; at = *end ? end + 1 : end) {
		end = parse_line(at, numbers);
		if (!end || (*end && *end != '\n') || numbers[1] == 0)
			return false;
	}
	return true;
}

static bool is_root(uid_t uid)
{
	char map[MAP_MAX] = "";
	ssize_t length = -1;
	int fd;

	if (uid == GP_CTL_OVERFLOW_UID) {
		fd = open("/proc/thread-self/uid_map", O_RDONLY | O_CLOEXEC);
		if (fd >= 0) {
			length = read(fd, map, sizeof(map) - 1);
			close(fd);
		}
	}
	/* A map that does not fit is cut in the middle of a line. */
	map[length > 0 && length < MAP_MAX - 1 ? length : 0] = '\0';
	return gp_broker_may_be_root(uid, map);
}

/* Opens the folder. Only root may be able to make a socket in it. */
static int open_dir(const char *path)
{
	int fd = open(path, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
	struct statx st;

	if (fd < 0)
		return -errno;
	if (!statx(fd, "", AT_EMPTY_PATH, STATX_MODE | STATX_UID, &st) && is_root(st.stx_uid) && !(st.stx_mode & 022))
		return fd;
	close(fd);
	return -EPERM;
}

int gp_broker_connect(const char *dir)
{
	int dir_fd = open_dir(dir), fd;
	uid_t uid;

	if (dir_fd < 0)
		return dir_fd;
	fd = gp_ctl_connect_any(dir_fd, GP_BROKER_NAME, &uid);
	close(dir_fd);
	if (fd < 0 || is_root(uid))
		return fd;
	close(fd);
	return -EPERM;
}
