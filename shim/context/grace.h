/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Grace periods of mapped memory that the program has given up: whether the GPU may still use it. A period ends when
 * all work has completed that was submitted to the process's contexts before. Nothing waits for that. One thread at a
 * time may use a period.
 */

#include "device.h"

enum { GP_GRACE_CONTEXTS_MAX = 64 };

struct gp_context;

struct gp_grace {
	unsigned n;
	struct {
		struct gp_context *context; /* with a reference, but no use */
		uint64_t seq;
	} of[GP_GRACE_CONTEXTS_MAX]; /* the work of each context */
};

/*
 * Begins a period for memory of a device. Returns false if the process may do work that gpupool cannot ask for, or a
 * context is about to end.
 */
bool gp_grace_begin(struct gp_grace *grace, const struct gp_device *device);

/*
 * Asks whether the period is over. It is lost if that is so but for contexts that have ended, or have a sticky error,
 * and cannot be asked.
 */
enum gp_grace_state { GP_GRACE_OVER, GP_GRACE_RUNS, GP_GRACE_LOST };
enum gp_grace_state gp_grace_ask(const struct gp_grace *grace);

/* Forgets the period. To be called before its memory is freed. */
void gp_grace_forget(struct gp_grace *grace);
