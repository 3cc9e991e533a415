/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The triples of kept.h, found by address, handle, size and age, and notes of what may become part of a triple.
 *
 * The table's lock is held for looking up and changing the program's view of a triple, and never across a driver call.
 * A thread that calls the driver for a triple, or asks for its grace period, first makes the triple busy. Other threads
 * that need the same triple yield until it is free again; those that only look for unused memory pass it by.
 */

#include "grace.h"
#include "kept.h"
#include "pool/list.h"

enum { GP_KEPT_DEVICES_MAX = 64 };

struct gp_kept {
	struct gp_kept *next;     /* in a bucket of by_handle */
	struct gp_list size_link; /* in a bucket of by_size: the program lacks the addresses, or the memory is unused */
	struct gp_list age_link;  /* in unused */
	CUdeviceptr addr;
	size_t bytes;
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp properties;
	struct gp_device *device;
	bool is_busy;
	bool is_stuck;   /* the driver refused to unmap it: left alone until memory is to go back again */
	bool is_counted; /* in kept_bytes of the device */
	unsigned n_held; /* handles that the driver counts: usually 1, others after a call that failed in the middle */

	/* The program's view of the triple. */
	unsigned n_handles;
	bool is_reserved, is_mapped;
	unsigned char asked[GP_KEPT_DEVICES_MAX];   /* access that the program has set, by device */
	unsigned char granted[GP_KEPT_DEVICES_MAX]; /* access that the driver has set */

	uint64_t birth;        /* the number of its insertion: no other triple has it */
	uint64_t thread;       /* the last thread of the program that changed it */
	uint64_t serial;       /* of the hand-out; 0: the memory was not handed out again */
	struct gp_grace grace; /* since the unmap */
};

/* A call of the program that a triple may serve. */
struct gp_kept_need {
	size_t bytes;
	bool (*fits)(const struct gp_kept *kept, const struct gp_kept_need *need);
	bool (*is_best)(const struct gp_kept *kept); /* of those that this thread has changed last */
	size_t alignment;
	const CUmemAllocationProp *properties;
};

/* Sets up the table. */
void gp_kept_table_start(void);

extern _Atomic size_t gp_kept_n; /* number of triples */

static inline bool gp_kept_is_any(void)
{
	return gp_unlikely(atomic_load_explicit(&gp_kept_n, memory_order_relaxed) != 0);
}

static inline bool gp_kept_is_unused(const struct gp_kept *kept)
{
	return !kept->n_handles && !kept->is_mapped;
}

/*
 * Addresses, or a handle, of the program that may become part of a triple. A new note replaces one with the same key:
 * the driver has freed that one in a way that gpupool did not see. gp_kept_note_take returns a note that the caller
 * frees, or NULL.
 */
struct gp_kept_note {
	struct gp_kept_note *next;
	uint64_t key; /* the address or handle */
	size_t bytes;
	CUmemAllocationProp properties; /* of a handle */
	bool is_mapping;                /* of a handle: a thread maps the memory for the first time */
};
enum gp_kept_notes { GP_KEPT_ADDRESSES, GP_KEPT_HANDLES, GP_KEPT_N_NOTES };
void gp_kept_note_add(enum gp_kept_notes which, uint64_t key, size_t bytes, const CUmemAllocationProp *properties);
struct gp_kept_note *gp_kept_note_take(enum gp_kept_notes which, uint64_t key);

/* Enter a new triple, and remove a busy one. gp_kept_insert returns false without host memory. */
bool gp_kept_insert(struct gp_kept *kept);
void gp_kept_remove(struct gp_kept *kept);

/*
 * These make a triple busy and return it, or NULL: the first one that overlaps with the addresses; the one of a handle.
 * They wait while another thread calls the driver for it.
 */
struct gp_kept *gp_kept_claim_at(CUdeviceptr ptr, size_t bytes);
struct gp_kept *gp_kept_claim_handle(CUmemGenericAllocationHandle handle);

/*
 * Claim the triple of a handle or, if there is none, look at its note, in one step: a triple that ends may leave one.
 *
 * For a thread that is about to map the memory: *ret_is_first is true, and *ret_note a copy, if no other thread maps
 * it. The note stays: a thread that takes it tells this one that the memory has another user. If another thread maps
 * the memory already, the note is taken and freed.
 */
struct gp_kept *gp_kept_claim_or_begin(
	CUmemGenericAllocationHandle handle, struct gp_kept_note *ret_note, bool *ret_is_first);
void gp_kept_cancel_begun(CUmemGenericAllocationHandle handle);

/* For a thread after which the memory has other users: the note is taken and freed. */
struct gp_kept *gp_kept_claim_or_forget(CUmemGenericAllocationHandle handle);

/*
 * These do not wait, and pass busy triples by: the best one for a call; unused memory of this thread whose addresses
 * the program holds, except at ptr; the longest unused one on the device (-1: on any).
 */
struct gp_kept *gp_kept_choose(const struct gp_kept_need *need);
struct gp_kept *gp_kept_take_left(CUdeviceptr ptr);
struct gp_kept *gp_kept_take_oldest(int device);

/*
 * Waits while another thread calls the driver for unused memory of the device. Returns false if no thread does.
 * *ret_ended: the bytes of the triple if it has ended. No lock may be held.
 */
bool gp_kept_await_busy(int device, uint64_t *ret_ended);

/*
 * To be called when the program maps memory at addresses that belong to other memory. If that is unused, gpupool has
 * handed out the wrong addresses of that size. It hands out those first that were freed first. This call reverses that
 * order, since the program may free in reverse what it allocates together; the next call restores it.
 */
void gp_kept_note_mismatch(CUdeviceptr ptr, size_t bytes);

/* Addresses that were freed first are handed out first again. Returns false if the order was not reversed. */
bool gp_kept_restore_order(size_t bytes);

/* The triple is busy no longer, and unchanged (after a change: gp_kept_done); or the driver refused to unmap it. */
void gp_kept_put_back(struct gp_kept *kept);
void gp_kept_stick(struct gp_kept *kept);

/* Lets the memory be tried again that the driver refused to unmap. */
void gp_kept_retry_stuck(void);
