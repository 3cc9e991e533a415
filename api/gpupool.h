/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#ifndef GPUPOOL_H
#define GPUPOOL_H

/*
 * For programs that query or control gpupool. All of gpupool(3) is in this file: there is no library to link, and
 * every function returns -ENOSYS in a process that runs without gpupool.
 *
 * The library is found by a note in its image. No symbol of it is named here, so it may be preloaded or not, and the
 * program may be static. Amounts are in bytes, devices are numbered as in CUDA, errors are negative errno values.
 * Functions may be called from any thread, but not from signal handlers. No function changes errno.
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

#define GPUPOOL_ALL_DEVICES (-1) /* in place of a device: the memory of all devices */
#define GPUPOOL_PINNED      (-2) /* in place of a device: pinned host memory */
#define GPUPOOL_NO_LIMIT    UINT64_MAX

/* The structure may grow at its end. */
struct gpupool_status {
	uint64_t used_bytes;         /* in blocks that the program holds, with the pool's rounding */
	uint64_t requested_bytes;    /* of these, requested by the program */
	uint64_t cached_bytes;       /* free, and ready for reuse */
	uint64_t pending_bytes;      /* freed, and waiting for the GPU */
	uint64_t returning_bytes;    /* on their way back to the driver */
	uint64_t total_bytes;        /* taken from the driver: the sum of used, cached, pending and returning */
	uint64_t unpooled_bytes;     /* not from the pools, but charged to the limit */
	uint64_t limit_bytes;        /* GPUPOOL_NO_LIMIT: none */
	uint64_t device_total_bytes; /* 0: unknown */
	uint64_t device_free_bytes;  /* 0: unknown */
	uint64_t peak_used_bytes, peak_total_bytes;
	uint64_t n_used_blocks, n_cached_blocks, n_pending_blocks;
	uint64_t hits, misses; /* allocations served without and with a request to the driver for memory */
	uint64_t ooms;         /* out-of-memory errors returned to the program */
};

/*
 * Called when an allocation is about to fail with an out-of-memory error, in the thread of that allocation and with no
 * lock held. The hook may free memory, or raise the limit. If it returns a value other than 0 the allocation is tried
 * once more. Allocations that the hook itself makes fail without calling it.
 */
typedef int gpupool_oom_hook(void *arg, int device, uint64_t bytes);

/* Options of gpupool_sleep_as(). Members may be added at the end; 0 is the default of each. */
struct gpupool_sleep_options {
	uint64_t timeout_ms;
	uint64_t is_dropping_all; /* not 0: the content of all memory is dropped */
	const char *const *drop;  /* the names of regions whose content is dropped */
	uint64_t n_drop;
};

/* The library's functions. The table only ever grows, so `bytes` shows which functions it has. */
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
	int64_t (*sleep)(uint64_t timeout_ms);
	int64_t (*wake)(uint64_t timeout_ms);
	int64_t (*sleep_as)(const struct gpupool_sleep_options *options, size_t bytes);
	int (*cold)(const void *ptr, uint64_t bytes);
};

/* The note's owner and type. Its content is the distance from there to the table. */
#define GPUPOOL_NOTE_OWNER "gpupool"
#define GPUPOOL_NOTE_TYPE  1

#ifdef GPUPOOL_HAS_NOTES

/* The beginning of struct dl_phdr_info, which <link.h> declares only with _GNU_SOURCE. */
struct gpupool_object {
	Elf64_Addr base;
	const char *name;
	const Elf64_Phdr *headers;
	Elf64_Half n_headers;
};

int gpupool_each_object(int (*fn)(struct gpupool_object *object, size_t bytes, void *arg), void *arg) __asm__(
	"dl_iterate_phdr");

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
			int64_t distance;

			__builtin_memcpy(&distance, note + text, sizeof(distance));
			return (const struct gpupool_table *)(const void *)(note + text + distance);
		}
		note += next;
		bytes -= next;
	}
	return NULL;
}

/* True if a part of the object is in memory: a header may describe parts that are not loaded. */
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

/*
 * Returns the library's table, or NULL in a process without gpupool. A preloaded library is there from the start, so
 * one search is enough.
 */
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

/*
 * Calls a function of the table, or returns `otherwise` without gpupool or with an older library that lacks the
 * function.
 */
#define GPUPOOL_CALL(function, arguments, otherwise)                                                       \
	do {                                                                                               \
		const struct gpupool_table *gpupool_table_ = gpupool_find();                               \
		if (!gpupool_table_ ||                                                                     \
			gpupool_table_->bytes < offsetof(struct gpupool_table, function) + sizeof(void *)) \
			return otherwise;                                                                  \
		return gpupool_table_->function arguments;                                                 \
	} while (0)

/* Returns the version of the library, or NULL if this process runs without it. */
static inline const char *gpupool_version(void)
{
	GPUPOOL_CALL(version, (), NULL);
}

/* Gets the state of a device's pools, or of pinned memory. -ENODEV: there is no such device. */
static inline int gpupool_get_status(int device, struct gpupool_status *status)
{
	GPUPOOL_CALL(status, (device, status, sizeof(*status)), -ENOSYS);
}

/*
 * Gives cached memory of a device, of all, or of pinned memory back to the driver. Does not wait for the GPU. Returns
 * the bytes.
 */
static inline int64_t gpupool_reclaim(int device)
{
	GPUPOOL_CALL(reclaim, (device), -ENOSYS);
}

/*
 * Like gpupool_reclaim, but first waits until the GPU has finished with freed memory, as cudaFree does. Afterwards
 * nothing is pending, and cached memory remains only where it shares a driver allocation with used blocks. -EBUSY while
 * a stream captures.
 */
static inline int64_t gpupool_free_now(int device)
{
	GPUPOOL_CALL(free_now, (device), -ENOSYS);
}

/*
 * Gets the limit of a device, or of pinned memory. -EAGAIN: the limit is a share of a device whose size is unknown
 * before CUDA is initialised.
 */
static inline int gpupool_get_limit(int device, uint64_t *bytes)
{
	GPUPOOL_CALL(get_limit, (device, bytes), -ENOSYS);
}

/*
 * Sets the limit of a device, of all, or of pinned memory, at any time. A limit below the memory in use takes nothing
 * from the program: cached memory goes back to the driver, and allocations that need more of the driver's memory fail
 * until enough has been freed. 0 bytes: -EINVAL.
 */
static inline int gpupool_set_limit(int device, uint64_t bytes)
{
	GPUPOOL_CALL(set_limit, (device, bytes), -ENOSYS);
}

/* Sets the limit in percent of the memory of the device, or for pinned memory of the machine: above 0, at most 100. */
static inline int gpupool_set_limit_percent(int device, double percent)
{
	GPUPOOL_CALL(set_limit_percent, (device, percent), -ENOSYS);
}

/*
 * A defer scope: until its end, freed blocks stay queued beyond the queue's limits (GPUPOOL_PENDING_COUNT,
 * GPUPOOL_PENDING_RATIO), except when memory runs out. Scopes belong to the process and nest. The end of the last one
 * flushes the blocks above the limits. An end without a begin: -EINVAL.
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
 * A no-cache scope: until its end, memory that the calling thread allocates comes from the driver, and goes back to it
 * when it is freed and the GPU has finished with it. Memory that the thread frees is not cached, either. Scopes nest.
 * An end without a begin: -EINVAL.
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
 * A region: until its end, device memory of the calling thread comes from a cache of that name, and returns to it
 * whichever thread frees it. Other regions do not use that cache, and it stays for the next thread that enters the
 * region. Regions nest, the innermost counts, and they end with the thread. Names have 1 to 63 printable ASCII
 * characters; other names, and an end without a begin: -EINVAL.
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
 * Gives the memory that a region has cached back to the driver, and returns its bytes. Blocks still in use are not
 * cached when they are freed. Blocks allocated from now on are cached again. Returns 0 for a name under which nothing
 * was allocated.
 */
static inline int64_t gpupool_region_invalidate(const char *name)
{
	GPUPOOL_CALL(region_invalidate, (name), -ENOSYS);
}

/* Sets the process's only hook; NULL: none. The previous hook may still be running in another thread. */
static inline int gpupool_set_oom_hook(gpupool_oom_hook *hook, void *arg)
{
	GPUPOOL_CALL(set_oom_hook, (hook, arg), -ENOSYS);
}

/*
 * Moves the process's pooled device memory to host memory, and gives it to the driver. The first work that the program
 * submits wakes the process: the memory is back at the same addresses before the work begins. Returns the bytes that
 * went, or 0 if the process was asleep. After an error the process is awake:
 *
 *   - -EBUSY: a submission, a capture or the GPU's work was not over within timeout_ms
 *   - -ENOMEM: host memory is short
 *   - -ENOTSUP: this memory cannot sleep; the log says why at the level info, and gpupool-stat sleep does
 *   - -EIO: the driver refused a call
 */
static inline int64_t gpupool_sleep(uint64_t timeout_ms)
{
	GPUPOOL_CALL(sleep, (timeout_ms), -ENOSYS);
}

/*
 * The same, and drops content that the program does not need again, such as a cache: it takes no host memory and no
 * time. The memory is zero when it comes back. Returns -ENOENT, and changes nothing, for the name of a region in which
 * nothing was allocated. After -EIO the content that was to be dropped may be lost; the log says so.
 */
static inline int64_t gpupool_sleep_as(const struct gpupool_sleep_options *options)
{
	GPUPOOL_CALL(sleep_as, (options, sizeof(*options)), -ENOSYS);
}

/*
 * Wakes the process before its next work does. Waits at most timeout_ms for device memory that other processes have
 * taken. Returns the bytes that came back, or 0 if the process was awake. After -ENOMEM or -EIO it is still asleep,
 * and holds no device memory; after -EBUSY another thread wakes it, or it is deep asleep (gpupool-stat sleep --deep),
 * and only gpupool-stat wake wakes it.
 */
static inline int64_t gpupool_wake(uint64_t timeout_ms)
{
	GPUPOOL_CALL(wake, (timeout_ms), -ENOSYS);
}

/*
 * Says that the GPU will seldom use these bytes of a block, which the program holds, until it frees the block; 0 bytes:
 * up to the block's end. With GPUPOOL_SPILL, memory that consists for at least half of such bytes goes to the host
 * before other memory when the device is full. 0, or:
 *
 *   - -EINVAL: the bytes do not lie in a block of device memory that the program holds
 *   - -ENOTSUP: this memory cannot go to the host: it is not of the pool type vmm
 *   - -ENOMEM: host memory is short
 */
static inline int gpupool_cold(const void *ptr, uint64_t bytes)
{
	GPUPOOL_CALL(cold, (ptr, bytes), -ENOSYS);
}

#ifdef __cplusplus
}
#endif

#endif
