/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Retainers: each stands for a capture and all that comes from it, for which freed blocks are retained (retain.h). The
 * pool's user counts its owners: the capture while it runs, and then each graph that holds a reference. Retainers whose
 * blocks cannot be told apart, since a thread takes part in several captures, are joined: a block stays retained while
 * any of the joined retainers has an owner. A block that was allocated in one capture and freed in another has both
 * retainers, which are not joined for it.
 */

#include "list.h"
#include "lock.h"

struct gp_block;

/* All retainers of a process, which are the pool user's. */
struct gp_retainers {
	struct gp_mutex lock;     /* guards all but the atomic members; under it no other lock is taken */
	_Atomic uint64_t n_ended; /* times that a retainer has lost its last owner */
	struct gp_list all;
};

struct gp_retainer {
	struct gp_retainers *all;
	struct gp_list link;        /* all->all */
	struct gp_retainer *joined; /* the next one of the joined retainers, in a ring */
	_Atomic unsigned n_owners;  /* the capture and the graphs that come from it */
	unsigned n_refs;            /* blocks and others that refer to it; the owners are not counted */
};

/* Something may have been captured that is not counted. Such a count is equal to no other, itself included. */
#define GP_CAPTURED_UNKNOWN UINT32_MAX

/* The effect of a capture on an allocation. */
struct gp_capture_alloc {
	struct gp_retainer *retainer; /* of the block */
	uint32_t n_elsewhere;         /* a count of submissions that this capture has not captured */
	uint32_t n_captured;          /* a count of submissions that any capture has captured, or GP_CAPTURED_UNKNOWN */
	bool may_reuse;               /* memory that was allocated and freed in this capture may be used again in it */
};

/* The effect of a capture on a free. */
struct gp_capture_free {
	struct gp_retainer *retainer; /* retains the block */
	struct gp_retainer *exempt;   /* allocations of this thread, which are not retained unless joined; or NULL */
	uint32_t n_elsewhere, n_captured; /* as above */
	bool may_reuse;
};

#define GP_RETAINERS_INIT(self)                                                          \
	{                                                                                \
		.lock = GP_MUTEX_INIT(GP_RANK_LEAF), .all = { &(self).all, &(self).all } \
	}

/* Returns a retainer with one reference and no owner, or NULL. Frees those that are not in use any more. */
struct gp_retainer *gp_retainer_new(struct gp_retainers *all);
struct gp_retainer *gp_retainer_get(struct gp_retainer *retainer);
void gp_retainer_put(struct gp_retainer *retainer);

/* Counts an owner. The caller has a reference. */
void gp_retainer_add_owner(struct gp_retainer *retainer);

/* Uncounts an owner. Takes no lock and calls nothing: the driver calls it where no CUDA call is allowed. */
void gp_retainer_drop_owner(struct gp_retainer *retainer);

/* True if the retainer, or one that it is joined with, has an owner. */
bool gp_retainer_is_owned(struct gp_retainer *retainer);

/* True if the caller has the only reference, and the retainer is not joined with another: no block refers to it. */
bool gp_retainer_is_unused(struct gp_retainer *retainer);

/* Joins two retainers for good. */
void gp_retainer_join(struct gp_retainer *a, struct gp_retainer *b);

/* Marks a block that is handed out during a capture. */
void gp_retainer_note_hand_out_locked(struct gp_block *block, const struct gp_capture_alloc *capture);

/* Makes a block forget its retainer, if it has one. To be called before a retained block gets another state. */
void gp_retainer_forget_locked(struct gp_block *block);
