/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ctl_proto.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compat.h"

#define READ  GP_CTL_READ
#define WRITE GP_CTL_WRITE
const struct gp_ctl_command_row gp_ctl_commands[GP_CTL_N_COMMANDS] = {
#define COMMAND(name, version, min_words, max_words, access, synopsis, help) \
	[GP_CTL_##name] = {#name, version, min_words, max_words, access, synopsis, help},
#include "ctl.def"
};

enum gp_ctl_command gp_ctl_command_find(const char *name)
{
	int i = 0;

	while (i < GP_CTL_N_COMMANDS && strcmp(gp_ctl_commands[i].name, name))
		i++;
	return (enum gp_ctl_command)i;
}

int gp_ctl_split(char *line, char **words, int max)
{
	char *save = NULL;
	int n = 0;

	for (char *word = strtok_r(line, " \t\r", &save); word; word = strtok_r(NULL, " \t\r", &save)) {
		if (n == max)
			return -E2BIG;
		words[n++] = word;
	}
	return n;
}

/* Removes slashes at the end of a path: they make the kernel follow a link in spite of O_NOFOLLOW. */
static void strip_slashes(char *path)
{
	size_t length = strlen(path);

	while (length > 1 && path[length - 1] == '/')
		path[--length] = '\0';
}

int gp_ctl_dir(const struct gp_ctl_dirs *dirs, unsigned nth, char *path, size_t size)
{
	bool has_runtime_dir = dirs->runtime_dir && *dirs->runtime_dir;
	const char *base, *tmp = dirs->tmp_dir;
	int length;

	if (nth > 3)
		return -ERANGE;
	if (!tmp || tmp[0] != '/')
		tmp = "/tmp";
	switch (nth) {
	case 0:
		base = dirs->runtime_dir;
		break;
	case 1:
		base = has_runtime_dir ? NULL : dirs->run_dir;
		break;
	case 2:
		base = dirs->xdg_runtime_dir;
		break;
	default:
		base = tmp;
	}
	if (!base || !*base)
		return -ENOENT;
	if (base[0] != '/')
		return -EINVAL;
	if (nth == 0)
		length = snprintf(path, size, "%s", base);
	else if (nth == 1)
		length = snprintf(path, size, "%s/%u", base, (unsigned)dirs->uid);
	else if (nth == 2)
		length = snprintf(path, size, "%s/gpupool", base);
	else
		length = snprintf(path, size, "%s/gpupool-%u", base, (unsigned)dirs->uid);
	if ((size_t)length >= size)
		return -ENAMETOOLONG;
	strip_slashes(path);
	return 0;
}

const char *gp_ctl_run_dir(const char *path, uid_t uid)
{
	struct statx st;

	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_MODE | STATX_UID, &st) ||
		!S_ISDIR(st.stx_mode) || (st.stx_uid && st.stx_uid != uid) ||
		((st.stx_mode & 022) && !(st.stx_mode & S_ISVTX)))
		return NULL;
	return path;
}

int gp_ctl_dir_open(const char *path, uid_t uid, bool create)
{
	struct statx st;
	int fd, error = -EPERM;

	if (create && mkdir(path, 0700) && errno != EEXIST)
		return -errno;
	fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_MODE | STATX_UID, &st))
		error = -errno;
	else if (S_ISLNK(st.stx_mode))
		error = -ELOOP;
	else if (!S_ISDIR(st.stx_mode))
		error = -ENOTDIR;
	else if (st.stx_uid == uid && !(st.stx_mode & 077))
		return fd;
	close(fd);
	return error;
}

int gp_ctl_dir_find(const struct gp_ctl_dirs *dirs, char *path, size_t size)
{
	int found = -ENOENT;

	for (unsigned nth = 0; found < 0; nth++) {
		int error = gp_ctl_dir(dirs, nth, path, size);

		if (error == -ERANGE)
			break;
		if (error != -ENOENT)
			found = error ? error : gp_ctl_dir_open(path, dirs->uid, true);
	}
	return found;
}

/* Returns the text for an error, or "" if it has none. */
static const char *error_text(int error)
{
	switch (error) {
	case -EACCES:
		return "cannot be used: permission denied";
	case -ENOENT:
		return "cannot be made: the directory above it does not exist";
	case -ENOTDIR:
		return "is not a directory";
	case -ELOOP:
		return "is a symbolic link";
	case -EROFS:
		return "cannot be used: the file system is read-only";
	case -ENOSPC:
	case -EDQUOT:
		return "cannot be used: no space left";
	}
	return "";
}

void gp_ctl_dir_explain(const char *path, uid_t uid, int error, char *text, size_t size)
{
	const char *words = error_text(error);
	struct statx st = {0};

	if (error == -EPERM && !statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_MODE | STATX_UID, &st) &&
		st.stx_uid != uid)
		snprintf(text, size, "%s belongs to another user (uid %u)", path, (unsigned)st.stx_uid);
	else if (error == -EPERM && st.stx_mode & 077)
		snprintf(text, size, "%s is open to other users (mode %04o)", path, st.stx_mode & 07777u);
	else if (*words)
		snprintf(text, size, "%s %s", path, words);
	else
		snprintf(text, size, "%s cannot be used (error %d)", path, -error);
}

int gp_ctl_address(int dir_fd, const char *name, struct sockaddr_un *address, socklen_t *length)
{
	int written;

	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (dir_fd == GP_CTL_NO_DIR) {
		written = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "%s", name);
		*length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)written);
		return (size_t)written < sizeof(address->sun_path) - 1 ? 0 : -ENAMETOOLONG;
	}
	/* Not /proc/self, which shows no descriptors once the main thread has ended. */
	written = snprintf(address->sun_path, sizeof(address->sun_path), "/proc/thread-self/fd/%d/%s", dir_fd, name);
	if ((size_t)written >= sizeof(address->sun_path))
		return -ENAMETOOLONG;
	*length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)written + 1);
	return 0;
}

static int get_peer(int fd, struct ucred *ret_peer)
{
	socklen_t length = sizeof(*ret_peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret_peer, &length) ? -errno : 0;
}

bool gp_ctl_has_all_users(void)
{
	uint64_t inside = 1, outside = 1, count = 0;
	char map[128] = "";
	const char *at = map;
	int fd = open("/proc/thread-self/uid_map", O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		if (read(fd, map, sizeof(map) - 1) < 0)
			map[0] = '\0';
		close(fd);
	}
	at = gp_ctl_parse_digits(at + strspn(at, " "), &inside);
	at = at ? gp_ctl_parse_digits(at + strspn(at, " "), &outside) : NULL;
	at = at ? gp_ctl_parse_digits(at + strspn(at, " "), &count) : NULL;
	return at && !inside && !outside && count == UINT32_MAX;
}

/*
 * True if the uid may stand for more than one user. In a user namespace every user without a number there is shown as
 * 65534 (the default of kernel.overflowuid), so an equal number proves nothing, unless the namespace has numbers for
 * all users.
 */
static bool is_ambiguous(uid_t uid)
{
	return uid == GP_CTL_OVERFLOW_UID && !gp_ctl_has_all_users();
}

bool gp_ctl_is_peer_trusted(int fd)
{
	struct ucred peer;

	return !get_peer(fd, &peer) && (peer.uid == 0 || (peer.uid == geteuid() && !is_ambiguous(peer.uid)));
}

pid_t gp_ctl_peer_pid(int fd)
{
	struct ucred peer;

	return get_peer(fd, &peer) ? 0 : peer.pid;
}

/* Connects without waiting. Returns a descriptor or -errno. */
static int connect_in(int dir_fd, const char *name)
{
	struct sockaddr_un address;
	socklen_t length;
	int fd, error = gp_ctl_address(dir_fd, name, &address, &length);

	if (error)
		return error;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	error = connect(fd, (struct sockaddr *)&address, length) ? -errno : 0;
	if (!error)
		return fd;
	close(fd);
	return error;
}

int gp_ctl_connect(int dir_fd, const char *name)
{
	int fd = connect_in(dir_fd, name);

	if (fd < 0 || gp_ctl_is_peer_trusted(fd))
		return fd;
	close(fd);
	return -EPERM;
}

int gp_ctl_connect_to(int dir_fd, const char *name, uid_t uid, pid_t pid)
{
	int fd = connect_in(dir_fd, name), error;
	struct ucred peer;

	if (fd < 0)
		return fd;
	error = get_peer(fd, &peer);
	if (!error && peer.uid == uid && peer.pid == pid)
		return fd;
	close(fd);
	return error ? error : -EPERM;
}

int gp_ctl_connect_any(int dir_fd, const char *name, uid_t *ret_uid)
{
	int fd = connect_in(dir_fd, name), error;
	struct ucred peer;

	if (fd < 0)
		return fd;
	error = get_peer(fd, &peer);
	if (error) {
		close(fd);
		return error;
	}
	*ret_uid = peer.uid;
	return fd;
}

void gp_ctl_name_format(char name[static GP_CTL_NAME_MAX], pid_t pid, uint64_t start_ticks)
{
	snprintf(name, GP_CTL_NAME_MAX, "%d.%" PRIu64 ".sock", (int)pid, start_ticks);
}

/* Not sscanf(), whose symbol in newer versions of glibc is missing in older ones. */
const char *gp_ctl_parse_digits(const char *text, uint64_t *value)
{
	const char *s = text;

	for (*value = 0; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(*value, 10, value) ||
			__builtin_add_overflow(*value, (uint64_t)(*s - '0'), value))
			return NULL;
	return s == text ? NULL : s;
}

bool gp_ctl_name_parse(const char *name, pid_t *pid, uint64_t *start_ticks)
{
	char canonical[GP_CTL_NAME_MAX];
	uint64_t number, start;
	const char *rest = gp_ctl_parse_digits(name, &number);

	if (!rest || *rest != '.' || !number || number > INT32_MAX)
		return false;
	if (!gp_ctl_parse_digits(rest + 1, &start))
		return false;
	gp_ctl_name_format(canonical, (pid_t)number, start);
	if (strcmp(name, canonical) != 0)
		return false;
	*pid = (pid_t)number;
	*start_ticks = start;
	return true;
}

/*
 * The second field is the program's name in brackets, which may contain anything. The numbers follow the last bracket.
 */
static int parse_stat(char *text, uint64_t *start_ticks, char *state)
{
	enum { STATE = 3, START = 22 };
	char *save = NULL, *rest = strrchr(text, ')'), *field;
	int nth = STATE;

	if (!rest)
		return -EINVAL;
	field = strtok_r(rest + 1, " ", &save);
	if (!field)
		return -EINVAL;
	*state = field[0];
	while (field && nth < START) {
		field = strtok_r(NULL, " ", &save);
		nth++;
	}
	return field && gp_ctl_parse_digits(field, start_ticks) ? 0 : -EINVAL;
}

int gp_ctl_process_stat(pid_t pid, uint64_t *start_ticks, char *state)
{
	char path[32] = "/proc/self/stat", text[1024];
	ssize_t length;
	int fd;

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (length <= 0)
		return -ESRCH;
	text[length] = '\0';
	return parse_stat(text, start_ticks, state);
}

bool gp_ctl_schema_parse(const char *schema, char name[static GP_CTL_SCHEMA_MAX], unsigned *major)
{
	static const char prefix[] = "gpupool.";
	const char *begin, *slash, *end;
	uint64_t number;

	if (strncmp(schema, prefix, sizeof(prefix) - 1) != 0)
		return false;
	begin = schema + sizeof(prefix) - 1;
	slash = strchr(begin, '/');
	if (!slash || slash == begin || slash - begin >= GP_CTL_SCHEMA_MAX)
		return false;
	end = gp_ctl_parse_digits(slash + 1, &number);
	if (!end || *end || number > UINT32_MAX)
		return false;
	memcpy(name, begin, (size_t)(slash - begin));
	name[slash - begin] = '\0';
	*major = (unsigned)number;
	return true;
}
