/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What the files of the fake share. */

#include "fake_backend.h"
#include "pool/lock.h"

#define BASE        UINT64_C(0x700000000000)
#define HISTORY_MAX GP_GIB
#define SPACE_FACTOR 4 /* addresses per byte of capacity, so that holes never make a reservation fail */
#define RANGES_FACTOR 16 /* the same of ranges, which lie behind all else */

/* A word of the history: the work up to which the memory may be in use, and what else is known. */
enum { UNIT_LATE = 1, UNIT_EXPORTED = 2, UNIT_WORK_SHIFT = 2 };

/* A piece of memory for ranges of addresses. FAKE_RESERVE makes one, and FAKE_RELEASE_BEGIN ends it. */
struct fake_piece {
	uint64_t handle, size; /* bytes */
	uint64_t addr;         /* 0: it is not mapped */
	bool was_exported;
	bool is_useless; /* it was mapped, but nobody may touch it */
	bool is_stuck; /* the driver has refused to unmap it */
	bool is_released; /* and it goes once it is unmapped */
	bool is_hopeless; /* the driver has refused that even after the context's end */
};

/* Keeps the first. */
void fake_set_breach(struct fake *fake, const char *what);

/* Fails, in a debug build, if a lock is held that comes after that rank. */
void fake_check_locks(enum gp_lock_rank rank);

/* A call begins: the error that is planned for it, or 0. And ends: its result. */
int fake_begin(struct fake *fake, enum fake_call call);
int fake_finish(struct fake *fake, struct fake_log_entry entry);

/* The history of this memory, or NULL; and the work up to which any of it may be in use. */
_Atomic uint64_t *fake_units_of(struct fake *fake, uint64_t addr, uint64_t bytes);
uint64_t fake_last_use(struct fake *fake, uint64_t addr, uint64_t bytes);

/* The host waits: that may only be for what a free would have waited for. */
void fake_wait_for(struct fake *fake, uint64_t work);

/* fake_mapping.c: whether there is memory at the addresses, so far as that is any question. */
bool fake_is_mapped(struct fake *fake, uint64_t addr, uint64_t bytes);
extern const struct gp_mapping_ops fake_mapping;
