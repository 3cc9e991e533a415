/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Devices, contexts, streams, events, captures and graphs. */

#include "family.h"
#include "memory.h"
#include "work.h"

struct sim_capture;

struct sim_stream {
	struct sim_object object;
	struct sim_ctx *ctx;
	struct sim_family *family;
	struct sim_stream *prev, *next; /* of the context */
	struct sim_thread *thread;      /* the thread whose default stream this is, or NULL */
	struct sim_stream *next_of_thread;
	unsigned number, lane, unfinished;
	bool non_blocking, is_default;
	struct sim_work *tail;
	struct sim_clock clock;
	struct sim_stream *early; /* for kernels that do not wait for earlier work of this stream */
	struct sim_capture *capture;
	bool unjoined; /* the capture's origin has not waited for all work that this stream has captured */
	unsigned captured_ops;
	struct sim_block *freed_blocks; /* freed by cuMemFreeAsync, released at the next synchronisation */
};

struct sim_ctx {
	struct sim_object object;
	struct sim_device *device;
	struct sim_ctx *next; /* in the list of all contexts, including those that have ended */
	uint64_t id;
	bool alive, closing, primary;
	unsigned refs, refs_before_reset, flags;
	unsigned attached; /* times that cuCtxAttach has raised the usage count above one */
	CUresult sticky;
	struct sim_family own;
	struct sim_stream *streams;
	struct sim_work *works; /* unfinished */
	unsigned waiting_frees; /* threads inside cuMemFree: launches wait for them */
	unsigned peers;         /* a bit for each device whose memory it may touch */
	struct sim_slab *slabs;
};

struct sim_event {
	struct sim_object object;
	struct sim_ctx *ctx;
	bool timing, recorded;
	bool interprocess;
	struct sim_share *share; /* NULL until the event has an IPC handle */
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

/* primary.c */
CUresult sim_primary_retain(struct sim_ctx *ctx);
CUresult sim_primary_release(struct sim_ctx *ctx);
CUresult sim_set_current(CUcontext handle);

/* thread.c: the state of a host thread. */
struct sim_thread {
	uint64_t id, jitter;
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
CUresult sim_stream_push(struct sim_stream *stream, const struct sim_op *op, struct sim_work *also_after);
CUresult sim_stream_wait(struct sim_stream *stream);

/* event.c */
struct sim_event *sim_event_new(struct sim_ctx *ctx, unsigned flags);
void sim_event_free(struct sim_event *event);
void sim_events_close(struct sim_ctx *ctx);

/* module.c */
void sim_modules_close(struct sim_ctx *ctx);
