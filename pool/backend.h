/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The interface to the layer below: everything that the allocator needs from its environment. The shim implements it
 * on the CUDA driver, the tests on plain numbers.
 *
 * Results:
 *
 *   - 0: success
 *   - -ENOMEM: out of memory
 *   - -EBUSY: a stream capture forbids the call for now
 *   - -ENOTSUP: this backend cannot do it at all
 *   - -EPERM, from fence functions only: the calling thread may not call the driver, as inside the driver's host
 *     functions. A free then fails and leaves the block to the program.
 *   - a positive value: the driver's own error code, which the allocator passes up unchanged
 *
 * Every function may be called from any thread, and none may call back into the pool. No function is called with a
 * lock held, except the fence functions, which run under the lock of the context's fences.
 */

#include "base.h"

struct gp_stats;

/* A slot names one recording of an event. The backend keeps one event for each slot and creates it at first use. */
enum {
	GP_FENCE_SLOTS = 512,
	GP_NO_SLOT = -1,
};

struct gp_backend {
	const struct gp_backend_ops *ops;
	void *arg; /* passed to every function */
	struct gp_submissions
		*work; /* reports the submissions that fences cover; NULL: they are not reported (submission.h) */
};

/*
 * Virtual memory, for the kind vmm: reserved addresses (arenas), and chunks of memory that are mapped there. Sizes
 * and addresses are multiples of the pool's granule. A chunk is mapped as a whole, at one address at a time. Only
 * `wait` waits for the GPU: memory that is unmapped must not be in use. The context may have ended when unmap,
 * release and address_free are called, since mappings do not end with it.
 */
struct gp_mapping_ops {
	int (*address_reserve)(void *arg, uint64_t bytes, uint64_t *ret_addr);
	/* Frees a whole reservation. Nothing may be mapped there any more. */
	void (*address_free)(void *arg, uint64_t addr, uint64_t bytes);

	/* Takes memory from the driver. -ENOMEM starts the retry rounds. */
	int (*create)(void *arg, uint64_t bytes, uint64_t *ret_handle);
	/*
	 * After the end of the context the chunk may still be mapped, if unmap was refused. The driver frees it once
	 * it is unmapped.
	 */
	void (*release)(void *arg, uint64_t handle, uint64_t bytes);

	/*
	 * Maps the chunk, so that later work of the context may use it. After an error *ret_is_stuck is set if the
	 * chunk stayed mapped because undoing the map failed. It must not be used then. unmap may be tried again.
	 */
	int (*map)(void *arg, uint64_t addr, uint64_t bytes, uint64_t handle, bool *ret_is_stuck);
	int (*unmap)(void *arg, uint64_t addr, uint64_t bytes);

	/*
	 * Waits for all work of the context so far, as the driver's own free does. For use where no fence may be
	 * recorded, and only from within a free.
	 */
	int (*wait)(void *arg);
};

/*
 * Copies between device and host memory, for pools of the kind vmm that fall asleep (vmm/sleep.h). The copies of a
 * backend run in the order in which they are started, and beside other work.
 */
struct gp_sleep_ops {
	/* Host memory is taken in pieces of this size; only the last one may be smaller. A copy lies in one piece. */
	uint64_t piece_bytes;

	/*
	 * Takes pinned host memory of at least these bytes (-ENOMEM), and gives it back with the size that it got, also
	 * after the end of the context. next_bytes: what the next call asks for, if nothing fails; 0: this is the last
	 * one. *ret_is_new: it was not kept from the sleep before, and took longer than the copies into it will take.
	 * Both may wait for the GPU.
	 */
	int (*host_take)(
		void *arg, uint64_t bytes, uint64_t next_bytes, void **ret_host, uint64_t *ret_bytes, bool *ret_is_new);
	void (*host_give)(void *arg, void *host, uint64_t bytes, bool is_pinned);

	/*
	 * Unpins host memory while no copy is under way, and pins it again (0 or the driver's error). The content
	 * stays. A copy from memory that is not pinned works, but it is slow, and the host waits for it.
	 */
	void (*host_unpin)(void *arg, void *host, uint64_t bytes);
	int (*host_pin)(void *arg, void *host, uint64_t bytes);

	/* Start a copy. */
	int (*copy_out)(void *arg, void *host, uint64_t addr, uint64_t bytes);
	int (*copy_in)(void *arg, uint64_t addr, const void *host, uint64_t bytes);

	/* Starts to set memory to zero, in the order of the copies. */
	int (*zero)(void *arg, uint64_t addr, uint64_t bytes);

	/* Marks all copies started so far, and waits for the last mark of that slot (0 or 1). */
	int (*copy_mark)(void *arg, int slot);
	int (*copy_wait)(void *arg, int slot);

	/* Waits for all copies, as far as the context still works. */
	void (*copy_drain)(void *arg);
};

/*
 * Memory of the host that is mapped like a chunk, for pools of the kind vmm that spill (vmm/spill.h). All but make_room
 * are called while the GPU is idle and nothing can be submitted.
 */
struct gp_spill_ops {
	/* As create and release of struct gp_mapping_ops. The handle is mapped and unmapped like any other. */
	int (*create)(void *arg, uint64_t bytes, uint64_t *ret_handle);
	void (*release)(void *arg, uint64_t handle, uint64_t bytes);

	/* Copies between two mapped ranges. Has completed when it returns 0. */
	int (*copy)(void *arg, uint64_t to, uint64_t from, uint64_t bytes);

	/* Called after an error of a mapping call: true if the context can map nothing any more. */
	bool (*is_lost)(void *arg, int error);

	/*
	 * Moves pieces to the host, so that the driver, and the limits, have `bytes` left: at least `least` bytes of
	 * them. Waits for the GPU for a bounded time. Returns the bytes moved; 0 if nothing has changed.
	 */
	uint64_t (*make_room)(void *arg, uint64_t bytes, uint64_t least);

	/* A request begins to ask for room, and has stopped. Meanwhile nothing comes back from the host. */
	void (*seek)(void *arg, bool is_begin);
};

/* The news after a pause of a thread that waits for other processes. */
enum gp_wait_news {
	GP_WAIT_NOTHING, /* the driver has no more than before */
	GP_WAIT_MORE,    /* the driver may have enough by now */
	GP_WAIT_OVER,    /* a wait is pointless, or no longer allowed */
};

/* A wait for other processes. Only the backend uses the members. */
struct gp_wait {
	uint64_t bytes;  /* missing */
	uint64_t max_ns; /* taken from the time that the process may wait */
	uint64_t available_bytes, tried_ns, asked_ns, enough_ns;
	unsigned n_pauses;
	void *sleepers; /* NULL: the wait is for memory that other processes free */
};

/*
 * For a backend that records the calls of a pool and passes them on to another one. A pool that sleeps calls that other
 * one, since its decisions do not depend on the moves. Its chunks have other handles afterwards, under the names that
 * the old ones had in the recording.
 */
struct gp_recorder_ops {
	const struct gp_backend *(*beneath)(void *arg);

	/* Returns the name of a handle that is about to be given back unrecorded, and gives a name to a new handle. */
	uint64_t (*name_take)(void *arg, uint64_t handle);
	void (*name_give)(void *arg, uint64_t handle, uint64_t name);
};

struct gp_backend_ops {
	const struct gp_mapping_ops *mapping;   /* NULL: no virtual memory */
	const struct gp_sleep_ops *sleep;       /* NULL: pools stay awake */
	const struct gp_spill_ops *spill;       /* NULL: no memory goes to the host */
	const struct gp_recorder_ops *recorder; /* NULL: calls are not recorded */

	/*
	 * Takes memory from the driver, 512-byte aligned. -ENOMEM starts the retry rounds; other errors do not.
	 * *ret_available becomes what `available` would return after it, and is unchanged if that is unknown. NULL: the
	 * pool does not ask.
	 */
	int (*reserve)(void *arg, uint64_t bytes, uint64_t *ret_addr, uint64_t *ret_available);

	/* Gives a whole reservation back. May wait for the device, as the real free does. */
	int (*release)(void *arg, uint64_t addr);

	/*
	 * Starts to give a whole reservation back, without making the host wait. The memory goes back after the fence
	 * in `slot`, or at once with GP_NO_SLOT, which the caller may pass only if nothing can touch the memory any
	 * more. The memory is back in the driver when release_poll or release_drain reports it. -ENOTSUP: use release.
	 */
	int (*release_begin)(void *arg, uint64_t addr, int slot);

	/* True if release_begin works. If it does not, release may wait for the device. */
	bool (*can_release_behind)(void *arg);

	/*
	 * True if the first release_begin of a context takes the host milliseconds. The answer never changes. Until
	 * that first call, a free of the program uses `release` while the context is idle. NULL: false.
	 */
	bool (*is_first_release_slow)(void *arg);

	/* Returns 0 if every release begun is back in the driver, -EAGAIN if not yet. Does not wait. */
	int (*release_poll)(void *arg);

	/* Waits until every release begun is back in the driver, at most max_ns: then -EAGAIN. */
	int (*release_drain)(void *arg, uint64_t max_ns);

	/*
	 * Records a fence: all work submitted so far in the context, on every stream. is_at_free: true if the
	 * program's own free would wait for that work, too. *ret_epoch: what gp_submission_look returned before the
	 * record; unchanged if it was not called.
	 */
	int (*fence_record)(void *arg, int slot, bool is_at_free, uint64_t *ret_epoch);

	/* True if a record makes the host wait for the work. The pool then avoids records where it can. NULL: never. */
	bool (*fence_record_waits)(void *arg);

	/* Returns 0 if all work that the record covers has completed, -EAGAIN if not. */
	int (*fence_query)(void *arg, int slot);

	/*
	 * Called after -EAGAIN: true if the unfinished work is only work that the record covers but that the
	 * program's own free would not have waited for. NULL: no record covers such work.
	 */
	bool (*fence_is_beyond)(void *arg, int slot);

	/* GPU wait: makes all later work of the context wait, on the GPU, for the work that the record covers. */
	int (*fence_gpu_wait)(void *arg, int slot);

	/*
	 * Called without a lock after a fence function has failed, other than with -EAGAIN. A fence function runs under
	 * a lock, so it must not write a message, which blocks while no process reads it. NULL: there is no message.
	 */
	void (*fence_failed)(void *arg);

	/*
	 * Pauses for a moment. attempt counts from 0, and pauses may grow with it. Not a cancellation point; always
	 * returns.
	 */
	void (*pause)(void *arg, unsigned attempt);

	/* Frees what the driver itself caches for stream-ordered pools. Returns true if that may have freed memory. */
	bool (*trim_driver)(void *arg);

	/*
	 * Ask the process's other pools on this device, or other processes, to give back what they have cached, in
	 * bounded time. Return the bytes that those report. A pool or process that is asked does not ask further
	 * ones. NULL: there are none.
	 */
	uint64_t (*ask_contexts)(void *arg, uint64_t bytes);
	uint64_t (*ask_processes)(void *arg, uint64_t bytes);

	/* As ask_processes, for those that share the budget's group. NULL: there are none. */
	uint64_t (*ask_group)(void *arg, uint64_t bytes);

	/*
	 * Waits until other processes have freed memory of the device, of which the driver lacks `bytes` bytes.
	 * wait_begin returns for how many nanoseconds the thread may wait. If that is 0, the wait has not begun.
	 * Otherwise wait_pause pauses for a moment, any number of times, and wait_end must follow. NULL: no waits.
	 */
	uint64_t (*wait_begin)(void *arg, uint64_t bytes, struct gp_wait *ret_wait);
	enum gp_wait_news (*wait_pause)(void *arg, struct gp_wait *wait);
	void (*wait_end)(void *arg, struct gp_wait *wait, uint64_t waited_ns, bool is_served);

	/*
	 * As wait_begin, for other processes that may be asked to sleep. Asks them if their memory is enough. NULL: no
	 * process is asked. sleepers_ask is for a pool that wakes: it returns without a wait for their memory, and true
	 * if any of them is falling asleep.
	 */
	uint64_t (*sleepers_begin)(void *arg, uint64_t bytes, struct gp_wait *ret_wait);
	bool (*sleepers_ask)(void *arg, uint64_t bytes);

	/* True while another process lacks memory of this device. Then nothing stays cached. NULL: never. */
	bool (*is_wanted)(void *arg);

	/*
	 * As ask_contexts, for the other pools of this context. may_wait: wait for their unfenced blocks, too, as
	 * gp_pool_await_unfenced does. NULL: there are none.
	 */
	uint64_t (*ask_siblings)(void *arg, uint64_t bytes, bool may_wait);

	/* Returns the bytes that the driver could still give on this device, or UINT64_MAX if unknown. */
	uint64_t (*available)(void *arg);

	/* Sets the counters that only the backend can count: registrations, registered_bytes. NULL: they are 0. */
	void (*count)(void *arg, struct gp_stats *stats);

	/* Returns monotonic time in nanoseconds. */
	uint64_t (*now_ns)(void *arg);

	/* The pool is gone and makes no more calls. May be NULL. */
	void (*detach)(void *arg);
};
