/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_procs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stat_dirs.h"
#include "stat_environ.h"

enum {
	PROCESSES_MAX = 65536,
	PLACES_MAX = 4096,    /* different sets of directories */
	USER_PLACES_MAX = 64, /* of a user */
	USERS_MAX = 4096,
	VARIABLES_MAX = 128 << 10,     /* bytes of an environment that are read */
	USER_VARIABLES_MAX = 16 << 20, /* bytes of all environments of a user */
};

#define FIRST_HASH UINT64_C(0xcbf29ce484222325)

struct user {
	uid_t uid;
	size_t n_places, n_bytes;
};

struct search {
	struct stat_survey *survey;
	ino_t own_mounts;
	uint64_t *places; /* hashes of what decides on the directories of a process */
	size_t n_places;
	struct user *users;
	size_t n_users;
	char *variables;
};

static uint64_t add_hash(uint64_t hash, const void *data, size_t size)
{
	const unsigned char *byte = data;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static uint64_t add_text(uint64_t hash, const char *text)
{
	return text ? add_hash(hash, text, strlen(text) + 1) : add_hash(hash, "\1", 1);
}

/* Returns the number of a namespace of a process; 0 if it cannot be read. */
static ino_t namespace_of(const char *pid, const char *kind)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%.16s/ns/%s", pid, kind);
	return stat(path, &st) == 0 ? st.st_ino : 0;
}

static const char *parse_number(const char *text, uint64_t *ret_number)
{
	return text ? gp_ctl_parse_digits(text + strspn(text, " "), ret_number) : NULL;
}

/* Returns the number that a user has in the user namespace of a process, where its directories are named by it. */
static uid_t number_inside(const char *pid, uid_t uid)
{
	uint64_t inside, outside, count;
	char path[64], line[128];
	uid_t found = uid;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%.16s/uid_map", pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (parse_number(parse_number(parse_number(line, &inside), &outside), &count) && uid >= outside &&
			uid - outside < count)
			found = (uid_t)(inside + (uid - outside));
	if (file)
		fclose(file);
	return found;
}

static bool has_own_root(const char *pid)
{
	char path[64], root[2];

	snprintf(path, sizeof(path), "/proc/%.16s/root", pid);
	return readlink(path, root, sizeof(root)) != 1;
}

static struct gp_ctl_dirs dirs_of(const char *variables, uid_t uid)
{
	return (struct gp_ctl_dirs){
		.runtime_dir = stat_environ_find(variables, "GPUPOOL_RUNTIME_DIR"),
		.run_dir = GP_CTL_RUN_DIR,
		.xdg_runtime_dir = stat_environ_find(variables, "XDG_RUNTIME_DIR"),
		.tmp_dir = stat_environ_find(variables, "TMPDIR"),
		.uid = uid,
	};
}

static struct user *find_user(struct search *search, uid_t uid)
{
	size_t i = 0;

	while (i < search->n_users && search->users[i].uid != uid)
		i++;
	if (i == USERS_MAX)
		return NULL;
	if (i == search->n_users)
		search->users[search->n_users++] = (struct user){.uid = uid};
	return &search->users[i];
}

static bool read_variables(struct search *search, struct user *user, const char *pid)
{
	char path[64];
	size_t length = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%.16s/environ", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	while (length < VARIABLES_MAX && (n = read(fd, search->variables + length, VARIABLES_MAX - length)) > 0)
		length += (size_t)n;
	close(fd);
	search->variables[length] = search->variables[length + 1] = '\0';
	user->n_bytes += length;
	return length > 0;
}

/* Returns true if no process before has had these directories. */
static bool is_new(struct search *search, uint64_t place)
{
	for (size_t i = 0; i < search->n_places; i++)
		if (search->places[i] == place)
			return false;
	if (search->n_places == PLACES_MAX)
		return false;
	search->places[search->n_places++] = place;
	return true;
}

static void look_at(struct search *search, const char *pid, uid_t uid)
{
	const ino_t namespaces[] = {namespace_of(pid, "mnt"), namespace_of(pid, "user")};
	struct user *user = find_user(search, uid);
	uint64_t place = add_hash(FIRST_HASH, &uid, sizeof(uid));
	struct gp_ctl_dirs dirs;
	char prefix[64] = "";
	bool has_root;

	if (!user || user->n_places == USER_PLACES_MAX || user->n_bytes > USER_VARIABLES_MAX) {
		search->survey->missed.n_places++;
		return;
	}
	if (!namespaces[0] || !read_variables(search, user, pid))
		return;
	has_root = has_own_root(pid);
	dirs = dirs_of(search->variables, uid);
	place = add_hash(place, namespaces, sizeof(namespaces));
	place = add_hash(place, &has_root, sizeof(has_root));
	place = add_text(add_text(add_text(place, dirs.runtime_dir), dirs.xdg_runtime_dir), dirs.tmp_dir);
	if (!is_new(search, place))
		return;
	user->n_places++;
	dirs.uid = number_inside(pid, uid);
	if (namespaces[0] != search->own_mounts || has_root)
		snprintf(prefix, sizeof(prefix), "/proc/%.16s/root", pid);
	stat_dirs_add(search->survey, &dirs, prefix, &uid);
}

static bool is_number(const char *name)
{
	return name[strspn(name, "0123456789")] == '\0' && strlen(name) <= 16;
}

void stat_dirs_of_processes(struct stat_survey *survey)
{
	struct search search = {.survey = survey, .own_mounts = namespace_of("self", "mnt")};
	const struct dirent *entry;
	struct stat st;
	DIR *proc;

	if (getenv("GPUPOOL_RUNTIME_DIR"))
		return; /* the user wants only that directory */
	proc = opendir("/proc");
	if (!proc)
		return;
	search.places = stat_alloc(calloc(PLACES_MAX, sizeof(*search.places)));
	search.users = stat_alloc(calloc(USERS_MAX, sizeof(*search.users)));
	search.variables = stat_alloc(malloc(VARIABLES_MAX + 2));
	for (size_t n = 0; n < PROCESSES_MAX && (entry = readdir(proc));) {
		if (!is_number(entry->d_name) || fstatat(dirfd(proc), entry->d_name, &st, 0) != 0)
			continue;
		n++;
		if (geteuid() == 0 || st.st_uid == geteuid())
			look_at(&search, entry->d_name, st.st_uid);
	}
	closedir(proc);
	free(search.variables);
	free(search.users);
	free(search.places);
}

void stat_dirs_of_process(struct stat_survey *survey, pid_t pid)
{
	char *variables = stat_environ_read(pid), number[16], root[32];
	struct gp_ctl_dirs dirs;
	struct stat st;

	snprintf(number, sizeof(number), "%d", (int)pid);
	snprintf(root, sizeof(root), "/proc/%d", (int)pid);
	if (variables && stat(root, &st) == 0) {
		dirs = dirs_of(variables, number_inside(number, st.st_uid));
		stat_dirs_add(survey, &dirs, "", NULL);
		snprintf(root, sizeof(root), "/proc/%d/root", (int)pid);
		stat_dirs_add(survey, &dirs, root, NULL);
	}
	free(variables);
}
