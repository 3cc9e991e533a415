/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "group.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/compat.h"
#include "common/ctl_proto.h"
#include "common/job.h"
#include "shim/base/clock.h"
#include "shim/base/fork.h"
#include "shim/base/log.h"

#define MEMORY_DIR     "/dev/shm" /* where there is no GP_CTL_RUN_DIR: it does not depend on a job's environment */
#define CGROUP_FILE    "/proc/self/cgroup"
#define CGROUP_NS      "/proc/self/ns/cgroup"
#define UNKNOWN_DEVICE 1 /* the key of all devices without a UUID, whose sum then has the limit */
#define FNV_BASIS      UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME      UINT64_C(0x100000001b3)
#define JOIN_AGAIN_NS  UINT64_C(1000000000)

struct share {
	struct gp_budget_group hook; /* must be first */
	const struct gp_device *device;
	uint64_t limit_bytes;
	_Atomic int row; /* -1: the process does not take part on the device yet */
};

static struct share shares[GP_DEVICES_MAX];
static struct gp_group group;
static char kind[8], name[GP_GROUP_NAME_MAX];

static struct gp_mutex join_lock = GP_MUTEX_INIT(GP_RANK_LEAF); /* guards the next ones */
static uint64_t tried_ns;
static char directory[GP_CTL_PATH_MAX];

static _Atomic(const char *) problem; /* why the process cannot join */

static uint64_t hash(uint64_t so_far, const void *bytes, size_t n)
{
	const unsigned char *at = bytes;

	for (size_t i = 0; i < n; i++)
		so_far = (so_far ^ at[i]) * FNV_PRIME;
	return so_far;
}

static uint64_t key_of(const struct gp_device *device)
{
	uint64_t key = hash(FNV_BASIS, device->uuid, sizeof(device->uuid));

	return device->has_uuid && key > UNKNOWN_DEVICE ? key : UNKNOWN_DEVICE;
}

/* The cgroup of this process. Its path is relative to the cgroup namespace, so the namespace counts, too. */
static void name_by_cgroup(void)
{
	int fd = open(CGROUP_FILE, O_RDONLY | O_CLOEXEC);
	uint64_t sum = FNV_BASIS;
	char text[4096];
	struct statx st;
	ssize_t n;

	while (fd >= 0 && (n = read(fd, text, sizeof(text))) > 0)
		sum = hash(sum, text, (size_t)n);
	if (fd >= 0)
		close(fd);
	if (!statx(AT_FDCWD, CGROUP_NS, 0, STATX_INO, &st))
		sum = hash(sum, &st.stx_ino, sizeof(st.stx_ino));
	strcpy(kind, "cgroup");
	snprintf(name, sizeof(name), "%016" PRIx64, sum);
}

static const char *find_variable(const void *unused, const char *variable)
{
	return gp_config_variable(variable);
}

static void find_name(void)
{
	const char *job = gp_job_value("job", find_variable, NULL);

	if (*gp_state.config.group.name) {
		strcpy(kind, "name");
		strcpy(name, gp_state.config.group.name);
	} else if (job) {
		strcpy(kind, "job");
		snprintf(name, sizeof(name), "%s", job);
	} else {
		name_by_cgroup();
	}
}

/*
 * Members have to agree on the directory, so it depends on nothing but GPUPOOL_RUNTIME_DIR and the machine, and there
 * is no second choice.
 */
static int open_directory(void)
{
	struct gp_ctl_dirs dirs = {.runtime_dir = gp_state.config.runtime_dir, .uid = geteuid()};

	if (!*gp_state.config.runtime_dir) {
		dirs.run_dir = gp_ctl_run_dir(GP_CTL_RUN_DIR, geteuid());
		dirs.tmp_dir = MEMORY_DIR;
	}
	for (unsigned i = 0;; i++) {
		int r = gp_ctl_dir(&dirs, i, directory, sizeof(directory));

		if (!r)
			return gp_ctl_dir_open(directory, geteuid(), true);
		if (r == -ERANGE)
			return -ENOENT;
	}
}

static const char *problem_text(int error)
{
	switch (error) {
	case -EPERM:
	case -ELOOP:
	case -ENOTDIR:
		return "its file, or the directory of the file, is not one of this user alone";
	case -EPROTO:
		return "its file is of another version of gpupool, or damaged";
	case -EOPNOTSUPP:
		return "its directory is not in memory (tmpfs)";
	case -ENOSPC:
		return "it is full: it has 256 members on 32 devices at most, and its directory needs 250 KiB";
	case -EBUSY:
		return "another process keeps its file locked";
	default:
		return "its file cannot be used";
	}
}

static int join_locked(void)
{
	char file[GP_GROUP_FILE_MAX];
	int dir_fd = open_directory(), r = dir_fd;

	gp_group_file_format(file, kind, name);
	snprintf(group.path, sizeof(group.path), "%s/%s", directory, file);
	if (dir_fd >= 0) {
		r = gp_group_join(&group, dir_fd, file);
		if (!r)
			gp_group_sweep(dir_fd, file);
		close(dir_fd);
	}
	atomic_store(&problem, r ? problem_text(r) : NULL);
	return r;
}

/* Only the first failure, and a join, are logged. */
static void log_join(int r)
{
	if (r)
		gp_log(GP_LOG_ERROR,
			"GPUPOOL_LIMIT_GROUP: cannot join the group %s '%s' in %s: %s (error %d); allocations fail "
			"until this is corrected",
			kind, name, directory, problem_text(r), -r);
	else
		gp_log(GP_LOG_INFO, "joined the group %s '%s' in %s", kind, name, directory);
}

/* A failed attempt is repeated after a second at the earliest. */
static bool ensure_joined(void)
{
	bool is_tried = false, is_first;
	int r = 0, cancel_state, saved_errno = errno;

	if (atomic_load(&group.page))
		return true;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	gp_mutex_lock(&join_lock);
	is_first = !tried_ns;
	if (!atomic_load(&group.page) && (is_first || gp_clock_now_ns(NULL) - tried_ns > JOIN_AGAIN_NS)) {
		is_tried = true;
		r = join_locked();
		tried_ns = gp_clock_now_ns(NULL);
	}
	gp_mutex_unlock(&join_lock);
	if (is_tried && (is_first || !r))
		log_join(r);
	pthread_setcancelstate(cancel_state, NULL);
	errno = saved_errno;
	return atomic_load(&group.page) != NULL;
}

/* Members may have different limits by mistake; the lowest holds. */
static void log_device(const struct share *share, unsigned row)
{
	struct gp_group_view view;

	gp_group_view(&group, row, &view);
	if (view.limit_bytes < share->limit_bytes)
		gp_log(GP_LOG_WARN,
			"GPUPOOL_LIMIT_GROUP: another member of the group %s '%s' has a lower limit on device %d, "
			"which holds: %" PRIu64 " instead of %" PRIu64 " bytes",
			kind, name, share->device->index, view.limit_bytes, share->limit_bytes);
}

/* Returns the row of the device, or -1. */
static int row_of(struct share *share)
{
	int row = atomic_load(&share->row);
	bool is_new = false;

	if (row >= 0 || !share->limit_bytes || !ensure_joined())
		return row;
	gp_mutex_lock(&join_lock);
	row = atomic_load(&share->row);
	if (row < 0) {
		row = gp_group_use_device(&group, key_of(share->device), share->limit_bytes);
		is_new = row >= 0;
		if (is_new)
			atomic_store(&share->row, row);
		else
			atomic_store(&problem, problem_text(row));
	}
	gp_mutex_unlock(&join_lock);
	if (is_new)
		log_device(share, (unsigned)row);
	return row;
}

static bool charge(struct gp_budget_group *hook, uint64_t bytes)
{
	struct share *share = (struct share *)hook;
	int row = row_of(share);

	return row >= 0 && gp_group_charge(&group, (unsigned)row, bytes);
}

static void uncharge(struct gp_budget_group *hook, uint64_t bytes)
{
	int row = atomic_load(&((struct share *)hook)->row);

	if (row >= 0)
		gp_group_uncharge(&group, (unsigned)row, bytes);
}

static uint64_t left(struct gp_budget_group *hook)
{
	int row = row_of((struct share *)hook);

	return row < 0 ? 0 : gp_group_left(&group, (unsigned)row);
}

void gp_group_attach(struct gp_device *device)
{
	const struct gp_config_group *config = &gp_state.config.group;
	struct share *share = &shares[device->index];
	uint64_t limit =
		config->is_on ? gp_limit_bytes(gp_limit_list_find(&config->limit, device->index), device->total_bytes)
			      : GP_NO_LIMIT;

	if (limit == GP_NO_LIMIT)
		return;
	*share = (struct share){.hook = {charge, uncharge, left}, .device = device, .limit_bytes = limit, .row = -1};
	device->budget.group = &share->hook;
}

/* A child that uses CUDA itself joins by itself. */
static void forget_in_child(void)
{
	gp_mutex_init(&join_lock, GP_RANK_LEAF);
	gp_group_forget(&group);
	tried_ns = 0;
	for (int i = 0; i < GP_DEVICES_MAX; i++)
		atomic_store(&shares[i].row, -1);
}

void gp_groups_start(void)
{
	static const struct gp_fork_child child = {.fn = forget_in_child};
	int cancel_state;

	gp_fork_on_child(&child);
	gp_mutex_init(&group.lock, GP_RANK_LEAF);
	if (!gp_state.config.group.is_on)
		return;
	/* The caller holds a lock. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	find_name();
	pthread_setcancelstate(cancel_state, NULL);
}

void gp_group_report(const struct gp_device *device, struct gp_group_report *ret)
{
	const struct share *share = device ? &shares[device->index] : NULL;
	int row;

	*ret = (struct gp_group_report){.is_on = share && device->budget.group};
	if (!ret->is_on)
		return;
	strcpy(ret->kind, kind);
	strcpy(ret->name, name);
	ret->problem = atomic_load(&problem);
	row = atomic_load(&share->row);
	if (row >= 0)
		gp_group_view(&group, (unsigned)row, &ret->view);
	else
		ret->view.limit_bytes = share->limit_bytes;
}

uint64_t gp_group_limit(const struct gp_device *device)
{
	return device->budget.group ? shares[device->index].limit_bytes : GP_NO_LIMIT;
}

bool gp_group_is_shared_with(pid_t pid, uint64_t start_ticks)
{
	return gp_group_has(&group, pid, start_ticks);
}

void gp_group_json(struct gp_json *out, const struct gp_group_report *report)
{
	const struct gp_group_view *view = &report->view;

	if (!report->is_on) {
		gp_json_null(out, "group");
		return;
	}
	gp_json_object_begin(out, "group");
	gp_json_string(out, "kind", report->kind);
	gp_json_string(out, "name", report->name);
	gp_json_string(out, "problem", report->problem);
	gp_json_u64(out, "limit_bytes", view->limit_bytes);
	gp_json_u64(out, "reserved_bytes", view->reserved_bytes);
	gp_json_u64(out, "n_members", view->n_members);
	gp_json_array_begin(out, "members");
	for (unsigned i = 0; i < gp_min(view->n_members, (unsigned)GP_GROUP_SHOWN); i++) {
		gp_json_object_begin(out, NULL);
		gp_json_i64(out, "pid", view->holders[i].pid);
		gp_json_string(out, "command", view->holders[i].command);
		gp_json_u64(out, "bytes", view->holders[i].bytes);
		gp_json_object_end(out);
	}
	gp_json_array_end(out);
	gp_json_object_end(out);
}
