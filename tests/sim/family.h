/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Families of streams: the streams of a context or of a green context. */

#include "object.h"
#include "work.h"

struct sim_green;

/*
 * The streams of a context, or of a green context in it. The current context of a thread is a family.
 * For calls that cover all work, the context's own family includes its green contexts. The family of
 * a green context covers itself alone.
 */
struct sim_family {
	struct sim_ctx *ctx;
	struct sim_green *green; /* NULL: the context's own family */
	struct sim_family *next; /* in the context's list, which its own family heads */
	struct sim_stream *legacy;
	struct sim_work *gate; /* all later work of the family follows it */
	struct sim_clock gate_clock;
	struct sim_work *recorded; /* the latest record that covers it */
	struct {                   /* work of destroyed streams: [false] of blocking, [true] of non-blocking ones */
		struct sim_work *tail;
		struct sim_clock clock;
	} destroyed_work[2];
};

/* family.c */
void sim_family_open(struct sim_family *family, struct sim_ctx *ctx, struct sim_green *green);
void sim_family_close(struct sim_family *family);
CUresult sim_family_check(const struct sim_family *family);
CUresult sim_family_current(struct sim_family **family);
CUresult sim_family_of(CUcontext handle, struct sim_family **family); /* NULL: the current one */
struct sim_family *sim_family_named(CUcontext handle);                /* also of ended contexts; NULL if invalid */
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
