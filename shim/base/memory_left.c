/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The control groups are those of /proc/thread-self/cgroup, of both versions, and their parents. In a container the
 * file system may show only a part of their paths, or the container's own group as the root. A file that is not there
 * sets no limit, so the search goes on with the parent, up to the root that the file system shows.
 */

#include "memory_left.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base.h"

enum {
	TEXT_MAX = 4096, /* of a file: /proc/meminfo has some 1600 bytes, memory.stat some 1500 */
	PATH_MAX_BYTES = 1024,
	MACHINE_SHARE = 16, /* what stays of the machine's memory: this part of it */
};

/* And of the limit of a control group. */
static const unsigned group_shares[] = {[GP_MEMORY_FOR_PROGRAM] = 2, [GP_MEMORY_FOR_USER] = 16};

/* A version of control groups. */
struct version {
	const char *root, *limit, *used, *cache;
};

/* In the second version all controllers share a tree. It may be mounted beside those of the first. */
static const struct version first = {
	"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};
static const struct version second = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};
static const struct version second_beside = {
	"/sys/fs/cgroup/unified", "memory.max", "memory.current", "inactive_file "};

/* Reads a whole file, which does not depend on the program's locale or streams. Returns false if there is none. */
static bool read_file(const char *path, char *text)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t n = 0;

	if (fd < 0)
		return false;
	while (length < TEXT_MAX - 1 && (n = read(fd, text + length, TEXT_MAX - 1 - length)) > 0)
		length += (size_t)n;
	close(fd);
	text[length] = '\0';
	return n >= 0;
}

/* Returns the number after the name at the beginning of a line, or 0. */
static uint64_t number_of(const char *text, const char *name)
{
	size_t length = strlen(name);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, length) == 0)
			return strtoull(line + length, NULL, 10);
	}
	return 0;
}

/* Returns what is left of a group, or UINT64_MAX if it has no limit. dir ends without a slash. */
static uint64_t left_of_group(const struct version *version, const char *dir, unsigned share)
{
	char path[PATH_MAX_BYTES + 64], text[TEXT_MAX], *end;
	uint64_t limit, used, cache = 0;

	snprintf(path, sizeof(path), "%s/%s", dir, version->limit);
	if (!read_file(path, text))
		return UINT64_MAX;
	limit = strtoull(text, &end, 10);
	if (end == text)
		return UINT64_MAX; /* "max" */
	snprintf(path, sizeof(path), "%s/%s", dir, version->used);
	if (!read_file(path, text))
		return UINT64_MAX;
	used = strtoull(text, NULL, 10);
	/* The kernel drops unused pages of files before it ends a process. */
	snprintf(path, sizeof(path), "%s/memory.stat", dir);
	if (read_file(path, text))
		cache = gp_min(number_of(text, version->cache), used);
	used += limit / share;
	return limit > used - cache ? limit - (used - cache) : 0;
}

/* Returns the least that is left of a group and its parents. */
static uint64_t left_of_groups(const char *root, const struct version *version, const char *group, unsigned share)
{
	char dir[PATH_MAX_BYTES];
	size_t top = (size_t)snprintf(dir, sizeof(dir), "%s%s", root, version->root);
	uint64_t left = UINT64_MAX;
	char *slash;

	/* A group outside the namespace of the process: only the root is known to be above it. */
	if (top >= sizeof(dir))
		return left;
	if (!strstr(group, "/..") && strlen(group) < sizeof(dir) - top)
		strcpy(dir + top, group);
	while (strlen(dir) > top && dir[strlen(dir) - 1] == '/')
		dir[strlen(dir) - 1] = '\0';
	for (;;) {
		uint64_t here = left_of_group(version, dir, share);

		left = gp_min(left, here);
		slash = strrchr(dir + top, '/');
		if (!slash)
			return left;
		*slash = '\0';
	}
}

/* Returns true if the comma-separated list of controllers has the one for memory. */
static bool has_memory(const char *controllers, size_t length)
{
	for (const char *at = controllers; at < controllers + length; at++)
		if ((at == controllers || at[-1] == ',') && strncmp(at, "memory", 6) == 0 &&
			(at + 6 == controllers + length || at[6] == ','))
			return true;
	return false;
}

/* Each line is NUMBER:CONTROLLERS:PATH; the second version has the number 0 and no controllers. */
static uint64_t left_of_all_groups(const char *root, unsigned share)
{
	char path[PATH_MAX_BYTES], text[TEXT_MAX];
	uint64_t left = UINT64_MAX;
	char *next;

	snprintf(path, sizeof(path), "%s/proc/thread-self/cgroup", root);
	if (!read_file(path, text))
		return left;
	for (char *line = text; line; line = next) {
		char *controllers, *group;

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		controllers = strchr(line, ':');
		group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group)
			continue;
		controllers++;
		group++;
		if (strncmp(line, "0::", 3) == 0) {
			left = gp_min(left, left_of_groups(root, &second, group, share));
			left = gp_min(left, left_of_groups(root, &second_beside, group, share));
		} else if (has_memory(controllers, (size_t)(group - 1 - controllers))) {
			left = gp_min(left, left_of_groups(root, &first, group, share));
		}
	}
	return left;
}

static uint64_t left_of_machine(const char *root)
{
	char path[PATH_MAX_BYTES], text[TEXT_MAX];
	uint64_t available, reserve;

	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	if (!read_file(path, text))
		return 0;
	available = number_of(text, "MemAvailable:") * GP_KIB;
	reserve = number_of(text, "MemTotal:") * GP_KIB / MACHINE_SHARE;
	return available > reserve ? available - reserve : 0;
}

uint64_t gp_memory_left(const char *root, enum gp_memory_for whom)
{
	uint64_t machine = left_of_machine(root), groups = machine ? left_of_all_groups(root, group_shares[whom]) : 0;

	return gp_min(machine, groups);
}
