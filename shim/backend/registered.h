/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Large segments of pinned memory that gpupool maps and touches itself and then registers with the driver. The driver's
 * own allocation takes ten times as long: it takes one small page after another, on one thread. A segment is one
 * registration, since the driver refuses a copy across two.
 *
 * Registered memory differs from the driver's own in some answers: see gp_registered_at().
 */

#include "shim/context/context.h"

/* Sizes of the segments. The driver is known to refuse larger registrations. */
#define GP_REGISTERED_MIN (16 * GP_MIB)
#define GP_REGISTERED_MAX (64 * GP_GIB)

/* Watches the ends of contexts. */
void gp_registered_start(void);

/*
 * Maps and touches memory of the host for the context. Needs no current context, and takes no driver's lock. Returns
 * NULL if the driver should allocate the memory: the size, the flags, the devices, the driver or the settings do not
 * allow for another way, or the host has not enough memory left: the driver answers with an error where a touch would
 * make the kernel end a process.
 */
void *gp_registered_prepare(const struct gp_context *context, unsigned kind, uint64_t bytes);

/*
 * Registers the memory for all contexts, with the context current. kind: the flags of the program's request. Returns
 * false, and gives the memory back, if that is not possible; then the driver should allocate it.
 */
bool gp_registered_add(struct gp_context *context, unsigned kind, void *memory, uint64_t bytes);

/* Gives back memory that gp_registered_prepare has returned and that was not registered. NULL is allowed. */
void gp_registered_discard(void *memory, uint64_t bytes);

/* True if a registered segment of gpupool begins at the address. */
bool gp_registered_begins_at(uint64_t addr);

/*
 * Gives a segment back, with its context current. After an error of the driver the segment stays. *ret_bytes: its size.
 */
CUresult gp_registered_release(uint64_t addr, uint64_t *ret_bytes);

/*
 * True if the address is in a registered segment of gpupool. The driver's answers for such an address have to be
 * changed: cuMemHostGetFlags, cuMemHostRegister, cuMemHostUnregister. *ret_portable, if not NULL: whether the program
 * has asked for portable memory.
 */
bool gp_registered_at(uint64_t addr, bool *ret_portable);
