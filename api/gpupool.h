/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#ifndef GPUPOOL_H
#define GPUPOOL_H

/*
 * For programs that want to ask gpupool, or tell it. All of gpupool(3) is in this file: nothing is linked, and a
 * program that runs without gpupool gets -ENOSYS from every function.
 *
 * The library is found by a note in its image: no symbol of it is named here, so it may be preloaded or not, and the
 * program static or not. Amounts are bytes, devices are numbered as in CUDA, errors are negative errno values.
 * Functions may be called from any thread, but not from signal handlers; none changes errno.
 */

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#define GPUPOOL_HAS_NOTES 1
#include <elf.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define GPUPOOL_ALL_DEVICES (-1) /* where a device is wanted: the device memory of all */
#define GPUPOOL_PINNED	    (-2) /* likewise: pinned host memory */
#define GPUPOOL_NO_LIMIT    UINT64_MAX

/* May grow at its end. */
struct gpupool_status {
	uint64_t used_bytes;	  /* that the program holds, as rounded; and as it asked for them */
	uint64_t requested_bytes;
	uint64_t cached_bytes;	  /* ready to be handed out */
	uint64_t pending_bytes;	  /* freed, and waiting for the GPU */
	uint64_t returning_bytes; /* on their way back to the driver */
	uint64_t total_bytes;	  /* taken from the driver: the sum of used, cached, pending and returning */
	uint64_t unpooled_bytes;  /* in allocations that are counted and passed through */
	uint64_t limit_bytes;	  /* GPUPOOL_NO_LIMIT: none */
	uint64_t device_total_bytes; /* 0: unknown, as everywhere below */
	uint64_t device_free_bytes;
	uint64_t peak_used_bytes, peak_total_bytes;
	uint64_t n_used_blocks, n_cached_blocks, n_pending_blocks;
	uint64_t hits, misses; /* allocations served without the driver, and with it */
	uint64_t ooms;	       /* out-of-memory errors that the program got */
};

/*
 * What is called when an allocation is about to fail with an out-of-memory error, in the thread that asks for it and
 * with nothing locked. It may free memory, or raise the limit. Not 0: try once more. What it allocates itself fails
 * without calling it.
 */
typedef int gpupool_oom_hook(void *arg, int device, uint64_t bytes);

/* What the library offers. It only ever grows, so `bytes` tells which functions there are. */
struct gpupool_table {
	uint64_t bytes; /* of this structure */
	const char *(*version)(void);
	int (*status)(int device, struct gpupool_status *status, size_t bytes);
	int64_t (*reclaim)(int device);
	int64_t (*free_now)(int device);
	int (*get_limit)(int device, uint64_t *bytes);
	int (*set_limit)(int device, uint64_t bytes);
	int (*set_limit_percent)(int device, double percent);
	int (*defer)(int is_begin);
	int (*no_cache)(int is_begin);
	int (*set_oom_hook)(gpupool_oom_hook *hook, void *arg);
	int (*region)(int is_begin, const char *name);
	int64_t (*region_invalidate)(const char *name);
};

/* The note: its owner, its type, and what it describes, the way from there to the table. */
#define GPUPOOL_NOTE_OWNER "gpupool"
#define GPUPOOL_NOTE_TYPE  1

#ifdef GPUPOOL_HAS_NOTES

/* What <link.h> has under names of its own, and only where it is asked to. */
struct gpupool_object {
	Elf64_Addr base;
	const char *name;
	const Elf64_Phdr *headers;
	Elf64_Half n_headers;
};

int gpupool_each_object(int (*fn)(struct gpupool_object *object, size_t bytes, void *arg), void *arg)
	__asm__("dl_iterate_phdr");

static inline const struct gpupool_table *gpupool_table_in(const char *note, size_t bytes, size_t align)
{
	while (bytes >= sizeof(Elf64_Nhdr)) {
		const Elf64_Nhdr *header = (const Elf64_Nhdr *)(const void *)note;
		size_t name = sizeof(*header), text = name + ((header->n_namesz + align - 1) & ~(align - 1));
		size_t next = text + ((header->n_descsz + align - 1) & ~(align - 1)), i = 0;

		if (text < name || next < text || next > bytes)
			break;
		while (i < sizeof(GPUPOOL_NOTE_OWNER) && header->n_namesz == sizeof(GPUPOOL_NOTE_OWNER) &&
			note[name + i] == GPUPOOL_NOTE_OWNER[i])
			i++;
		if (i == sizeof(GPUPOOL_NOTE_OWNER) && header->n_type == GPUPOOL_NOTE_TYPE &&
			header->n_descsz == sizeof(int64_t)) {
			int64_t way;

			__builtin_memcpy(&way, note + text, sizeof(way));
			return (const struct gpupool_table *)(const void *)(note + text + way);
		}
		note += next;
		bytes -= next;
	}
	return NULL;
}

/* Whether a part of the object is in memory: not all that headers speak of need be. */
static inline int gpupool_is_loaded(const struct gpupool_object *object, const Elf64_Phdr *part)
{
	Elf64_Half i = 0;

	while (i < object->n_headers &&
		(object->headers[i].p_type != PT_LOAD || part->p_vaddr < object->headers[i].p_vaddr ||
			part->p_memsz > object->headers[i].p_memsz ||
			part->p_vaddr - object->headers[i].p_vaddr > object->headers[i].p_memsz - part->p_memsz))
		i++;
	return i < object->n_headers;
}

static inline int gpupool_look_into(struct gpupool_object *object, size_t bytes, void *arg)
{
	const struct gpupool_table **table = (const struct gpupool_table **)arg;
	Elf64_Half i;

	(void)bytes;
	for (i = 0; i < object->n_headers && !*table; i++) {
		const Elf64_Phdr *header = &object->headers[i];

		if (header->p_type == PT_NOTE && gpupool_is_loaded(object, header))
			*table = gpupool_table_in((const char *)(uintptr_t)(object->base + header->p_vaddr),
				(size_t)header->p_memsz, header->p_align == 8 ? 8 : 4);
	}
	return *table != NULL;
}

#endif

/* The library's table; NULL in a process without it. What is preloaded is there from the start: one look is enough. */
static inline const struct gpupool_table *gpupool_find(void)
{
#ifdef GPUPOOL_HAS_NOTES
	static const struct gpupool_table *found;
	static int has_looked;

	if (!__atomic_load_n(&has_looked, __ATOMIC_ACQUIRE)) {
		const struct gpupool_table *table = NULL;

		gpupool_each_object(gpupool_look_into, &table);
		__atomic_store_n(&found, table, __ATOMIC_RELAXED);
		__atomic_store_n(&has_looked, 1, __ATOMIC_RELEASE);
	}
	return __atomic_load_n(&found, __ATOMIC_RELAXED);
#else
	return NULL;
#endif
}

/* Calls a function of the table, unless there is none, or an older library without it. */
#define GPUPOOL_CALL(function, arguments, otherwise)                                                                   \
	do {                                                                                                           \
		const struct gpupool_table *gpupool_table_ = gpupool_find();                                           \
		if (!gpupool_table_ ||                                                                                 \
			gpupool_table_->bytes < offsetof(struct gpupool_table, function) + sizeof(void *))             \
			return otherwise;                                                                              \
		return gpupool_table_->function arguments;                                                             \
	} while (0)

/* The version of the library, or NULL: this process runs without it. */
static inline const char *gpupool_version(void)
{
	GPUPOOL_CALL(version, (), NULL);
}

/* Of a device, or pinned memory. -ENODEV: there is no such. */
static inline int gpupool_get_status(int device, struct gpupool_status *status)
{
	GPUPOOL_CALL(status, (device, status, sizeof(*status)), -ENOSYS);
}

/* Gives cached memory back to the driver, of a device, all, or pinned. Waits for no work. The bytes that go back. */
static inline int64_t gpupool_reclaim(int device)
{
	GPUPOOL_CALL(reclaim, (device), -ENOSYS);
}

/*
 * The same, and first waits for what was freed to be done with, as cudaFree does: afterwards nothing is pending, nor
 * cached but what shares a driver allocation with blocks that are used. -EBUSY while a stream captures.
 */
static inline int64_t gpupool_free_now(int device)
{
	GPUPOOL_CALL(free_now, (device), -ENOSYS);
}

/* Of a device, or pinned memory. -EAGAIN: a share of a device whose size is not known before CUDA is initialised. */
static inline int gpupool_get_limit(int device, uint64_t *bytes)
{
	GPUPOOL_CALL(get_limit, (device, bytes), -ENOSYS);
}

/*
 * Of a device, all, or pinned memory, at any time. With less than is in use nothing is taken from the program: cached
 * memory goes back, and allocations fail that need more from the driver, until enough was freed. 0 bytes: -EINVAL.
 */
static inline int gpupool_set_limit(int device, uint64_t bytes)
{
	GPUPOOL_CALL(set_limit, (device, bytes), -ENOSYS);
}

/* In percent of what the device, or for pinned memory the machine, has: more than 0, at most 100. */
static inline int gpupool_set_limit_percent(int device, double percent)
{
	GPUPOOL_CALL(set_limit_percent, (device, percent), -ENOSYS);
}

/*
 * Between these, freed blocks stay queued beyond the queue's limits (GPUPOOL_PENDING_COUNT, GPUPOOL_PENDING_RATIO), but
 * not when memory runs out. Scopes are the process's and nest; the end of the last flushes what is over the limits.
 * The end of none: -EINVAL.
 */
static inline int gpupool_defer_begin(void)
{
	GPUPOOL_CALL(defer, (1), -ENOSYS);
}

static inline int gpupool_defer_end(void)
{
	GPUPOOL_CALL(defer, (0), -ENOSYS);
}

/*
 * What the calling thread allocates between these comes from the driver, and goes back when it is freed and the GPU is
 * done with it; what it frees is not cached, either. Scopes nest. The end of none: -EINVAL.
 */
static inline int gpupool_no_cache_begin(void)
{
	GPUPOOL_CALL(no_cache, (1), -ENOSYS);
}

static inline int gpupool_no_cache_end(void)
{
	GPUPOOL_CALL(no_cache, (0), -ENOSYS);
}

/*
 * Between these the calling thread's device memory comes from a cache of that name, and returns to it, whoever frees
 * it. Nobody else sees it, and it stays for the next who enters. Regions nest; the innermost counts; they end with the
 * thread. Names have 1 to 63 characters of ASCII that can be shown, else: -EINVAL, as at the end of none.
 */
static inline int gpupool_region_begin(const char *name)
{
	GPUPOOL_CALL(region, (1, name), -ENOSYS);
}

static inline int gpupool_region_end(void)
{
	GPUPOOL_CALL(region, (0, NULL), -ENOSYS);
}

/*
 * Gives back what that region has cached: the bytes. What is still in use is not cached when it is freed; what is
 * allocated there from now on is. 0 for a name that nobody has allocated under.
 */
static inline int64_t gpupool_region_invalidate(const char *name)
{
	GPUPOOL_CALL(region_invalidate, (name), -ENOSYS);
}

/* One for the process; NULL: none. Other threads may still be in the one before. */
static inline int gpupool_set_oom_hook(gpupool_oom_hook *hook, void *arg)
{
	GPUPOOL_CALL(set_oom_hook, (hook, arg), -ENOSYS);
}

#ifdef __cplusplus
}
#endif

#endif
