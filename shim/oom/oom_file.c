/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "oom_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/compat.h"
#include "common/file.h"
#include "oom_json.h"
#include "shim/base/log.h"
#include "shim/base/state.h"

#define NEW_SUFFIX ".new"
#define FLAGS      (O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK)

enum { ENTRIES_MAX = 4096 }; /* entries of a directory that are read */

static bool is_named(void)
{
	const char *setting = gp_state.config.oom_file;

	return strcmp(setting, "auto") != 0 && strcmp(setting, "off") != 0;
}

const char *gp_oom_where(char *text, size_t size)
{
	if (!is_named() || !gp_file_expand(text, size, gp_state.config.oom_file))
		snprintf(text, size, "%d", (int)getpid());
	return text;
}

/* Writes a temporary file and renames it. A reader of the name thus always sees a whole report, the new or the old. */
static int replace(int dir_fd, const char *name, const char *text, size_t length)
{
	char temporary[PATH_MAX];
	int fd, r;

	if ((size_t)snprintf(temporary, sizeof(temporary), "%s" NEW_SUFFIX, name) >= sizeof(temporary))
		return -ENAMETOOLONG;
	/* An earlier process with this process id may have left an incomplete file. */
	(void)unlinkat(dir_fd, temporary, 0);
	fd = openat(dir_fd, temporary, FLAGS, 0600);
	if (fd < 0)
		return -errno;
	r = gp_file_write(fd, text, length);
	if (close(fd) && !r)
		r = -errno;
	if (!r && renameat(dir_fd, temporary, dir_fd, name))
		r = -errno;
	if (r)
		(void)unlinkat(dir_fd, temporary, 0);
	return r;
}

/* The oldest report in a directory, and the number of reports. The report of this process is left out of both. */
struct oldest {
	unsigned n;
	char name[GP_CTL_NAME_MAX];
	struct statx_timestamp time;
};

static bool is_older(const struct statx_timestamp *a, const struct statx_timestamp *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* True if the name is that of an incomplete file of a process that has ended. */
static bool is_incomplete(const char *name)
{
	char final[GP_CTL_NAME_MAX + sizeof(NEW_SUFFIX)];
	size_t length = strlen(name), base = length - strlen(NEW_SUFFIX);
	uint64_t start_ticks;
	pid_t pid;

	if (length <= strlen(NEW_SUFFIX) || length >= sizeof(final) || strcmp(name + base, NEW_SUFFIX) != 0)
		return false;
	snprintf(final, sizeof(final), "%.*s", (int)base, name);
	return gp_oom_name_parse(final, &pid, &start_ticks) && kill(pid, 0) && errno == ESRCH;
}

static void note_entry(struct oldest *oldest, int dir_fd, const char *name, const char *own)
{
	uint64_t start_ticks;
	struct statx st;
	pid_t pid;

	if (is_incomplete(name))
		(void)unlinkat(dir_fd, name, 0);
	if (!gp_oom_name_parse(name, &pid, &start_ticks) || strcmp(name, own) == 0 ||
		statx(dir_fd, name, AT_SYMLINK_NOFOLLOW, STATX_MTIME, &st))
		return;
	if (!oldest->n++ || is_older(&st.stx_mtime, &oldest->time)) {
		strcpy(oldest->name, name);
		oldest->time = st.stx_mtime;
	}
}

/*
 * Removes the oldest report if the directory has no room for another. Returns true if one more has to be removed; false
 * if there is room now, or if the directory cannot be changed.
 */
static bool make_room(int dir_fd, const char *own)
{
	int list_fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = list_fd < 0 ? NULL : fdopendir(list_fd);
	struct oldest oldest = {0};
	const struct dirent *entry;

	if (!dir) {
		if (list_fd >= 0)
			close(list_fd);
		return false;
	}
	for (unsigned i = 0; i < ENTRIES_MAX && (entry = readdir(dir)); i++)
		note_entry(&oldest, dir_fd, entry->d_name, own);
	closedir(dir);
	return oldest.n >= GP_OOM_FILES_MAX && !unlinkat(dir_fd, oldest.name, 0) && oldest.n > GP_OOM_FILES_MAX;
}

/* Saves the report in the socket directory. */
static int save_in_socket_dir(const char *text, size_t length)
{
	const struct gp_ctl_dirs dirs = {
		.runtime_dir = gp_state.config.runtime_dir,
		.xdg_runtime_dir = gp_config_variable("XDG_RUNTIME_DIR"),
		.tmp_dir = gp_config_variable("TMPDIR"),
		.uid = geteuid(),
		.run_dir = gp_ctl_run_dir(GP_CTL_RUN_DIR, geteuid()),
	};
	char path[GP_CTL_PATH_MAX], name[GP_CTL_NAME_MAX], state;
	uint64_t start_ticks;
	int r = gp_ctl_process_stat(0, &start_ticks, &state), dir_fd;

	if (r)
		return r;
	gp_oom_name_format(name, getpid(), start_ticks);
	dir_fd = gp_ctl_dir_find(&dirs, path, sizeof(path));
	if (dir_fd < 0)
		return dir_fd;
	for (unsigned i = 0; i < GP_OOM_FILES_MAX && make_room(dir_fd, name); i++)
		;
	r = replace(dir_fd, name, text, length);
	close(dir_fd);
	return r;
}

static int save_named(const char *text, size_t length)
{
	char path[PATH_MAX];

	if (!gp_file_expand(path, sizeof(path), gp_state.config.oom_file))
		return -ENAMETOOLONG;
	return replace(AT_FDCWD, path, text, length);
}

/* Runs with cancellation disabled: a thread cancelled here would leave a descriptor open. */
static int save(const struct gp_oom *oom)
{
	struct gp_json json;
	const char *text;
	size_t length;
	int cancel_state, r;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	gp_json_init(&json, GP_OOM_FILE_MAX);
	r = gp_oom_write(&json, oom);
	if (!r)
		r = gp_json_finish(&json, &text, &length);
	if (!r)
		r = is_named() ? save_named(text, length) : save_in_socket_dir(text, length);
	gp_json_deinit(&json);
	pthread_setcancelstate(cancel_state, NULL);
	return r;
}

void gp_oom_save(const struct gp_oom *oom)
{
	char where[PATH_MAX];
	int r;

	if (strcmp(gp_state.config.oom_file, "off") == 0)
		return;
	r = save(oom);
	if (!r)
		return;
	if (is_named())
		gp_log(GP_LOG_WARN,
			"cannot save the out-of-memory report to %s (error %d): correct GPUPOOL_OOM_FILE; while this "
			"process runs, gpupool-stat oom %d shows the report",
			gp_oom_where(where, sizeof(where)), -r, (int)getpid());
	else
		gp_log(GP_LOG_INFO, "cannot save the out-of-memory report (error %d): check GPUPOOL_OOM_FILE", -r);
}
