/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_yield_peer.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/nsfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/counter_page.h"
#include "common/uuid.h"
#include "tools/ask/stat_dirs.h"
#include "tools/ask/stat_procs.h"

enum {
	GPUS_MAX = 256,
	FDS_MAX = 4096, /* descriptors that are looked at, the lowest first */
	TEXT_MAX = 4096,
	MINOR_NONE = -1,
	MINOR_CONTROL = 254, /* from here on, minor numbers are not of devices */
};

uint64_t stat_yield_user_of(pid_t pid, uid_t uid)
{
	char path[64];
	uid_t owner = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (ioctl(fd, NS_GET_OWNER_UID, &owner) != 0)
			owner = 0;
		close(fd);
	}
	return owner ? owner : uid;
}

/* Reads the beginning of a file. Returns false if it is not readable. */
static bool read_text(int dir_fd, const char *path, char text[static TEXT_MAX])
{
	int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, TEXT_MAX - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* Returns the number in the line of that name, or -1. */
static long number_in(const char *text, const char *name)
{
	const char *at = strstr(text, name);
	uint64_t number;

	if (!at)
		return -1;
	at += strlen(name);
	at += strspn(at, ": \t");
	return gp_ctl_parse_digits(at, &number) && number <= INT32_MAX ? (long)number : -1;
}

/* Returns the minor number of the device's node, or MINOR_NONE if the driver does not list it. */
static long find_minor(int gpus_fd, const unsigned char uuid[static STAT_YIELD_UUID])
{
	char shown[GP_UUID_TEXT_MAX], path[300], text[TEXT_MAX];
	DIR *dir = fdopendir(gpus_fd);
	const struct dirent *entry;
	long found = MINOR_NONE;

	if (!dir) {
		close(gpus_fd);
		return MINOR_NONE;
	}
	gp_uuid_format(shown, uuid, GP_UUID_SHOWN);
	for (int n = 0; n < GPUS_MAX && found == MINOR_NONE && (entry = readdir(dir)); n++) {
		snprintf(path, sizeof(path), "%s/information", entry->d_name);
		if (read_text(dirfd(dir), path, text) && strstr(text, shown))
			found = number_in(text, "Device Minor");
	}
	closedir(dir);
	return found;
}

static bool is_node(const struct stat *st, unsigned major_number, long minor_number)
{
	if (!S_ISCHR(st->st_mode) || major(st->st_rdev) != major_number)
		return false;
	return minor_number == MINOR_NONE ? minor(st->st_rdev) < MINOR_CONTROL
					  : minor(st->st_rdev) == (unsigned)minor_number;
}

static bool has_node_open(pid_t pid, unsigned major_number, long minor_number)
{
	const struct dirent *entry;
	bool is_found = false;
	struct stat st;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	for (int n = 0; dir && n < FDS_MAX && !is_found && (entry = readdir(dir)); n++)
		is_found = fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && is_node(&st, major_number, minor_number);
	if (dir)
		closedir(dir);
	return is_found;
}

/* Returns the number of a process in its own PID namespace, by which its files are named; 0 if unknown. */
static pid_t inner_pid(pid_t pid)
{
	char path[64], text[TEXT_MAX], *at, *end;
	uint64_t number = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (!read_text(AT_FDCWD, path, text))
		return 0;
	at = strstr(text, "\nNSpid:");
	if (!at)
		return pid;
	end = strchr(at + 1, '\n');
	if (end)
		*end = '\0';
	at = strrchr(at + 1, '\t');
	return at && gp_ctl_parse_digits(at + 1, &number) && number <= INT32_MAX ? (pid_t)number : 0;
}

static bool has_device(const struct gp_page_copy *page, const unsigned char uuid[static STAT_YIELD_UUID])
{
	for (uint64_t i = 0; i < page->figures.n_devices; i++)
		if (page->figures.devices[i].has_uuid &&
			memcmp(page->figures.devices[i].uuid, uuid, STAT_YIELD_UUID) == 0)
			return true;
	return false;
}

static bool is_on_page(pid_t pid, uid_t uid, const unsigned char uuid[static STAT_YIELD_UUID])
{
	struct stat_survey survey = {0};
	char name[GP_CTL_NAME_MAX], state;
	struct gp_page_copy page;
	uint64_t start_ticks;
	bool is_found = false;

	if (gp_ctl_process_stat(pid, &start_ticks, &state))
		return false;
	snprintf(name, sizeof(name), "%d.%" PRIu64 GP_PAGE_SUFFIX, (int)inner_pid(pid), start_ticks);
	stat_dirs_of_process(&survey, pid);
	for (size_t i = 0; i < survey.n_dirs && !is_found; i++) {
		struct stat_dir *dir = &survey.dirs[i];

		if (dir->is_abstract || dir->uid != uid || stat_dir_open(dir) != 0)
			continue;
		is_found = !gp_page_read(dir->fd, name, uid, &page) && has_device(&page, uuid);
		close(dir->fd);
		dir->fd = -1;
	}
	stat_survey_deinit(&survey);
	return is_found;
}

const char *stat_yield_peer_check(
	pid_t pid, uid_t uid, const unsigned char uuid[static STAT_YIELD_UUID], const char *gpus, unsigned major_number)
{
	int gpus_fd;

	if (pid <= 0)
		return "the exporter does not see this process: it runs in a PID namespace of its own";
	gpus_fd = open(gpus, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (gpus_fd < 0)
		return is_on_page(pid, uid, uuid) ? NULL : "the counter page of this process does not name that device";
	return has_node_open(pid, major_number, find_minor(gpus_fd, uuid)) ? NULL
									   : "this process has not opened that device";
}
