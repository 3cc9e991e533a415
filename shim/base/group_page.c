/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Record locks (fcntl): byte 0 is held while a member joins, or while the slots of ended members are freed. Byte 1 + i
 * is held by the member of slot i. They are locks of the process, not of the open file (OFD), because a forked child
 * would inherit the latter. Closing any descriptor of the file drops them, so gpupool opens it once and leaves it open.
 * A program that closes all its descriptors drops them, too. Then the mapping, which it keeps, shows that it lives, and
 * the member opens the file again before it uses the descriptor, whose number may be that of another file.
 */

#include "group_page.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "common/compat.h"
#include "common/file.h"

#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

enum {
	LOCK_WAIT_MS = 2000,
	REAP_WAIT_MS = 200,
	FD_MIN = 56,           /* the last numbers of the smallest table of descriptors, which programs hardly use */
	OPEN_ATTEMPTS = 8,     /* the file may be removed between its opening and its locking */
	ASK_ATTEMPTS = 64,     /* while other members reserve at the same time */
	ASK_SPINS = 1000,      /* while later members take back what they asked for */
	SWEPT_MAX = 4096,      /* names that a sweep reads */
	STAT_NUM_THREADS = 18, /* fields of /proc/PID/stat after the name, from 1 */
	STAT_START_TIME = 20,
};

void gp_group_file_format(char name[static GP_GROUP_FILE_MAX], const char *kind, const char *text)
{
	size_t length = (size_t)snprintf(name, GP_GROUP_FILE_MAX - sizeof(GP_GROUP_SUFFIX), "%s-%s", kind, text);

	length = gp_min(length, GP_GROUP_FILE_MAX - sizeof(GP_GROUP_SUFFIX) - 1);
	for (size_t i = 0; i < length; i++)
		if (!strchr(NAME_CHARACTERS, name[i]))
			name[i] = '_';
	strcpy(name + length, GP_GROUP_SUFFIX);
}

/*
 * The system calls of a charge happen in the middle of an allocation, while the thread holds a lock. They must neither
 * be cancelled nor change errno.
 */
struct quiet {
	int cancel_state, saved_errno;
};

static struct quiet begin_quiet(void)
{
	struct quiet quiet = {.saved_errno = errno};

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &quiet.cancel_state);
	return quiet;
}

static void end_quiet(const struct quiet *quiet)
{
	pthread_setcancelstate(quiet->cancel_state, NULL);
	errno = quiet->saved_errno;
}

static int lock_byte(int fd, unsigned byte, short type, int command, short *ret_type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
	int r = fcntl(fd, command, &lock);

	if (ret_type)
		*ret_type = lock.l_type;
	return r ? -errno : 0;
}

/* Another process may be stopped while it holds the lock, so the wait is bounded. */
static int lock_file(int fd, int wait_ms)
{
	static const struct timespec millisecond = {.tv_nsec = 1000000};

	for (int n = 0;; n++) {
		int r = lock_byte(fd, 0, F_WRLCK, F_SETLK, NULL);

		if (!r || (r != -EAGAIN && r != -EACCES))
			return r;
		if (n == wait_ms)
			return -EBUSY;
		nanosleep(&millisecond, NULL);
	}
}

static void unlock_file(int fd)
{
	(void)lock_byte(fd, 0, F_UNLCK, F_SETLK, NULL);
}

static bool is_slot_locked(int fd, unsigned slot)
{
	short type = F_UNLCK;

	return !lock_byte(fd, 1 + slot, F_WRLCK, F_GETLK, &type) && type != F_UNLCK;
}

struct process {
	char state;
	uint64_t n_threads, start_ticks;
};

/* Reads /proc/PID/stat. Returns 0, or -errno: -ENOENT or -ESRCH if there is no such process. */
static int read_process(pid_t pid, struct process *ret)
{
	char path[32], text[1024], *at;
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[length > 0 ? length : 0] = '\0';
	at = strrchr(text, ')'); /* the name may hold any character */
	if (!at || at[1] != ' ')
		return -ESRCH;
	at += 2;
	*ret = (struct process){.state = *at};
	for (int field = 1; at && field <= STAT_START_TIME; field++) {
		if (field == STAT_NUM_THREADS)
			ret->n_threads = strtoull(at, NULL, 10);
		if (field == STAT_START_TIME)
			ret->start_ticks = strtoull(at, NULL, 10);
		at = strchr(at, ' ');
		at = at ? at + 1 : NULL;
	}
	return 0;
}

/* A file of lines, read without an allocation. */
struct reader {
	int fd;
	size_t at, length;
	char buffer[512];
};

/* Reads the next line, cut to size. Returns false at the end. */
static bool read_line(struct reader *reader, char *text, size_t size)
{
	size_t n = 0;

	for (;;) {
		char c;

		if (reader->at == reader->length) {
			ssize_t got = read(reader->fd, reader->buffer, sizeof(reader->buffer));

			if (got <= 0)
				return false;
			reader->at = 0;
			reader->length = (size_t)got;
		}
		c = reader->buffer[reader->at++];
		if (c == '\n')
			break;
		if (n + 1 < size)
			text[n++] = c;
	}
	text[n] = '\0';
	return true;
}

/* True if a line of /proc/PID/maps, "ADDRESSES RIGHTS OFFSET MAJOR:MINOR INODE ...", is of the group's file. */
static bool is_of_file(const struct gp_group *group, const char *line)
{
	char *at = (char *)(uintptr_t)line;

	for (int field = 0; field < 3; field++) {
		at = strchr(at, ' ');
		if (!at)
			return false;
		at++;
	}
	if (strtoull(at, &at, 16) != group->dev_major || *at++ != ':' || strtoull(at, &at, 16) != group->dev_minor)
		return false;
	return strtoull(at, NULL, 10) == group->inode;
}

/*
 * True if the process has mappings, and the file is not one of them: it runs another program now. A process that is
 * about to end has none.
 */
static bool has_left(const struct gp_group *group, pid_t pid)
{
	char path[32], line[128];
	bool is_any = false, is_found = false;
	struct reader reader = {.at = 0};

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	reader.fd = open(path, O_RDONLY | O_CLOEXEC);
	if (reader.fd < 0)
		return false;
	while (!is_found && read_line(&reader, line, sizeof(line))) {
		is_any = true;
		is_found = is_of_file(group, line);
	}
	close(reader.fd);
	return is_any && !is_found;
}

/* True if the member of a slot can hold no memory any more. Asks the kernel, not the member. */
static bool is_dead(const struct gp_group *group, unsigned slot)
{
	const struct gp_group_member *member = &group->page->members[slot];
	struct process process;
	int r;

	if (is_slot_locked(group->fd, slot))
		return false;
	if (!group->pid_namespace || member->pid_namespace != group->pid_namespace)
		return true;
	/* This process, before it ran the present program. */
	if ((pid_t)member->pid == getpid() && member->start_ticks == group->start_ticks)
		return slot != group->slot || !group->token;
	r = read_process((pid_t)member->pid, &process);
	if (r)
		return r == -ENOENT || r == -ESRCH;
	if (process.start_ticks != member->start_ticks)
		return true;
	/* The memory of the process goes with its last thread. */
	if (process.state == 'Z' || process.state == 'X')
		return process.n_threads <= 1;
	return has_left(group, (pid_t)member->pid);
}

static void clear_slot(struct gp_group_page *page, unsigned slot)
{
	for (unsigned i = 0; i < GP_GROUP_DEVICES; i++) {
		atomic_store(&page->rows[i].limit[slot], 0);
		atomic_store(&page->rows[i].asked[slot], 0);
		atomic_store(&page->rows[i].reserved[slot], 0);
	}
	atomic_store(&page->members[slot].token, 0);
}

static unsigned n_slots(const struct gp_group_page *page)
{
	return (unsigned)gp_min(atomic_load(&page->n_slots), (uint64_t)GP_GROUP_MEMBERS);
}

static bool is_slot_dead(const struct gp_group *group, unsigned slot)
{
	return atomic_load(&group->page->members[slot].token) && !(group->token && slot == group->slot) &&
	       is_dead(group, slot);
}

static bool reap_locked(const struct gp_group *group)
{
	bool is_any = false;

	for (unsigned i = 0; i < n_slots(group->page); i++)
		if (is_slot_dead(group, i)) {
			clear_slot(group->page, i);
			is_any = true;
		}
	return is_any;
}

static bool is_file(int fd, uint64_t inode, uint32_t dev_major, uint32_t dev_minor)
{
	struct statx st;

	return !statx(fd, "", AT_EMPTY_PATH, STATX_INO, &st) && st.stx_ino == inode && st.stx_dev_major == dev_major &&
	       st.stx_dev_minor == dev_minor;
}

/*
 * A number that programs do not expect to get. Must not be called while the file is locked. The program may close the
 * old number meanwhile, and get it for a file of its own, which stays open.
 */
static int move_up(int fd)
{
	struct statx st;
	int high;

	if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_INO, &st))
		return -1;
	high = fcntl(fd, F_DUPFD_CLOEXEC, FD_MIN);
	if (high < 0)
		return fd;
	if (is_file(fd, st.stx_ino, st.stx_dev_major, st.stx_dev_minor))
		close(fd);
	return high;
}

static bool is_own_file(const struct gp_group *group, int fd)
{
	return is_file(fd, group->inode, group->dev_major, group->dev_minor);
}

/* Opens the file again if the program has closed it. Returns false if that is not possible. */
static bool ensure_open(struct gp_group *group)
{
	int fd;

	if (is_own_file(group, group->fd))
		return true;
	fd = *group->path ? move_up(open(group->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK)) : -1;
	if (fd < 0)
		return false;
	if (!is_own_file(group, fd)) {
		close(fd);
		return false;
	}
	group->fd = fd;
	(void)lock_byte(fd, 1 + group->slot, F_WRLCK, F_SETLK, NULL);
	return true;
}

static bool reap_if_any(struct gp_group *group)
{
	bool is_any = false;

	if (!ensure_open(group))
		return false;
	for (unsigned i = 0; i < n_slots(group->page) && !is_any; i++)
		is_any = is_slot_dead(group, i);
	if (!is_any || lock_file(group->fd, REAP_WAIT_MS))
		return false;
	is_any = reap_locked(group);
	unlock_file(group->fd);
	return is_any;
}

/* Frees the slots of ended members. Returns true if there were any. */
static bool reap(struct gp_group *group)
{
	struct quiet quiet = begin_quiet();
	bool is_any = reap_if_any(group);

	end_quiet(&quiet);
	return is_any;
}

static bool is_in_memory(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) && ((unsigned)fs.f_type == TMPFS_MAGIC || (unsigned)fs.f_type == RAMFS_MAGIC);
}

/* Checks an open file that may be another user's, or anything. */
static int check_file(int fd, struct statx *st)
{
	if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, st))
		return -errno;
	if (!S_ISREG(st->stx_mode) || st->stx_uid != geteuid() || st->stx_mode & (S_IRWXG | S_IRWXO) ||
		st->stx_nlink > 1)
		return -EPERM;
	return is_in_memory(fd) ? 0 : -EOPNOTSUPP;
}

/*
 * Gives a new file its size: all of its memory is there from now on, so no write to the mapping can fail. A file whose
 * maker was killed here is as good as new.
 */
static int fill_file(int fd, const struct statx *st)
{
	int r;

	if (st->stx_size && st->stx_size != sizeof(struct gp_group_page))
		return -EPROTO;
	if (st->stx_size)
		return 0;
	r = -posix_fallocate(fd, 0, sizeof(struct gp_group_page));
	if (r)
		(void)!ftruncate(fd, 0);
	return r;
}

static int check_page(struct gp_group_page *page)
{
	uint64_t magic = atomic_load(&page->magic);

	if (!magic) {
		page->version = GP_GROUP_VERSION;
		page->bytes = sizeof(*page);
		atomic_store(&page->magic, GP_GROUP_MAGIC);
		return 0;
	}
	return magic == GP_GROUP_MAGIC && page->version == GP_GROUP_VERSION && page->bytes == sizeof(*page) ? 0
													    : -EPROTO;
}

/* Maps the locked file. */
static int map_file(struct gp_group *group, int fd, const struct statx *st)
{
	struct gp_group_page *page;
	int r = fill_file(fd, st);

	if (r)
		return r;
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	r = check_page(page);
	if (r) {
		munmap(page, sizeof(*page));
		return r;
	}
	group->fd = fd;
	group->dev_major = st->stx_dev_major;
	group->dev_minor = st->stx_dev_minor;
	group->inode = st->stx_ino;
	atomic_store(&group->page, page);
	return 0;
}

/* Opens and locks the file. It may have been removed meanwhile, as that of a group without members. */
static int open_file(int dir_fd, const char *name, struct statx *st)
{
	for (int n = 0; n < OPEN_ATTEMPTS; n++) {
		int fd = move_up(
			openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0600));
		struct statx found;
		int r = fd < 0 ? -errno : check_file(fd, st);

		if (!r)
			r = lock_file(fd, LOCK_WAIT_MS);
		if (!r)
			r = check_file(fd, st); /* its size may have changed */
		if (!r && !statx(dir_fd, name, AT_SYMLINK_NOFOLLOW, STATX_INO, &found) &&
			found.stx_ino == st->stx_ino && found.stx_dev_major == st->stx_dev_major &&
			found.stx_dev_minor == st->stx_dev_minor)
			return fd;
		if (fd >= 0)
			close(fd);
		if (r && !(r == -EPERM && !st->stx_nlink))
			return r;
	}
	return -EBUSY;
}

static int take_slot_locked(struct gp_group *group)
{
	struct gp_group_page *page = group->page;
	struct gp_group_member *member;
	unsigned slot = 0;

	/* A process that has lost its slot, and then opened the file again, holds the lock of the lost slot, too. */
	while (slot < GP_GROUP_MEMBERS &&
		(atomic_load(&page->members[slot].token) || lock_byte(group->fd, 1 + slot, F_WRLCK, F_SETLK, NULL)))
		slot++;
	if (slot == GP_GROUP_MEMBERS)
		return -ENOSPC;
	clear_slot(page, slot);
	member = &page->members[slot];
	member->pid = (uint64_t)getpid();
	member->start_ticks = group->start_ticks;
	member->pid_namespace = group->pid_namespace;
	gp_file_read_command(member->command, sizeof(member->command));
	gp_spin_lock(&group->held_lock);
	for (unsigned i = 0; i < GP_GROUP_DEVICES; i++) {
		atomic_store(&page->rows[i].limit[slot], atomic_load(&group->limits[i]));
		atomic_store(&page->rows[i].reserved[slot], atomic_load(&group->held[i]));
	}
	group->slot = slot;
	group->token = (uint64_t)getpid() << 32 | (uint32_t)(atomic_fetch_add(&page->n_joined, 1) + 1);
	if (slot >= n_slots(page))
		atomic_store(&page->n_slots, slot + 1);
	atomic_store(&member->token, group->token);
	gp_spin_unlock(&group->held_lock);
	return 0;
}

static uint64_t own_pid_namespace(void)
{
	struct statx st;

	return statx(AT_FDCWD, "/proc/self/ns/pid", 0, STATX_INO, &st) ? 0 : st.stx_ino;
}

int gp_group_join(struct gp_group *group, int dir_fd, const char *name)
{
	struct process self;
	struct statx st;
	int fd, r = read_process(getpid(), &self);

	if (r)
		return r;
	group->start_ticks = self.start_ticks;
	group->pid_namespace = own_pid_namespace();
	group->owner = getpid();
	fd = open_file(dir_fd, name, &st);
	if (fd < 0)
		return fd;
	r = map_file(group, fd, &st);
	if (r) {
		close(fd);
		return r;
	}
	(void)reap_locked(group);
	r = take_slot_locked(group);
	unlock_file(fd);
	if (!r)
		return 0;
	munmap(group->page, sizeof(*group->page));
	atomic_store(&group->page, NULL);
	close(fd);
	return r;
}

int gp_group_use_device(struct gp_group *group, uint64_t key, uint64_t limit_bytes)
{
	struct gp_group_page *page = group->page;

	for (int i = 0; i < GP_GROUP_DEVICES; i++) {
		uint64_t found = 0;

		if (!atomic_compare_exchange_strong(&page->rows[i].key, &found, key) && found != key)
			continue;
		atomic_store(&group->limits[i], limit_bytes);
		atomic_store(&page->rows[i].limit[group->slot], limit_bytes);
		return i;
	}
	return -ENOSPC;
}

static bool is_member(const struct gp_group *group)
{
	struct gp_group_page *page = atomic_load(&group->page);

	return page && group->owner == getpid() && atomic_load(&page->members[group->slot].token) == group->token;
}

/* The sum of a row. later: what members in later slots ask for, which take theirs back first. */
struct tally {
	uint64_t limit, sum, asked, later;
};

static struct tally count(const struct gp_group *group, unsigned row)
{
	const struct gp_group_page *page = group->page;
	const struct gp_group_row *at = &page->rows[row];
	struct tally tally = {.limit = UINT64_MAX};

	for (unsigned i = 0; i < n_slots(page); i++) {
		uint64_t limit, asked;

		if (!atomic_load(&page->members[i].token))
			continue;
		limit = atomic_load(&at->limit[i]);
		asked = atomic_load(&at->asked[i]);
		tally.sum += atomic_load(&at->reserved[i]);
		if (limit)
			tally.limit = gp_min(tally.limit, limit);
		if (i != group->slot)
			tally.asked += asked;
		if (i > group->slot)
			tally.later += asked;
	}
	return tally;
}

enum verdict { FITS, FULL, CONTENDED };

static bool exceeds(const struct tally *tally, uint64_t without)
{
	return tally->sum - gp_min(without, tally->sum) > tally->limit;
}

/* Decides about a reservation that is in the sum already. */
static enum verdict judge(const struct gp_group *group, unsigned row)
{
	for (unsigned n = 0; n < ASK_SPINS; n++) {
		struct tally tally = count(group, row);

		if (!exceeds(&tally, 0))
			return FITS;
		if (exceeds(&tally, tally.asked))
			return FULL;
		if (exceeds(&tally, tally.later))
			break;
		gp_pause();
	}
	return CONTENDED;
}

static bool reserve(struct gp_group *group, unsigned row, uint64_t bytes)
{
	struct gp_group_row *at = &group->page->rows[row];
	unsigned slot = group->slot;
	enum verdict verdict = CONTENDED;

	if (bytes > atomic_load(&at->limit[slot]))
		return false;
	for (unsigned n = 0; n < ASK_ATTEMPTS && verdict == CONTENDED; n++) {
		atomic_fetch_add(&at->asked[slot], bytes);
		atomic_fetch_add(&at->reserved[slot], bytes);
		verdict = judge(group, row);
		if (verdict != FITS)
			atomic_fetch_sub(&at->reserved[slot], bytes);
		atomic_fetch_sub(&at->asked[slot], bytes);
		if (verdict == CONTENDED)
			gp_yield(n);
	}
	return verdict == FITS;
}

static bool join_again(struct gp_group *group)
{
	int r;

	if (!ensure_open(group) || lock_file(group->fd, REAP_WAIT_MS))
		return false;
	r = take_slot_locked(group);
	unlock_file(group->fd);
	return !r;
}

/* A member whose slot was taken away gets another one, with all that it holds. */
static bool ensure_member(struct gp_group *group)
{
	struct quiet quiet;
	bool has_joined;

	if (is_member(group))
		return true;
	if (!group->page || group->owner != getpid())
		return false;
	quiet = begin_quiet();
	has_joined = join_again(group);
	end_quiet(&quiet);
	return has_joined;
}

bool gp_group_charge(struct gp_group *group, unsigned row, uint64_t bytes)
{
	bool is_granted;

	gp_mutex_lock(&group->lock);
	is_granted =
		ensure_member(group) && (reserve(group, row, bytes) || (reap(group) && reserve(group, row, bytes)));
	if (is_granted)
		atomic_fetch_add(&group->held[row], bytes);
	gp_mutex_unlock(&group->lock);
	return is_granted;
}

void gp_group_uncharge(struct gp_group *group, unsigned row, uint64_t bytes)
{
	if (!atomic_load(&group->page))
		return;
	gp_spin_lock(&group->held_lock);
	atomic_fetch_sub(&group->held[row], bytes);
	if (is_member(group))
		atomic_fetch_sub(&group->page->rows[row].reserved[group->slot], bytes);
	gp_spin_unlock(&group->held_lock);
}

uint64_t gp_group_left(struct gp_group *group, unsigned row)
{
	struct tally tally = {0};

	gp_mutex_lock(&group->lock);
	if (ensure_member(group)) {
		(void)reap(group);
		tally = count(group, row);
	}
	gp_mutex_unlock(&group->lock);
	return tally.limit - gp_min(tally.sum, tally.limit);
}

static void insert(struct gp_group_view *view, const struct gp_group_holder *holder)
{
	unsigned i = view->n_members < GP_GROUP_SHOWN ? view->n_members : GP_GROUP_SHOWN;

	for (; i && view->holders[i - 1].bytes < holder->bytes; i--)
		if (i < GP_GROUP_SHOWN)
			view->holders[i] = view->holders[i - 1];
	if (i < GP_GROUP_SHOWN)
		view->holders[i] = *holder;
	view->n_members++;
}

static void add_holders(const struct gp_group *group, unsigned row, struct gp_group_view *view)
{
	const struct gp_group_page *page = group->page;

	for (unsigned i = 0; i < n_slots(page); i++) {
		const struct gp_group_member *member = &page->members[i];
		struct gp_group_holder holder = {
			.pid = (pid_t)member->pid,
			.bytes = atomic_load(&page->rows[row].reserved[i]),
			.is_self = i == group->slot,
		};

		if (!atomic_load(&member->token) || !atomic_load(&page->rows[row].limit[i]))
			continue;
		memcpy(holder.command, member->command, sizeof(holder.command));
		holder.command[sizeof(holder.command) - 1] = '\0';
		insert(view, &holder);
	}
}

void gp_group_view(struct gp_group *group, unsigned row, struct gp_group_view *ret)
{
	*ret = (struct gp_group_view){0};
	gp_mutex_lock(&group->lock);
	if (ensure_member(group)) {
		struct tally tally;

		(void)reap(group);
		tally = count(group, row);
		ret->limit_bytes = tally.limit;
		ret->reserved_bytes = tally.sum;
		add_holders(group, row, ret);
	}
	gp_mutex_unlock(&group->lock);
}

bool gp_group_has(struct gp_group *group, pid_t pid, uint64_t start_ticks)
{
	const struct gp_group_page *page = atomic_load(&group->page);

	for (unsigned i = 0; page && i < n_slots(page); i++)
		if (atomic_load(&page->members[i].token) && (pid_t)page->members[i].pid == pid &&
			page->members[i].start_ticks == start_ticks)
			return true;
	return false;
}

/* The descriptor stays open: the program may have closed it, and given its number to another file. */
void gp_group_forget(struct gp_group *group)
{
	struct gp_group_page *page = atomic_load(&group->page);

	gp_mutex_init(&group->lock, GP_RANK_LEAF);
	group->held_lock = (struct gp_spinlock){0};
	if (page)
		munmap(page, sizeof(*page));
	atomic_store(&group->page, NULL);
	group->token = 0;
	for (unsigned i = 0; i < GP_GROUP_DEVICES; i++) {
		atomic_store(&group->held[i], 0);
		atomic_store(&group->limits[i], 0);
	}
}

/* Removes the file if it has no member. Members that open it meanwhile find out that it is gone (open_file). */
static void remove_unused(int dir_fd, const char *name)
{
	struct gp_group group = {.pid_namespace = own_pid_namespace()};
	int fd = openat(dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	bool is_used = false;
	struct statx st;

	if (fd < 0)
		return;
	if (check_file(fd, &st) || lock_file(fd, 0) || check_file(fd, &st)) {
		close(fd);
		return;
	}
	if (st.stx_size == sizeof(struct gp_group_page) && !map_file(&group, fd, &st)) {
		for (unsigned i = 0; i < n_slots(group.page) && !is_used; i++)
			is_used = atomic_load(&group.page->members[i].token) && !is_dead(&group, i);
		munmap(group.page, sizeof(*group.page));
	} else if (st.stx_size) {
		is_used = true; /* of another version: not ours to judge */
	}
	if (!is_used)
		(void)unlinkat(dir_fd, name, 0);
	close(fd); /* and the lock with it */
}

void gp_group_sweep(int dir_fd, const char *own_name)
{
	int list_fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = list_fd < 0 ? NULL : fdopendir(list_fd);
	const struct dirent *entry;

	if (!dir) {
		if (list_fd >= 0)
			close(list_fd);
		return;
	}
	for (int n = 0; n < SWEPT_MAX && (entry = readdir(dir)); n++) {
		size_t length = strlen(entry->d_name), suffix = strlen(GP_GROUP_SUFFIX);

		if (length > suffix && strcmp(entry->d_name + length - suffix, GP_GROUP_SUFFIX) == 0 &&
			strcmp(entry->d_name, own_name) != 0)
			remove_unused(dir_fd, entry->d_name);
	}
	closedir(dir);
}
