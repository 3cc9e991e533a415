/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * One buffer for all threads, behind one lock, so that the file has one order; what a thread has at hand costs it no
 * more than that and a look at the clock.
 *
 * Who allocates or frees holds no lock, and writes the buffer out when half of it is full or it has waited for a tenth
 * of a second, so that a process that is killed takes little along. Who records a fence holds the fence's lock, and
 * only writes it out when nothing more fits. Nobody logs with a lock held: the first error ends the recording, and the
 * next allocation or free tells of it.
 *
 * Order: a free is written before it is made and an allocation after, so that of two blocks at one address the first is
 * freed before the second is allocated, whatever threads do.
 */

#include "record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"
#include "log.h"
#include "../pool/work.h"
#include "record_backend.h"
#include "record_file.h"

enum {
	BUFFER_SIZE = 64 * 1024,
	BUFFER_HALF = BUFFER_SIZE / 2,
	RECORD_MAX = 2 + (GP_RECORD_FIELDS_MAX + 1) * GP_RECORD_VARINT_MAX,
	EXIT_TRIES = 100,
};

#define FLUSH_AFTER_NS UINT64_C(100000000)
#define EXIT_WAIT_NS   1000000

_Atomic bool gp_record_flag;

static const char *const fields_of[] = {
#define RECORD(number, name, fields, help) [number] = fields,
#include "record.def"
};

static struct {
	struct gp_mutex lock;
	const char *path_template;
	_Atomic pid_t owner; /* who has made the file; 0: nobody yet */
	bool is_at_exit;
	int error; /* 0 or -errno: why the recording has ended */
	size_t used;
	uint64_t last_ns, flushed_ns;
	uint64_t last_block, last_segment; /* addresses */
	uint32_t thread, pool;		   /* of the last record */
	uint8_t buffer[BUFFER_SIZE];
} rec = {.lock = GP_MUTEX_INIT(GP_RANK_RECORD)};

static _Atomic bool is_locked;
static _Atomic uint32_t n_threads;
static _Atomic bool is_untold; /* there is an error that nobody knows of */
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

static void end_locked(int error)
{
	rec.error = error;
	rec.used = 0;
	atomic_store(&gp_record_flag, false);
	atomic_store(&is_untold, true);
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
		end_locked(r);
}

static void put_varint(uint64_t value)
{
	for (; value > 127; value >>= 7)
		rec.buffer[rec.used++] = (uint8_t)(value | 128);
	rec.buffer[rec.used++] = (uint8_t)value;
}

/* As it is written. */
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
	put_varint(now_ns > rec.last_ns ? now_ns - rec.last_ns : 0);
	rec.last_ns = gp_max(now_ns, rec.last_ns);
	for (unsigned i = 0; i < n; i++)
		put_varint(encoded[i]);
}

/* Of a thread or a pool only a change is written. */
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

	if (rec.used > BUFFER_SIZE - 3 * RECORD_MAX)
		return true;
	return !is_inside && rec.owner &&
	       (rec.used > BUFFER_HALF || rec.is_at_exit || rec.last_ns - rec.flushed_ns > FLUSH_AFTER_NS);
}

static void write_down(uint32_t pool, enum gp_record_kind kind, const uint64_t *values)
{
	uint64_t now_ns = gp_driver_now_ns(NULL);
	uint32_t thread = this_thread();

	lock();
	/* Before the first allocation scopes may come and go without end: gp_state_start tells of what is left. */
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

static const char *why(int error, bool is_made)
{
	switch (-error) {
	case EEXIST:
		return "it exists, and is not overwritten; %p in the name gives each process a file of its own";
	case ESTALE:
		return "another file has its name now";
	case ENOENT:
		return is_made ? "it is gone" : "its directory does not exist";
	case EACCES:
	case EPERM:
	case EROFS:
		return "not permitted";
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return "there is no room for more";
	default:
		return "it cannot be written";
	}
}

/* Once, by whoever comes first. */
static void tell(void)
{
	bool is_made = rec.owner;

	if (gp_unlikely(atomic_load_explicit(&is_untold, memory_order_relaxed)) && gp_log_level() != GP_LOG_OFF &&
		atomic_exchange(&is_untold, false))
		gp_log(GP_LOG_WARN, "GPUPOOL_RECORD: %s: cannot write %s: %s (error %d)",
			is_made ? "the recording ends" : "this process is not recorded", gp_record_file_name(),
			why(rec.error, is_made), -rec.error);
}

void gp_record_note(const struct gp_pool *pool, enum gp_record_kind kind, const uint64_t *values)
{
	uint32_t number = pool ? gp_pool_number(pool) : 0; /* 0: there is none, or it is not recorded */
	int saved_errno = errno;

	if (!pool || number)
		write_down(number ? number - 1 : GP_RECORD_NO_POOL, kind, values);
	if (kind == GP_RECORD_ALLOC || kind == GP_RECORD_FREE)
		tell();
	errno = saved_errno;
}

bool gp_record_is_calm(uint64_t epoch)
{
	static _Atomic uint64_t last;

	return atomic_exchange_explicit(&last, epoch, memory_order_relaxed) == epoch && epoch != GP_WORK_NO_EPOCH &&
	       epoch != GP_WORK_UNSEEN >> 1;
}

void gp_record_fail(int error)
{
	lock();
	end_locked(error);
	unlock();
}

void gp_record_answer(uint32_t pool, enum gp_record_kind kind, const uint64_t *values)
{
	int saved_errno = errno;

	if (gp_record_is_on())
		write_down(pool, kind, values);
	errno = saved_errno;
}

/* A signal handler may have called exit() while its thread was in here: then what is left is lost. */
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
		put_locked(GP_RECORD_EXIT, NULL, gp_driver_now_ns(NULL));
		rec.is_at_exit = true;
		flush_locked();
	}
	unlock();
	tell();
}

static void begin_locked(void)
{
	memcpy(rec.buffer, GP_RECORD_TITLE, strlen(GP_RECORD_TITLE));
	rec.used = strlen(GP_RECORD_TITLE);
	rec.thread = 0;
	rec.pool = GP_RECORD_NO_POOL;
	rec.last_ns = rec.flushed_ns = gp_driver_now_ns(NULL);
	rec.last_block = rec.last_segment = 0;
}

void gp_record_init(const char *path_template)
{
	if (!path_template || !*path_template)
		return;
	lock();
	rec.path_template = path_template;
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
	write_down(GP_RECORD_NO_POOL, GP_RECORD_PROCESS, process);
	lock();
	if (!rec.error)
		flush_locked();
	unlock();
	if (!is_at_exit)
		is_at_exit = atexit(end_at_exit) == 0;
	tell();
	if (gp_record_is_on())
		gp_log(GP_LOG_INFO, "recording to %s", gp_record_file_name());
}

void gp_record_after_fork_child(bool is_over)
{
	if (!gp_record_is_on())
		return;
	gp_mutex_init(&rec.lock, GP_RANK_RECORD);
	gp_record_pools_after_fork_child();
	atomic_store(&is_locked, false);
	if (is_over)
		atomic_store(&gp_record_flag, false);
	else
		begin_locked();
}
