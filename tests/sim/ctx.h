/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Devices, contexts, streams, events, captures and graphs, and how handles become them. */

#include "memory.h"
#include "work.h"

/* What a handle points at. Objects are never unmapped, so that a stale handle is seen to be one. */
enum sim_magic {
	SIM_DEAD = 0,
	SIM_CTX = 0x43545831,
	SIM_STREAM = 0x53545231,
	SIM_EVENT = 0x45564e31,
	SIM_GRAPH = 0x47524831,
	SIM_EXEC = 0x47455831,
	SIM_MODULE = 0x4d4f4431,
	SIM_FUNCTION = 0x46554e31,
	SIM_ARRAY = 0x41525231,
	SIM_PHYSICAL = 0x50485931,
	SIM_GREEN = 0x47524e31,
	SIM_GREEN_CTX = 0x47435831, /* the CUcontext of a green context */
	SIM_RESOURCES = 0x52534331,
};
struct sim_object {
	uint32_t magic;
	struct sim_object *next_free;
};
void *sim_object_new(enum sim_magic magic, size_t size); /* zeroed but for the magic */
void sim_object_free(void *object);
void *sim_object_of(const void *handle, enum sim_magic magic); /* NULL if it is not one */

struct sim_capture;
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
	struct { /* streams that were destroyed, [non-blocking ones] taken together */
		struct sim_work *tail;
		struct sim_clock clock;
	} departed[2];
};

struct sim_stream {
	struct sim_object object;
	struct sim_ctx *ctx;
	struct sim_family *family;
	struct sim_stream *prev, *next; /* of the context */
	struct sim_thread *thread;      /* whose default it is, or NULL */
	struct sim_stream *next_of_thread;
	unsigned number, lane, unfinished;
	bool non_blocking, is_default;
	struct sim_work *tail;
	struct sim_clock clock;
	struct sim_capture *capture;
	bool unjoined; /* has captured what the capture's origin has not waited for */
	unsigned captured_ops;
	struct sim_block
		*returning; /* freed by cuMemFreeAsync, given back at the next synchronisation */
};

struct sim_ctx {
	struct sim_object object;
	struct sim_device *device;
	struct sim_ctx *next; /* of all that ever were */
	uint64_t id;
	bool alive, primary;
	unsigned refs, refs_before_reset, flags;
	unsigned attached; /* times that cuCtxAttach has raised the usage count above one */
	CUresult sticky;
	struct sim_family own;
	struct sim_stream *streams;
	struct sim_work *works; /* unfinished */
	unsigned waiting_frees; /* threads inside cuMemFree: no launch gets through */
	unsigned peers;         /* bit per device whose primary or other contexts it may touch */
	struct sim_slab *slabs;
};

struct sim_event {
	struct sim_object object;
	struct sim_ctx *ctx;
	bool timing, recorded;
	bool interprocess;
	struct sim_share *share; /* once it has a handle */
	struct sim_work *mark;
	struct sim_clock clock;
	uint64_t captured_in; /* id of the capture that recorded it, or 0 */
	const struct sim_stream *captured_by;
	unsigned captured_at;
	struct sim_event *next, *prev; /* of the context */
};

/* context.c */
extern struct sim_ctx *sim_contexts;
struct sim_ctx *sim_ctx_new(struct sim_device *device, bool primary, unsigned flags);
CUresult sim_ctx_open(struct sim_ctx *ctx);
void sim_ctx_close(struct sim_ctx *ctx); /* frees all that it owns */
void sim_ctx_fault(struct sim_ctx *ctx, CUresult code);
CUresult sim_ctx_check(struct sim_ctx *ctx);
CUresult sim_ctx_current(struct sim_ctx **ctx);
CUresult sim_ctx_of(CUcontext handle, struct sim_ctx **ctx);
CUresult sim_ctx_synchronize(struct sim_ctx *ctx);
uint64_t sim_ctx_next_id(void);
bool sim_ctx_may_touch(const struct sim_ctx *ctx, const struct sim_ctx *owner);

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

/* primary.c */
CUresult sim_primary_retain(struct sim_ctx *ctx);
CUresult sim_primary_release(struct sim_ctx *ctx);

/* green.c */
struct sim_green {
	struct sim_object object, as_ctx;
	struct sim_family family;
	bool alive;
	uint64_t id;
	unsigned sms;
};
bool sim_greens_live(const struct sim_ctx *ctx);

/* thread.c: what belongs to a host thread. */
struct sim_thread {
	uint64_t id;
	struct sim_family **stack;
	unsigned depth, capacity;
	int capture_mode;
	struct sim_stream *defaults;
	bool in_host_func;
	struct sim_call *call;
};
struct sim_thread *sim_thread_self(void);

/* stream.c */
struct sim_stream *sim_stream_new(struct sim_family *family, bool non_blocking);
void sim_stream_free(struct sim_stream *stream);
CUresult sim_stream_of(CUstream handle, bool per_thread, struct sim_stream **stream);
CUresult sim_stream_submit(struct sim_stream *stream, const struct sim_op *op);
CUresult sim_stream_push(
	struct sim_stream *stream, const struct sim_op *op, struct sim_work *also_after);
CUresult sim_stream_wait(struct sim_stream *stream);

/* event.c */
struct sim_event *sim_event_new(struct sim_ctx *ctx, unsigned flags);
void sim_event_free(struct sim_event *event);
void sim_events_close(struct sim_ctx *ctx);

/* module.c */
void sim_modules_close(struct sim_ctx *ctx);
