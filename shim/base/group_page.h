/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The page of a group: a file that the processes of a user map, to keep the sum of their device memory within a limit.
 * There is no daemon. Each member has a slot, which no other member writes to while it lives.
 *
 * A member reserves bytes before it asks the driver for them: it adds them to its own word, and then adds up the words
 * of all members. If the sum is above the limit, the member takes its bytes back. Of two members that reserve at the
 * same time, at least one sees the other's bytes, so the sum of what was granted never exceeds the limit. Because
 * each word belongs to one member, a member that is killed at any instant leaves nothing but its own slot.
 *
 * A member holds a record lock on a byte of the file. The kernel drops it when the process ends or runs another
 * program, and a forked child does not inherit it. The bytes of a member are given back once its lock is gone and its
 * process has ended, since the driver frees the memory of a process between the two.
 */

#include <stdatomic.h>
#include <sys/types.h>

#include "common/config_group.h"
#include "pool/lock.h"

#define GP_GROUP_MAGIC  UINT64_C(0x70756f72676c6f70) /* "poolgrup" */
#define GP_GROUP_SUFFIX ".group"

enum {
	GP_GROUP_VERSION = 1,
	GP_GROUP_MEMBERS = 256,
	GP_GROUP_DEVICES = 32,
	GP_GROUP_COMMAND = 48,
	GP_GROUP_SHOWN = 8,     /* members in a view */
	GP_GROUP_FILE_MAX = 80, /* bytes of the name of a file, with the NUL */
	GP_GROUP_PATH_MAX = 1120,
};

/* Numbers are uint64_t, so that the layout is the same for every compiler. */
struct gp_group_member {
	_Atomic uint64_t token; /* 0: the slot is free; else no other member has had the same */
	uint64_t pid, start_ticks, pid_namespace;
	char command[GP_GROUP_COMMAND];
};

struct gp_group_row {
	_Atomic uint64_t key; /* of the device; 0: the row is free */
	_Atomic uint64_t reserved[GP_GROUP_MEMBERS];
	_Atomic uint64_t asked[GP_GROUP_MEMBERS]; /* the part of `reserved` that has not been granted yet */
	_Atomic uint64_t limit[GP_GROUP_MEMBERS]; /* as the member has it; 0: it does not use the device */
};

struct gp_group_page {
	_Atomic uint64_t magic; /* set last */
	uint64_t version, bytes;
	_Atomic uint64_t n_joined; /* members so far, which makes their tokens */
	_Atomic uint64_t n_slots;  /* slots from this one on have never been used */
	struct gp_group_member members[GP_GROUP_MEMBERS];
	struct gp_group_row rows[GP_GROUP_DEVICES];
};

/* A process's membership. Zeroed, with the lock initialised and the path set, before it joins. */
struct gp_group {
	struct gp_mutex lock; /* one thread reserves at a time */
	/*
	 * Held while bytes are given back, and while a new slot gets what the process holds: `held` and the slot must
	 * change together. It is a lock of its own, since `lock` may be held while a file is waited for.
	 */
	struct gp_spinlock held_lock;
	struct gp_group_page *_Atomic page; /* NULL: not joined */
	int fd; /* stays open, since the kernel drops the record locks with it; the program may close it */
	char path[GP_GROUP_PATH_MAX]; /* of the file, to open it again; or empty */
	unsigned slot;
	uint64_t token;
	pid_t owner;
	uint64_t start_ticks, pid_namespace;
	unsigned dev_major, dev_minor; /* of the file, with its inode */
	uint64_t inode;
	_Atomic uint64_t held[GP_GROUP_DEVICES];   /* what this process has reserved */
	_Atomic uint64_t limits[GP_GROUP_DEVICES]; /* of this process; 0: it does not use the device */
};

/* The state of a group on a device. */
struct gp_group_view {
	uint64_t limit_bytes, reserved_bytes; /* the lowest limit of the members; the sum of what they hold */
	unsigned n_members;                   /* on that device */
	struct gp_group_holder {
		pid_t pid; /* in the member's own PID namespace */
		uint64_t bytes;
		bool is_self;
		char command[GP_GROUP_COMMAND];
	} holders[GP_GROUP_SHOWN]; /* most bytes first */
};

/* Writes the file's name: kind is "name", "job" or "cgroup". Other characters than those of a name become "_". */
void gp_group_file_format(char name[static GP_GROUP_FILE_MAX], const char *kind, const char *text);

/*
 * Joins the group of a file in an open directory of the user, which it creates if it is missing. Returns 0 or -errno:
 * -EPERM or -ELOOP (not a file of this user alone), -EPROTO (of another version), -EOPNOTSUPP (the directory is not in
 * memory), -ENOSPC (no free slot), -EBUSY (another process has held the file for 2 s). Calls of the C library are not
 * cancellation points of the caller: it has disabled cancellation.
 */
int gp_group_join(struct gp_group *group, int dir_fd, const char *name);

/* Takes part on a device, with this limit. Returns its row, or -ENOSPC. key: not 0. */
int gp_group_use_device(struct gp_group *group, uint64_t key, uint64_t limit_bytes);

/*
 * Reserves bytes. Returns false if the sum would exceed the lowest limit, after it has given back what ended members
 * held.
 */
bool gp_group_charge(struct gp_group *group, unsigned row, uint64_t bytes);
void gp_group_uncharge(struct gp_group *group, unsigned row, uint64_t bytes);

/* Returns what can still be reserved, after giving back what ended members held. */
uint64_t gp_group_left(struct gp_group *group, unsigned row);

void gp_group_view(struct gp_group *group, unsigned row, struct gp_group_view *ret);

/* True if that process is a member: by the names that processes give their sockets. */
bool gp_group_has(struct gp_group *group, pid_t pid, uint64_t start_ticks);

/* To be called in a forked child, which is not a member. */
void gp_group_forget(struct gp_group *group);

/* Removes the files of groups without a member in a directory, except the named one. */
void gp_group_sweep(int dir_fd, const char *own_name);
