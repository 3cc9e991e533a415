/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * All threads share one buffer under one lock, so that the records have a single order. For an allocation from a
 * thread's cache, recording costs that lock and a look at the clock.
 *
 * A thread that records an allocation or a free holds no other lock. It writes the buffer to the file when half of it
 * is full or FLUSH_AFTER_NS have passed, so that a killed process loses little. A thread that records a fence call
 * holds the lock of the context's fences, and writes the buffer only when nothing more fits. No thread logs while it
 * holds a lock: the first error ends the recording, and the next allocation or free logs the error.
 *
 * A free is recorded before it happens, and an allocation afterwards. So if two blocks have the same address, the
 * recording has the free of the first block before the allocation of the second, whichever threads make the calls.
 */

#include "record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pool/submission.h"
#include "record_backend.h"
#include "record_command.h"
#include "record_file.h"
#include "record_stacks.h"
#include "shim/base/clock.h"
#include "shim/base/fork.h"
#include "shim/base/log.h"
#include "shim/base/slow_path.h"

enum {
	BUFFER_SIZE = 64 * 1024,
	BUFFER_HALF = BUFFER_SIZE / 2,
	RECORD_MAX = 2 + (GP_RECORD_FIELDS_MAX + 1) * GP_RECORD_VARINT_MAX,
	USED_MAX = BUFFER_SIZE - 3 * RECORD_MAX, /* a call adds at most three records that are not long */
	LONG_MAX_BYTES = 1 + 3 * GP_RECORD_VARINT_MAX + GP_RECORD_BODY_MAX,
	EXIT_TRIES = 100,
};

#define FLUSH_AFTER_NS UINT64_C(100000000)
#define EXIT_WAIT_NS   1000000

_Atomic bool gp_record_flag;

static const char *const fields_of[] = {
#define RECORD(number, name, fields, help) [number] = fields,
#include "common/record.def"
};

static struct {
	struct gp_mutex lock;
	const char *path_template;
	bool has_stacks;
	_Atomic pid_t owner; /* the process that created the file; 0: there is none yet */
	bool is_at_exit;
	int error; /* 0, or the -errno that ended the recording */
	size_t used;
	uint64_t last_ns, flushed_ns;
	uint64_t last_block, last_segment; /* addresses in the last records */
	uint32_t thread, pool;             /* of the last record */
	uint8_t buffer[BUFFER_SIZE];
} rec = {.lock = GP_MUTEX_INIT(GP_RANK_RECORD)};

static _Atomic bool is_locked;
static _Atomic uint32_t n_threads;
static _Atomic bool is_error_unlogged; /* an error is waiting to be logged */
static _Thread_local uint32_t thread_number __attribute__((tls_model("initial-exec"))); /* from 1; 0: none yet */

static void lock(void)
{
	gp_mutex_lock(&rec.lock);
	atomic_store_explicit(&is_locked, true, memory_order_relaxed);
}

static void unlock(void)
{
	atomic_store_explicit(&is_locked, false, memory_order_relaxed);
	gp_mutex_unlock(&rec.lock);
}

static uint32_t this_thread(void)
{
	if (gp_unlikely(!thread_number))
		thread_number = atomic_fetch_add_explicit(&n_threads, 1, memory_order_relaxed) + 1;
	return thread_number - 1;
}

static void stop_locked(int error)
{
	rec.error = error;
	rec.used = 0;
	atomic_store(&gp_record_flag, false);
	atomic_store(&is_error_unlogged, true);
}

static void flush_locked(void)
{
	int r = rec.owner ? 0 : gp_record_file_create(rec.path_template);

	if (!r) {
		rec.owner = getpid();
		r = gp_record_file_append(rec.buffer, rec.used);
	}
	rec.used = 0;
	rec.flushed_ns = rec.last_ns;
	if (r)
		stop_locked(r);
}

static void put_varint(uint64_t value)
{
	rec.used += gp_record_put_varint(&rec.buffer[rec.used], value);
}

/* Writes the time since the previous record. */
static void put_time(uint64_t now_ns)
{
	put_varint(now_ns > rec.last_ns ? now_ns - rec.last_ns : 0);
	rec.last_ns = gp_max(now_ns, rec.last_ns);
}

/* Returns a field's value as it is written. record.def explains the letters. */
static uint64_t encode(char letter, uint64_t value)
{
	uint64_t *last = letter == 'b' ? &rec.last_block : &rec.last_segment, distance;

	if (letter == 'u')
		return value;
	if (letter == 's')
		return gp_record_fold(value);
	distance = value - *last;
	*last = value;
	return gp_record_fold(distance);
}

static void put_locked(enum gp_record_kind kind, const uint64_t *values, uint64_t now_ns)
{
	const char *letters = fields_of[kind];
	uint64_t encoded[GP_RECORD_FIELDS_MAX];
	unsigned n = 0;

	for (unsigned i = 0; letters[i]; i++) {
		encoded[i] = encode(letters[i], values[i]);
		if (encoded[i])
			n = i + 1;
	}
	if (n < GP_RECORD_COUNT_MORE) {
		rec.buffer[rec.used++] = (uint8_t)(kind | n << GP_RECORD_COUNT_SHIFT);
	} else {
		rec.buffer[rec.used++] = (uint8_t)(kind | GP_RECORD_COUNT_MORE << GP_RECORD_COUNT_SHIFT);
		rec.buffer[rec.used++] = (uint8_t)n;
	}
	put_time(now_ns);
	for (unsigned i = 0; i < n; i++)
		put_varint(encoded[i]);
}

static void put_long_locked(enum gp_record_kind kind, const uint8_t *body, size_t length, uint64_t now_ns)
{
	rec.buffer[rec.used++] = GP_RECORD_LONG;
	put_varint(kind);
	put_time(now_ns);
	put_varint(length);
	if (length)
		memcpy(&rec.buffer[rec.used], body, length);
	rec.used += length;
}

/* Writes the number of a thread or a pool only if it has changed. */
static void put_change_locked(enum gp_record_kind kind, uint32_t *last, uint32_t number, uint64_t now_ns)
{
	if (*last == number)
		return;
	*last = number;
	put_locked(kind, (const uint64_t[]){number}, now_ns);
}

static bool is_flush_due(enum gp_record_kind kind)
{
	bool is_inside = kind >= GP_RECORD_FENCE && kind <= GP_RECORD_ORDER;

	if (rec.used > USED_MAX)
		return true;
	return !is_inside && rec.owner &&
	       (rec.used > BUFFER_HALF || rec.is_at_exit || rec.last_ns - rec.flushed_ns > FLUSH_AFTER_NS);
}

static void add_record(uint32_t pool, enum gp_record_kind kind, const uint64_t *values)
{
	uint64_t now_ns = gp_clock_now_ns(NULL);
	uint32_t thread = this_thread();

	lock();
	/* Before the first allocation defer scopes are not recorded: process.c records their number at the start. */
	if (!rec.error && (rec.owner || kind != GP_RECORD_DEFER)) {
		put_change_locked(GP_RECORD_THREAD, &rec.thread, thread, now_ns);
		if (pool != GP_RECORD_NO_POOL)
			put_change_locked(GP_RECORD_USE, &rec.pool, pool, now_ns);
		put_locked(kind, values, now_ns);
		if (gp_unlikely(is_flush_due(kind)))
			flush_locked();
	}
	unlock();
}

static const char *error_text(int error, bool is_made)
{
	switch (-error) {
	case EEXIST:
		return "it exists, and is not overwritten; put %p into the name to give each process a separate file";
	case ESTALE:
		return "another file has taken its name";
	case ENOENT:
		return is_made ? "it has been removed" : "its directory does not exist";
	case EACCES:
	case EPERM:
	case EROFS:
		return "permission denied";
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return "the disk is full, or the file has reached its size limit";
	default:
		return "the write failed";
	}
}

/* Logs the error that ended the recording, once. */
static void log_error(void)
{
	bool is_made = rec.owner;

	if (gp_unlikely(atomic_load_explicit(&is_error_unlogged, memory_order_relaxed)) &&
		gp_log_level() != GP_LOG_OFF && atomic_exchange(&is_error_unlogged, false))
		gp_log(GP_LOG_WARN, "GPUPOOL_RECORD: %s: cannot write %s: %s (error %d)",
			is_made ? "the recording ends" : "this process is not recorded", gp_record_file_name(),
			error_text(rec.error, is_made), -rec.error);
}

void gp_record_note(const struct gp_pool *pool, enum gp_record_kind kind, const uint64_t *values)
{
	uint32_t number = pool ? gp_pool_number(pool) : 0; /* 0: no pool, or a pool that is not recorded */
	int saved_errno = errno;

	if (!pool || number)
		add_record(number ? number - 1 : GP_RECORD_NO_POOL, kind, values);
	if (kind == GP_RECORD_ALLOC || kind == GP_RECORD_FREE)
		log_error();
	errno = saved_errno;
}

bool gp_record_is_calm(uint64_t epoch)
{
	static _Atomic uint64_t last;

	return atomic_exchange_explicit(&last, epoch, memory_order_relaxed) == epoch &&
	       epoch != GP_SUBMISSION_NO_EPOCH && epoch != GP_SUBMISSION_UNSEEN >> 1;
}

bool gp_record_has_stacks(void)
{
	return rec.has_stacks;
}

void gp_record_add_long(enum gp_record_kind kind, const uint8_t *body, size_t length)
{
	uint64_t now_ns = gp_clock_now_ns(NULL);

	lock();
	if (!rec.error && rec.used > USED_MAX - LONG_MAX_BYTES)
		flush_locked();
	if (!rec.error)
		put_long_locked(kind, body, length, now_ns);
	unlock();
}

void gp_record_fail(int error)
{
	lock();
	stop_locked(error);
	unlock();
}

void gp_record_answer(uint32_t pool, enum gp_record_kind kind, const uint64_t *values)
{
	int saved_errno = errno;

	if (gp_record_is_on())
		add_record(pool, kind, values);
	errno = saved_errno;
}

/*
 * Writes the rest of the buffer. It is lost if a signal handler called exit() while its thread held the lock: then the
 * lock is never released, and the wait for it ends after EXIT_TRIES.
 */
static void end_at_exit(void)
{
	const struct timespec wait = {0, EXIT_WAIT_NS};
	int tries = 0;

	if (!gp_record_is_on() || getpid() != rec.owner)
		return;
	while (atomic_load_explicit(&is_locked, memory_order_relaxed)) {
		if (++tries == EXIT_TRIES)
			return;
		nanosleep(&wait, NULL);
	}
	lock();
	if (!rec.error) {
		put_long_locked(GP_RECORD_EXIT, NULL, 0, gp_clock_now_ns(NULL));
		rec.is_at_exit = true;
		flush_locked();
	}
	unlock();
	log_error();
}

static void begin_locked(void)
{
	const char *title = rec.has_stacks ? GP_RECORD_TITLE_STACKS : GP_RECORD_TITLE_PLAIN;

	rec.used = strlen(title);
	memcpy(rec.buffer, title, rec.used);
	rec.thread = 0;
	rec.pool = GP_RECORD_NO_POOL;
	rec.last_ns = rec.flushed_ns = gp_clock_now_ns(NULL);
	rec.last_block = rec.last_segment = 0;
}

/*
 * Drops the copied records: the parent writes them. If CUDA was in use before the fork, the child is bypassed and
 * records nothing.
 */
static void reset_in_child(void)
{
	if (!gp_record_is_on())
		return;
	gp_mutex_init(&rec.lock, GP_RANK_RECORD);
	gp_record_pools_after_fork_child();
	gp_record_stacks_after_fork_child();
	atomic_store(&is_locked, false);
	if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
		atomic_store(&gp_record_flag, false);
	else
		begin_locked();
}

void gp_record_init(const char *path_template, bool has_stacks)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};

	if (!path_template || !*path_template)
		return;
	gp_fork_on_child(&child);
	lock();
	rec.path_template = path_template;
	rec.has_stacks = has_stacks;
	begin_locked();
	atomic_store(&gp_record_flag, true);
	unlock();
}

void gp_record_start(void)
{
	static bool is_at_exit;
	uint64_t process[] = {(uint64_t)getpid(), (uint64_t)time(NULL)};

	if (!gp_record_is_on())
		return;
	add_record(GP_RECORD_NO_POOL, GP_RECORD_PROCESS, process);
	gp_record_command();
	lock();
	if (!rec.error)
		flush_locked();
	unlock();
	if (!is_at_exit)
		is_at_exit = atexit(end_at_exit) == 0;
	log_error();
	if (gp_record_is_on())
		gp_log(GP_LOG_INFO, "recording to %s", gp_record_file_name());
}
