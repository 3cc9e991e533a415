/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Families of streams: those of a context, and those of its green contexts. */

#include "object.h"
#include "work.h"

struct sim_green;

/*
 * Streams that know of each other: those of a context, or of a green context in it. A family is
 * also what can be current to a thread. The context's own stands for the whole context where all
 * work is meant; a green one's stands for itself alone.
 */
struct sim_family {
	struct sim_ctx *ctx;
	struct sim_green *green; /* NULL: the context's own */
	struct sim_family *next; /* of the context, whose own is the first */
	struct sim_stream *legacy;
	struct sim_work *gate; /* all later work follows it */
	struct sim_clock gate_clock;
	struct sim_work *recorded; /* the latest record that covers it */
	struct { /* streams that were destroyed, [non-blocking ones] taken together */
		struct sim_work *tail;
		struct sim_clock clock;
	} departed[2];
};

/* family.c */
void sim_family_open(struct sim_family *family, struct sim_ctx *ctx, struct sim_green *green);
void sim_family_close(struct sim_family *family);
CUresult sim_family_check(const struct sim_family *family);
CUresult sim_family_current(struct sim_family **family);
CUresult sim_family_of(CUcontext handle, struct sim_family **family); /* NULL: the current one */
struct sim_family *sim_family_named(CUcontext handle); /* dead or alive; NULL if it is none */
CUcontext sim_family_handle(struct sim_family *family);
CUresult sim_family_synchronize(struct sim_family *family);
CUresult sim_family_record(struct sim_family *family, CUevent event);
CUresult sim_family_wait(struct sim_family *family, CUevent event);

/* green.c */
struct sim_green {
	struct sim_object object, as_ctx;
	struct sim_family family;
	bool alive;
	uint64_t id;
	unsigned sms;
};
bool sim_greens_live(const struct sim_ctx *ctx);
