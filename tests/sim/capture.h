/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Stream captures. While a stream captures, work that is submitted to it goes into a graph instead.
 * Three kinds of calls conflict with captures:
 *
 * - calls that conflict with every capture of a context, whatever the mode (sim_capture_refuse),
 * - calls that are unsafe, which some capture modes allow (sim_capture_unsafe),
 * - uses of the legacy stream (sim_capture_implicit).
 */

#include "ctx.h"

/* A user object: its destructor is called when the last reference is released. */
struct sim_user {
	struct sim_object object;
	void *ptr;
	CUhostFn destroy;
	unsigned n_refs;
};

struct sim_user_ref {
	struct sim_user *user;
	unsigned count;
};

struct sim_graph {
	struct sim_object object;
	struct sim_op *ops; /* in the order of capture, which is also the order of execution */
	unsigned n, capacity;
	struct sim_user_ref *refs; /* to user objects */
	unsigned n_refs, refs_capacity;
	struct sim_node **nodes; /* that the program has added */
	unsigned n_nodes, nodes_capacity;
	bool is_exec;
};

struct sim_capture {
	struct sim_capture *next;
	uint64_t id;
	uint64_t thread;
	int mode;
	bool invalid;
	bool to_graph; /* the graph belongs to the caller, and outlives a failed capture */
	struct sim_stream *origin;
	struct sim_graph *graph;
};

CUresult sim_capture_refuse(const struct sim_family *family);
CUresult sim_capture_unsafe(void);
CUresult sim_capture_implicit(struct sim_stream *stream); /* 906 if the legacy stream would join a capture */
void sim_capture_invalidate(struct sim_capture *capture);
CUresult sim_capture_add(struct sim_stream *stream, const struct sim_op *op);
CUresult sim_capture_join(struct sim_stream *stream, const struct sim_event *event);
void sim_capture_leave(struct sim_stream *stream);
void sim_captures_close(struct sim_ctx *ctx);

struct sim_graph *sim_graph_new(void);
void sim_graph_free(struct sim_graph *graph);
void sim_graph_add(struct sim_graph *graph, const struct sim_op *op);
void sim_nodes_free(struct sim_graph *graph);

/* copy.c: the operation of a node in that context. */
CUresult sim_copy_build(struct sim_ctx *ctx, uint64_t dst, uint64_t src, size_t bytes, struct sim_op *op);
CUresult sim_fill_build(struct sim_ctx *ctx, uint64_t dst, uint32_t value, unsigned width, size_t n, struct sim_op *op);
