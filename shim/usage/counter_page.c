/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * `now` is what the page holds. It is changed under the lock, and each change is written to the page as a whole. So the
 * counts of a process go on without a page, and are on the page as soon as there is one.
 *
 * The counters of a pool end with its context, so they are kept when a context ends. An update adds them to those of
 * living contexts. If a context ends meanwhile, the update is dropped, so nothing is counted twice. Counters on the
 * page never fall.
 *
 * exit() may be called anywhere, even in a signal handler, while a thread that never runs again holds a lock. So the
 * update at the exit waits for no lock: if one stays held, the counters are those of the last tick.
 *
 * Threads of the program write to the mapping. A write must not wait, and must not fail, since that would kill the
 * program with SIGBUS. So the page is written in full before it is mapped, and it is mapped only where files are in
 * memory. On a disk, a write after the kernel has written the file back may wait for the disk, and it may fail after an
 * error of the disk.
 */

#include "counter_page.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "common/compat.h"
#include "common/file.h"
#include "common/job.h"
#include "shim/backend/sleep.h"
#include "shim/base/fork.h"
#include "shim/base/log.h"
#include "shim/context/context.h"

#define NEW_PREFIX "."
#define NEW_SUFFIX ".new"

enum {
	ENTRIES_MAX = 8192, /* entries of a directory that a sweep reads */
	KEPT_IF_MANY_S = 60,
	EXIT_ATTEMPTS = 4,
};

_Static_assert((int)GP_PAGE_PEAKS == (int)GP_DEVICE_PEAKS, "a page has room for every peak");
_Static_assert(offsetof(struct gp_page_header, pool) % sizeof(uint64_t) == 0, "the pool type is in an aligned word");

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF); /* guards the next ones */
static struct gp_page_figures now;
static struct gp_page_figures ended; /* the counters of contexts that have ended, and of earlier programs */
static struct gp_page *_Atomic page; /* NULL: none; set last */
static _Atomic uint64_t n_ended;     /* changes under the lock whenever `ended` does */
static pid_t owner;
static bool is_swept; /* only for the server's thread */

static char directory[GP_CTL_PATH_MAX];
static char own_name[GP_CTL_NAME_MAX];

/* Returns the entry of a device, and makes it if there is room; else NULL. */
static struct gp_page_device *find_device(struct gp_page_figures *figures, int index)
{
	const struct gp_device *device = gp_device_if_used(index);
	struct gp_page_device *entry;

	for (uint64_t i = 0; i < figures->n_devices; i++)
		if (figures->devices[i].index == (uint64_t)index)
			return &figures->devices[i];
	if (figures->n_devices == GP_PAGE_DEVICES)
		return NULL;
	entry = &figures->devices[figures->n_devices++];
	*entry = (struct gp_page_device){.index = (uint64_t)index, .memory.limit_bytes = UINT64_MAX};
	if (device && device->has_uuid) {
		entry->has_uuid = 1;
		memcpy(entry->uuid, device->uuid, sizeof(entry->uuid));
	}
	return entry;
}

static struct gp_page_memory *find_memory(struct gp_page_figures *figures, int device)
{
	struct gp_page_device *entry = device < 0 ? NULL : find_device(figures, device);

	if (device < 0)
		return &figures->pinned;
	return entry ? &entry->memory : NULL;
}

/* The pool type is known with the first pool. It is stored as one word, so that no reader gets half of it. */
static void write_pool(struct gp_page_header *header)
{
	char word[sizeof(uint64_t)] = "";

	snprintf(word, sizeof(word), "%s", gp_kind_name(gp_device_first_kind()));
	if (strcmp(header->pool, word) != 0)
		memcpy(header->pool, word, sizeof(word));
}

/* Writes `now` to the copy that no reader uses, then makes it the newest. */
static void publish_locked(void)
{
	struct gp_page *to = page;
	uint64_t count;

	now.written_s = (uint64_t)time(NULL);
	if (!to || owner != getpid())
		return;
	write_pool(&to->header);
	count = atomic_load_explicit(&to->count, memory_order_relaxed) + 1;
	memcpy(&to->copies[count % 2], &now, offsetof(struct gp_page_figures, devices[now.n_devices]));
	atomic_store_explicit(&to->count, count, memory_order_release);
}

static void set_peak(uint64_t *peak, uint64_t value)
{
	*peak = gp_max(*peak, value);
}

/* Its peak is on the page already. */
static void note_device(int device)
{
	gp_mutex_lock(&lock);
	if (find_device(&now, device))
		publish_locked();
	gp_mutex_unlock(&lock);
}

void gp_counter_page_note_oom(int device, uint64_t bytes)
{
	struct gp_page_memory *memory;

	gp_mutex_lock(&lock);
	memory = find_memory(&now, device);
	if (memory) {
		memory->ooms++;
		now.oom_s = (uint64_t)time(NULL);
		now.oom_bytes = bytes;
		now.oom_device = (uint64_t)(device + 1);
		publish_locked();
	}
	gp_mutex_unlock(&lock);
}

struct sum {
	struct gp_page_figures *figures;
	struct gp_page_memory *memory;
};

static void add_stats(struct gp_page_memory *memory, const struct gp_stats *stats)
{
#define PAGE_STAT(member, kind) memory->member += stats->member;
#include "common/counter_page.def"
}

static void add_pool(void *arg, struct gp_pool *pool)
{
	struct gp_page_memory *memory = ((struct sum *)arg)->memory;
	struct gp_stats stats;

	if (!memory)
		return;
	gp_pool_stats(pool, &stats);
	add_stats(memory, &stats);
}

static bool try_add_pool(void *arg, struct gp_pool *pool, int device)
{
	struct gp_page_memory *memory = find_memory(arg, device);
	struct gp_stats stats;

	if (!gp_pool_try_stats(pool, &stats))
		return false;
	if (memory)
		add_stats(memory, &stats);
	return true;
}

static void add_context(struct gp_page_figures *figures, struct gp_context *context)
{
	struct sum sum = {figures, find_memory(figures, context->device->index)};

	gp_context_each_pool(context, add_pool, &sum);
	sum.memory = &figures->pinned;
	gp_context_each_pinned(context, add_pool, &sum);
}

static void add_live(void *arg, struct gp_context *context)
{
	if (!gp_context_is(context, GP_CONTEXT_DEAD))
		add_context(arg, context);
}

static bool is_counter(const char *kind)
{
	return *kind == 'C';
}

static bool is_gauge(const char *kind)
{
	return *kind == 'G';
}

/* Adds counters, and raises peaks. */
static void keep_counters(struct gp_page_memory *kept, const struct gp_page_memory *memory)
{
#define PAGE_STAT(member, kind)                 \
	if (is_counter(#kind))                  \
		kept->member += memory->member; \
	else if (!is_gauge(#kind))              \
		set_peak(&kept->member, memory->member);
#include "common/counter_page.def"
}

static void keep_ended_locked(const struct gp_page_figures *figures)
{
	n_ended++;
	keep_counters(&ended.pinned, &figures->pinned);
	for (uint64_t i = 0; i < figures->n_devices; i++) {
		struct gp_page_memory *kept = find_memory(&ended, (int)figures->devices[i].index);

		if (kept)
			keep_counters(kept, &figures->devices[i].memory);
	}
}

static void keep_ended(CUcontext handle, struct gp_context *context)
{
	struct gp_page_figures figures = {0};

	if (!context)
		return;
	add_context(&figures, context);
	gp_mutex_lock(&lock);
	keep_ended_locked(&figures);
	gp_mutex_unlock(&lock);
}

/* Gauges are those of now. Counters and peaks include what has ended, and never fall. */
static void merge(struct gp_page_memory *to, const struct gp_page_memory *live, const struct gp_page_memory *past)
{
#define PAGE_STAT(member, kind)                                     \
	if (is_gauge(#kind))                                        \
		to->member = live->member;                          \
	else if (is_counter(#kind))                                 \
		set_peak(&to->member, live->member + past->member); \
	else                                                        \
		set_peak(&to->member, gp_max(live->member, past->member));
#include "common/counter_page.def"
}

static void merge_device_locked(int index, struct gp_page_figures *live)
{
	const struct gp_device *device = gp_device_if_used(index);
	struct gp_page_memory *to = find_memory(&now, index), *from = find_memory(live, index);
	struct gp_page_memory *past = find_memory(&ended, index);

	if (!to || !from || !past)
		return;
	merge(to, from, past);
	if (!device)
		return;
	to->unpooled_bytes = gp_device_unpooled_bytes(device);
	to->limit_bytes = atomic_load(&device->budget.limit_bytes);
	to->yields = atomic_load(&device->n_yields);
	to->yielded_bytes = atomic_load(&device->yielded_bytes);
}

/* Does nothing if a context has ended meanwhile, whose counters may be in both sums. */
static void publish_live_locked(struct gp_page_figures *live, uint64_t ended_before)
{
	if (n_ended != ended_before)
		return;
	for (int i = 0; i < GP_DEVICES_MAX; i++)
		if (gp_device_if_used(i))
			merge_device_locked(i, live);
	merge(&now.pinned, &live->pinned, &ended.pinned);
	now.pinned.limit_bytes = atomic_load(&gp_state.pinned_budget.limit_bytes);
	publish_locked();
}

/* Not for the exit, since it takes locks. */
static void note_asleep(void)
{
	uint64_t bytes[GP_DEVICES_MAX];

	for (int i = 0; i < GP_DEVICES_MAX; i++)
		bytes[i] = gp_device_if_used(i) ? gp_sleep_bytes_of(i) : 0;
	gp_mutex_lock(&lock);
	for (uint64_t i = 0; i < now.n_devices; i++)
		now.devices[i].memory.asleep_bytes = bytes[now.devices[i].index];
	gp_mutex_unlock(&lock);
}

static void update(void)
{
	struct gp_page_figures live = {0};
	uint64_t ended_before = n_ended;

	gp_context_each(add_live, &live);
	note_asleep();
	gp_mutex_lock(&lock);
	publish_live_locked(&live, ended_before);
	gp_mutex_unlock(&lock);
}

/* Returns false if a lock is held. */
static bool try_update(struct gp_page_figures *live)
{
	uint64_t ended_before = n_ended;

	*live = (struct gp_page_figures){0};
	if (!gp_context_try_each_pool(try_add_pool, live) || !gp_mutex_try(&lock))
		return false;
	publish_live_locked(live, ended_before);
	gp_mutex_unlock(&lock);
	return true;
}

static void end_at_exit(void)
{
	static struct gp_page_figures live; /* larger than the stack of some signal handlers */
	int saved_errno = errno;

	if (page && owner == getpid())
		for (int n = 0; n < EXIT_ATTEMPTS && !try_update(&live); n++)
			gp_yield(0);
	errno = saved_errno;
}

/* A child that uses CUDA itself gets a page of its own. */
static void forget_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
	if (page)
		munmap(page, sizeof(*page));
	page = NULL;
	now = ended = (struct gp_page_figures){0};
	n_ended = 0;
	directory[0] = '\0';
	is_swept = false;
}

void gp_counter_page_set_up(void)
{
	static struct gp_context_watcher watcher = {.ended = keep_ended};
	static struct gp_fork_child child = {.fn = forget_in_child};

	gp_fork_on_child(&child);
	gp_context_watch(&watcher);
	gp_devices_on_first_growth(note_device);
}

/* Before Linux 3.12 the kernel does not tell this by a descriptor that only names the directory. */
static int look_at_filesystem(int dir_fd, struct statfs *ret_fs)
{
	int fd, r = fstatfs(dir_fd, ret_fs);

	if (!r || errno != EBADF)
		return r;
	fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	r = fstatfs(fd, ret_fs);
	close(fd);
	return r;
}

/* True if files in the directory are in memory. */
static bool is_in_memory(int dir_fd)
{
	struct statfs fs;

	return !look_at_filesystem(dir_fd, &fs) &&
	       ((unsigned)fs.f_type == TMPFS_MAGIC || (unsigned)fs.f_type == RAMFS_MAGIC);
}

static void set_text(char text[static GP_PAGE_TEXT], const char *value)
{
	snprintf(text, GP_PAGE_TEXT, "%s", value ? value : "");
}

static const char *find_variable(const void *unused, const char *name)
{
	return gp_config_variable(name);
}

static void fill_header(struct gp_page_header *header, uint64_t start_ticks)
{
	*header = (struct gp_page_header){
		.magic = GP_PAGE_MAGIC,
		.version = GP_PAGE_VERSION,
		.bytes = sizeof(struct gp_page),
		.pid = (uint64_t)getpid(),
		.start_ticks = start_ticks,
		.started_s = (uint64_t)time(NULL),
	};
	set_text(header->gpupool_version, GPUPOOL_VERSION);
	set_text(header->pool, gp_kind_name(gp_state_kind()));
	gp_file_read_command(header->command, sizeof(header->command));
	for (int i = 0; i < GP_PAGE_LABELS && gp_job_labels[i]; i++)
		set_text(header->labels[i], gp_job_value(gp_job_labels[i], find_variable, NULL));
}

/* Continues the counters of the program that this process ran before an exec. */
static void carry_locked(const struct gp_page_copy *old)
{
	for (uint64_t i = 0; i < old->figures.n_devices; i++) {
		const struct gp_page_device *from = &old->figures.devices[i];
		struct gp_page_memory *to = find_memory(&now, (int)from->index);

		if (!to)
			continue;
		to->ooms += from->memory.ooms;
		keep_counters(to, &from->memory);
	}
	now.pinned.ooms += old->figures.pinned.ooms;
	keep_counters(&now.pinned, &old->figures.pinned);
	if (!now.oom_s) {
		now.oom_s = old->figures.oom_s;
		now.oom_bytes = old->figures.oom_bytes;
		now.oom_device = old->figures.oom_device;
	}
	keep_ended_locked(&old->figures);
}

/* Creates the file under a temporary name, in full. Returns the mapping, or NULL with the error. */
static struct gp_page *create(int dir_fd, const char *temporary, uint64_t start_ticks, int *ret_error)
{
	static struct gp_page empty; /* larger than the stack of some threads */
	struct gp_page *mapped = NULL;
	int fd;

	if (!is_in_memory(dir_fd)) {
		*ret_error = -EOPNOTSUPP;
		return NULL;
	}
	fill_header(&empty.header, start_ticks);
	(void)unlinkat(dir_fd, temporary, 0);
	fd = openat(dir_fd, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
	if (fd < 0) {
		*ret_error = -errno;
		return NULL;
	}
	*ret_error = gp_file_write(fd, &empty, sizeof(empty));
	if (!*ret_error) {
		mapped = mmap(NULL, sizeof(*mapped), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		*ret_error = mapped == MAP_FAILED ? -errno : 0;
	}
	close(fd);
	if (!*ret_error)
		return mapped;
	(void)unlinkat(dir_fd, temporary, 0);
	return NULL;
}

/* The file gets its name only with the first figures on it. */
static int publish_file(int dir_fd, uint64_t start_ticks)
{
	char temporary[GP_CTL_NAME_MAX + sizeof(NEW_PREFIX NEW_SUFFIX)];
	struct gp_page_copy old;
	struct gp_page *mapped;
	int error;

	gp_socket_name_format(own_name, getpid(), start_ticks, GP_PAGE_SUFFIX);
	snprintf(temporary, sizeof(temporary), NEW_PREFIX "%s" NEW_SUFFIX, own_name);
	mapped = create(dir_fd, temporary, start_ticks, &error);
	if (!mapped)
		return error;
	gp_mutex_lock(&lock);
	if (!gp_page_read(dir_fd, own_name, geteuid(), &old) && old.header.start_ticks == start_ticks) {
		carry_locked(&old);
		for (int i = 0; i < GP_PAGE_PEAKS; i++)
			atomic_store(&mapped->peaks[i], old.peaks[i]);
	}
	owner = getpid();
	now.written_s = (uint64_t)time(NULL);
	mapped->copies[0] = now;
	error = renameat(dir_fd, temporary, dir_fd, own_name) ? -errno : 0;
	if (!error) {
		page = mapped;
		gp_devices_move_peaks(mapped->peaks);
	}
	gp_mutex_unlock(&lock);
	if (!error)
		return 0;
	munmap(mapped, sizeof(*mapped));
	(void)unlinkat(dir_fd, temporary, 0);
	return error;
}

void gp_counter_page_start(const char *socket_path)
{
	static bool is_registered; /* a forked child keeps the handlers of its parent */
	const char *end = strrchr(socket_path, '/');
	uint64_t start_ticks;
	int dir_fd, error;
	pid_t pid;

	if (!end || (size_t)(end - socket_path) >= sizeof(directory) || !gp_ctl_name_parse(end + 1, &pid, &start_ticks))
		return; /* no socket, or one without a file */
	snprintf(directory, sizeof(directory), "%.*s", (int)(end - socket_path), socket_path);
	dir_fd = gp_ctl_dir_open(directory, geteuid(), false);
	error = dir_fd < 0 ? dir_fd : publish_file(dir_fd, start_ticks);
	if (dir_fd >= 0)
		close(dir_fd);
	if (error)
		gp_log(GP_LOG_INFO, "no counter page in %s (error %d): the counters end with this process", directory,
			-error);
	else if (!is_registered)
		is_registered = atexit(end_at_exit) == 0;
}

/* True for a page of a process that runs: here, or in another pid namespace, where its socket shows it. */
static bool is_running(int dir_fd, pid_t pid, uint64_t start_ticks)
{
	char socket[GP_CTL_NAME_MAX], state;
	uint64_t found;
	int fd;

	if (!gp_ctl_process_stat(pid, &found, &state) && found == start_ticks)
		return true;
	gp_ctl_name_format(socket, pid, start_ticks);
	fd = gp_ctl_connect(dir_fd, socket);
	if (fd >= 0)
		close(fd);
	return fd != -ENOENT && fd != -ECONNREFUSED;
}

/*
 * Returns true for a page of an ended process that was last written longer ago than that. Also for the unfinished page
 * of a process that was killed at its start.
 */
static bool is_old(int dir_fd, const char *name, uint64_t kept_s)
{
	uint64_t start_ticks, time_s = (uint64_t)time(NULL);
	struct gp_page_copy copy;
	char final[GP_CTL_NAME_MAX];
	size_t length = strlen(name), extra = strlen(NEW_PREFIX NEW_SUFFIX);
	pid_t pid;

	if (*name == '.' && length > extra && length - extra < sizeof(final) &&
		strcmp(name + length - strlen(NEW_SUFFIX), NEW_SUFFIX) == 0) {
		snprintf(final, sizeof(final), "%.*s", (int)(length - extra), name + strlen(NEW_PREFIX));
		return gp_page_name_parse(final, &pid, &start_ticks) && !is_running(dir_fd, pid, start_ticks);
	}
	if (!gp_page_name_parse(name, &pid, &start_ticks) || strcmp(name, own_name) == 0)
		return false;
	if (!gp_page_read(dir_fd, name, geteuid(), &copy) && time_s - copy.figures.written_s <= kept_s)
		return false;
	return !is_running(dir_fd, pid, start_ticks);
}

static unsigned count_pages(DIR *dir)
{
	const struct dirent *entry;
	uint64_t start_ticks;
	unsigned n = 0;
	pid_t pid;

	for (int i = 0; i < ENTRIES_MAX && (entry = readdir(dir)); i++)
		n += gp_page_name_parse(entry->d_name, &pid, &start_ticks);
	rewinddir(dir);
	return n;
}

static void sweep(void)
{
	int dir_fd = *directory ? gp_ctl_dir_open(directory, geteuid(), false) : -ENOENT;
	int list_fd = dir_fd < 0 ? -1 : openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = list_fd < 0 ? NULL : fdopendir(list_fd);
	const struct dirent *entry;

	if (dir) {
		uint64_t kept_s = count_pages(dir) > GP_PAGE_FILES_MAX ? KEPT_IF_MANY_S : GP_PAGE_KEPT_S;

		for (int i = 0; i < ENTRIES_MAX && (entry = readdir(dir)); i++)
			if (is_old(dir_fd, entry->d_name, kept_s))
				(void)unlinkat(dir_fd, entry->d_name, 0);
		closedir(dir);
	} else if (list_fd >= 0) {
		close(list_fd);
	}
	if (dir_fd >= 0)
		close(dir_fd);
}

void gp_counter_page_tick(void)
{
	if (!page)
		return;
	if (!is_swept)
		sweep();
	is_swept = true;
	update();
}
