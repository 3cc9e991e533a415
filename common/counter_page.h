/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The counter page of a process: a small file beside its control socket, PID.START.page, that the process keeps mapped.
 * Others read it without asking the process. It stays when the process ends, whatever ends it, until an exporter has
 * collected it or a later process of the user removes it.
 *
 * Out-of-memory errors, and peaks of memory from the driver, are on the page before the call of the program returns.
 * All other figures are at most a second old while they change. The first copy after a pause is late by at most about
 * the length of the pause, and by at most 16 s (gp_ctl_tick_ms).
 */

#include <stdatomic.h>

#include "size.h"
#include "socket_name.h"

#define GP_PAGE_SUFFIX  ".page"
#define GP_PAGE_MAGIC   UINT64_C(0x656761706c6f6f70) /* "poolpage" */
#define GP_PAGE_VERSION 1

enum {
	GP_PAGE_DEVICES = 16,                     /* devices of a process that are on its page; the rest is left out */
	GP_PAGE_PEAKS = 1 + GP_LIMIT_DEVICES_MAX, /* of pinned memory, then of each device by its number */
	GP_PAGE_TEXT = 64,                        /* bytes of a text, with the NUL */
	GP_PAGE_LABELS = 4,                       /* those of job.def, in its order */
	GP_PAGE_KEPT_S = 900,     /* the time for which the page of an ended process is kept for an exporter */
	GP_PAGE_FILES_MAX = 1024, /* with more pages in a directory, those of ended processes are kept for a minute */
};

/* Numbers are uint64_t, so that the layout is the same for every compiler. */
struct gp_page_memory {
#define PAGE_STAT(member, kind) uint64_t member;
#include "counter_page.def"
	uint64_t ooms;                        /* errors that reached the program */
	uint64_t unpooled_bytes, limit_bytes; /* limit: UINT64_MAX: none */
	uint64_t yields, yielded_bytes;
	uint64_t asleep_bytes;
};

struct gp_page_device {
	uint64_t index, has_uuid;
	unsigned char uuid[16];
	struct gp_page_memory memory;
};

struct gp_page_figures {
	uint64_t written_s; /* of the wall clock */
	/* The last out-of-memory error: wall clock (0: none), bytes, and device + 1 (0: pinned memory). */
	uint64_t oom_s, oom_bytes, oom_device;
	struct gp_page_memory pinned;
	uint64_t n_devices;
	struct gp_page_device devices[GP_PAGE_DEVICES]; /* entries beyond n_devices are not written */
};

struct gp_page_header {
	uint64_t magic;
	uint32_t version, bytes;
	uint64_t pid, start_ticks, started_s;
	char gpupool_version[GP_PAGE_TEXT], pool[GP_PAGE_TEXT], command[GP_PAGE_TEXT];
	char labels[GP_PAGE_LABELS][GP_PAGE_TEXT];
};

/*
 * There are two copies of the figures, so that a process that is killed while it writes leaves a complete one. count is
 * the number of complete writes, and the newest copy is copies[count % 2].
 *
 * A peak is the highest memory from the driver, with memory that is not pooled. Each is one number, and an allocation
 * that raises it stores only that number: a copy would take a lock at each allocation of a program that grows.
 */
struct gp_page {
	struct gp_page_header header; /* does not change, but for `pool` */
	_Atomic uint64_t count;
	_Atomic uint64_t peaks[GP_PAGE_PEAKS];
	struct gp_page_figures copies[2];
};

/* A page as it was read. The texts end with a NUL, and n_devices is in range; nothing else is checked. */
struct gp_page_copy {
	struct gp_page_header header;
	struct gp_page_figures figures;
	uint64_t peaks[GP_PAGE_PEAKS];
};

/*
 * Reads a page in an open directory, whatever the writer does meanwhile. Only a regular file of that user is read.
 * Returns 0, -EPROTO if it is not a page of this version, -EAGAIN if it changed during each attempt, or another -errno.
 */
int gp_page_read(int dir_fd, const char *name, uid_t uid, struct gp_page_copy *ret);

static inline bool gp_page_name_parse(const char *name, pid_t *ret_pid, uint64_t *ret_start_ticks)
{
	return gp_socket_name_parse(name, GP_PAGE_SUFFIX, ret_pid, ret_start_ticks);
}
