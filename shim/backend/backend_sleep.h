/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Copies between device and host memory for pools that fall asleep (pool/vmm/sleep.h). */

#include "shim/context/context.h"

extern const struct gp_sleep_ops gp_sleep_backend;

/* True if the driver has the functions. */
bool gp_sleep_backend_works(void);

/* Returns the bytes of host memory that copies have, and of those the bytes that are kept for the next sleep. */
uint64_t gp_sleep_host_bytes(uint64_t *ret_kept_bytes);

/* Returns the bytes of it that are registered with the driver. */
uint64_t gp_sleep_pinned_bytes(void);

/* To be called once a sleep has all its host memory, or was refused some: gives back what was made ready. */
void gp_sleep_host_drop_ahead(void);

/*
 * Gives back the host memory that was kept for the context, and for contexts that have ended. Unless the context has
 * ended, too, the GPU must be idle: the driver may wait for it.
 */
void gp_sleep_host_trim(struct gp_context *context);
