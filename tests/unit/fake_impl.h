/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Shared by the files of the fake backend. */

#include "fake_backend.h"
#include "pool/lock.h"

#define BASE          UINT64_C(0x700000000000)
#define HISTORY_MAX   GP_GIB
#define SPACE_FACTOR  4  /* addresses per byte of capacity, so that fragmentation never makes a reservation fail */
#define RANGES_FACTOR 16 /* the same for the reserved addresses of vmm, which follow the others */

/* A word of the history: the last work that may use the memory, and flags. */
enum { UNIT_UNFENCED = 1, UNIT_EXPORTED = 2, UNIT_STREAM_SHIFT = 2, UNIT_WORK_SHIFT = 10 };

/* A chunk of memory for arenas. FAKE_RESERVE counts its creation, FAKE_RELEASE_BEGIN its release. */
struct fake_chunk {
	uint64_t handle, size; /* bytes */
	uint64_t addr;         /* 0: not mapped */
	bool was_exported;
	bool is_useless;  /* mapped, but its access was never enabled */
	bool is_stuck;    /* the driver has refused to unmap it */
	bool is_released; /* the pool has released it; it is freed once it is unmapped */
	bool is_hopeless; /* the driver refused to unmap it even after the context's end */
	bool is_of_host;  /* counted in host_bytes instead of reserved_bytes */
	uint64_t content; /* the address where its content was first; 0: it was never copied */
};

/* Keeps the first breach that is reported. */
void fake_set_breach(struct fake *fake, const char *what);

/* In a debug build, fails if the caller holds a lock of a later rank. */
void fake_check_locks(enum gp_lock_rank rank);

/* Frame a call. fake_begin returns the error that is planned for the call, or 0; fake_finish its result. */
int fake_begin(struct fake *fake, enum fake_call call);
int fake_finish(struct fake *fake, struct fake_log_entry entry);

/* Return the history of this memory, or NULL; and the last work that may use any of it. */
_Atomic uint64_t *fake_units_of(struct fake *fake, uint64_t addr, uint64_t bytes);
uint64_t fake_last_use(struct fake *fake, uint64_t addr, uint64_t bytes);

/* Makes the host wait until this work is complete. A breach, unless a free would have waited for it. */
void fake_wait_for(struct fake *fake, uint64_t work);

/*
 * fake_mapping.c: true if all of these addresses have memory, or need none because they are not an arena's.
 */
bool fake_is_mapped(struct fake *fake, uint64_t addr, uint64_t bytes);
extern const struct gp_mapping_ops fake_mapping;

/* Adds a chunk, whose handle is fake->n_handles then, and finds one by an address. fake->lock is held. */
void fake_add_chunk_locked(struct fake *fake, uint64_t bytes, bool is_of_host);
struct fake_chunk *fake_chunk_at_locked(struct fake *fake, uint64_t addr);

/* fake_spill.c */
extern const struct gp_spill_ops fake_spill;

/* fake_sleep.c: a breach if a copy from or to this memory is under way. fake->lock is held. */
void fake_check_copies_locked(struct fake *fake, uint64_t addr, uint64_t bytes);
extern const struct gp_sleep_ops fake_sleep;
