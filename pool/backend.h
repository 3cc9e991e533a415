/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The contract at the bottom: all that the allocator asks of the world. The shim implements it over the CUDA
 * driver, the tests over numbers.
 *
 * Errors: 0; -ENOMEM where memory ran out; -EBUSY where a stream capture forbids the call for now; -ENOTSUP
 * where this backend cannot do it at all; a positive value is the driver's own error code, which the allocator
 * passes up unchanged. A fence call returns -EPERM where the calling thread may not call the driver, as in the
 * driver's host functions: a free fails then and leaves the block to the program. Every function may be called from
 * any thread and none may call back into the pool. No function is called with a lock held, except the fence functions,
 * which run under the lock of their fence sequence.
 */

#include "base.h"

/* Names one recording of an event; the backend keeps an event for each and makes it when first used. */
enum {
	GP_FENCE_SLOTS = 512,
	GP_NO_SLOT = -1,
};

struct gp_backend {
	const struct gp_backend_ops *ops;
	void *arg;	      /* handed to every function */
	struct gp_work *work; /* the submissions that fences cover; NULL: they are not reported (work.h) */
};

/*
 * Virtual memory, for the kind vmm: addresses without memory, and pieces of memory that are mapped there. Sizes and
 * addresses are multiples of the pool's granule; a piece is mapped as a whole, and in one place at a time. Nothing of
 * this waits for the GPU: what is unmapped must be in nobody's use. The context may have ended when unmap, release and
 * address_free are called, since nothing of this ends with it.
 */
struct gp_mapping_ops {
	int (*address_reserve)(void *arg, uint64_t bytes, uint64_t *ret_addr);
	/* All of what was reserved; nothing may be mapped there any more. */
	void (*address_free)(void *arg, uint64_t addr, uint64_t bytes);

	/* Takes memory from the driver. -ENOMEM enters the retry rounds. */
	int (*create)(void *arg, uint64_t bytes, uint64_t *ret_handle);
	/* After the context's end it may be mapped still, if unmap was refused: then the memory goes once it is not. */
	void (*release)(void *arg, uint64_t handle, uint64_t bytes);

	/*
	 * From then on work of the context may use it. After an error *ret_is_stuck is set if it is mapped there all
	 * the same, though nobody may use it: it could not be undone. Unmap may be tried again.
	 */
	int (*map)(void *arg, uint64_t addr, uint64_t bytes, uint64_t handle, bool *ret_is_stuck);
	int (*unmap)(void *arg, uint64_t addr, uint64_t bytes);

	/*
	 * Waits for all work of the context so far, as the driver's own free does: for where no fence may be recorded.
	 * Only from within a free.
	 */
	int (*wait)(void *arg);
};

struct gp_backend_ops {
	const struct gp_mapping_ops *mapping; /* NULL: there is no such thing */

	/* Takes memory from the driver: 512-byte aligned. -ENOMEM enters the retry rounds, anything else does not. */
	int (*reserve)(void *arg, uint64_t bytes, uint64_t *ret_addr);

	/* Gives a whole reservation back. May wait for the device, as the real free does. */
	int (*release)(void *arg, uint64_t addr);

	/*
	 * Starts to give a whole reservation back without making the host wait: it happens after the fence in the
	 * slot, or at once with GP_NO_SLOT, which the caller may pass only if nothing can touch the memory any more.
	 * The memory is back in the driver when release_poll or release_drain says so. -ENOTSUP: use release.
	 */
	int (*release_begin)(void *arg, uint64_t addr, int slot);

	/* Whether release_begin works here; where not, release may wait for the device. */
	bool (*can_release_behind)(void *arg);

	/* 0 if everything begun is back in the driver, -EAGAIN if not yet. Does not wait. */
	int (*release_poll)(void *arg);

	/* Waits until everything begun is back in the driver, at most so long: then -EAGAIN. */
	int (*release_drain)(void *arg, uint64_t max_ns);

	/*
	 * Fences. Records all work submitted so far in the context, on every stream. is_at_free: the program's own free
	 * waits for that, too. *ret_epoch, which is GP_WORK_NO_EPOCH before: what gp_work_look said first.
	 */
	int (*fence_record)(void *arg, int slot, bool is_at_free, uint64_t *ret_epoch);

	/* Whether a record makes the host wait for the work. Then none is made that could be done without. NULL: no. */
	bool (*fence_record_waits)(void *arg);

	/* 0 if all that the record covers has completed, -EAGAIN if not. */
	int (*fence_query)(void *arg, int slot);

	/*
	 * Whether that -EAGAIN is about work alone that a record covers beyond what the program's own free would have
	 * waited for. NULL: there is no such work.
	 */
	bool (*fence_is_beyond)(void *arg, int slot);

	/* Makes all later work of the context wait, on the GPU, for what the record covers. */
	int (*fence_order)(void *arg, int slot);

	/* Waits a little; attempt counts from 0 and the waits may grow with it. Cancels nothing and always returns. */
	void (*pause)(void *arg, unsigned attempt);

	/* Frees what the driver itself caches for stream-ordered pools; true if that may have freed memory. */
	bool (*trim_driver)(void *arg);

	/*
	 * Has others on this device give back what they have cached, in bounded time: the process's other pools, or
	 * other processes. The bytes that they say they gave. Who is asked asks nobody in turn. NULL: there are none.
	 */
	uint64_t (*ask_contexts)(void *arg, uint64_t bytes);
	uint64_t (*ask_processes)(void *arg, uint64_t bytes);

	/*
	 * The same of the context's other pools. may_wait: also for their late blocks, as gp_pool_await_late. NULL:
	 * there are none.
	 */
	uint64_t (*ask_siblings)(void *arg, uint64_t bytes, bool may_wait);

	/* Bytes that the driver could still give on this device, or UINT64_MAX where unknown. */
	uint64_t (*available)(void *arg);

	/* Monotonic, nanoseconds. */
	uint64_t (*now_ns)(void *arg);

	/* The pool is gone and will call nothing any more. May be NULL. */
	void (*detach)(void *arg);
};
