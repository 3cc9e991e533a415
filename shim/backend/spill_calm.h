/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * When memory of a device comes back from the host: only after there has been room for it for a time of calm. That time
 * doubles each time that memory has to go again soon after it came back. So a program that needs more and less memory
 * in turns keeps its memory where it is, after a few moves. The caller has a lock.
 */

#include <stdint.h>

#define GP_SPILL_CALM_NS     UINT64_C(1000000000) /* the time of calm at first */
#define GP_SPILL_CALM_MAX_NS (64 * GP_SPILL_CALM_NS)
enum { GP_SPILL_SOON = 8 }; /* of these times */

/* All zero at first. */
struct gp_spill_calm {
	uint64_t extra_ns;    /* of the time of calm, beyond GP_SPILL_CALM_NS */
	uint64_t since_ns;    /* there has been room since then; 0: there was none at the last look */
	uint64_t bytes;       /* for which there has been room since then, less what came back */
	uint64_t came_ns;     /* when memory last came back; 0: memory went to the host since */
	uint64_t retry_ns;    /* no return is tried before then, since one was not possible */
	uint64_t pause_ns;    /* between the last such attempt and retry_ns */
	uint64_t tried_bytes; /* for which there was room at that attempt: with more room, the next one need not wait */
};

/* Memory went to the host. */
void gp_spill_calm_note_out(struct gp_spill_calm *calm, uint64_t now_ns);

/* Notes that there is room for these bytes now. Returns how many of them should come back at once. */
uint64_t gp_spill_calm_look(struct gp_spill_calm *calm, uint64_t now_ns, uint64_t room_bytes);

/* These bytes have come back. 0: none could. */
void gp_spill_calm_note_back(struct gp_spill_calm *calm, uint64_t now_ns, uint64_t bytes);
