/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Work of the GPU and its order. A piece of work starts when all work that it follows has finished. It
 * samples the bytes that it reads at its start, and writes at its end, when its duration is over on
 * the virtual clock.
 */

#include "clock.h"
#include "sim.h"

struct sim_ctx;
struct sim_stream;
struct sim_block;

enum sim_access_kind { SIM_READ, SIM_WRITE, SIM_ATOMIC };

struct sim_access {
	uint64_t lo, hi;
	enum sim_access_kind kind;
};

enum sim_op_kind {
	SIM_MARK,      /* only a point in the order of work */
	SIM_FILL,      /* repeat a value of `width` bytes over dst */
	SIM_COPY,      /* src to dst; staged holds the bytes if the source was pageable memory */
	SIM_COUNT,     /* add to dst the number of words in src that differ from value */
	SIM_WAIT_FLAG, /* spin until the word at src equals value */
	SIM_HOST_FUNC,
	SIM_RELEASE, /* frees the block at this point */
	SIM_TRAP,    /* faults the context */
};

struct sim_op {
	enum sim_op_kind kind;
	const char *name;
	uint64_t dst, src, bytes, duration_ns;
	uint32_t value;
	unsigned width, n_accesses;
	struct sim_access accesses[2];
	void *staged;
	CUhostFn fn;
	void *user_data;
	struct sim_block *block;
	bool is_between;     /* a copy between devices, which needs no access of the device that makes it */
	struct sim_ctx *ctx; /* of a copy or a memset that was added to a graph; NULL: that of the stream */
};
void sim_op_touch(struct sim_op *op, uint64_t lo, uint64_t bytes, enum sim_access_kind kind);

enum sim_work_state { SIM_QUEUED, SIM_RUNNING, SIM_POLLING, SIM_DONE };

struct sim_work {
	struct sim_op op;
	struct sim_ctx *ctx;
	struct sim_stream *stream;    /* only while unfinished; NULL for context-wide marks */
	struct sim_work *prev, *next; /* unfinished work of the context */
	struct sim_work *next_polling;
	struct sim_work **followers;
	unsigned n_followers, followers_capacity;
	unsigned refs, waits_for;
	enum sim_work_state state;
	bool dropped; /* its context has ended or faulted, so it has no effect */
	bool called;  /* the host function has returned */
	uint64_t number, finished_ns;
	void *sample;
	uint64_t counted;
	unsigned stream_number;
};

/*
 * Returns a new piece of work with one reference for the caller, who calls sim_work_after for each
 * predecessor and then sim_work_submit.
 */
struct sim_work *sim_work_new(struct sim_ctx *ctx, const struct sim_op *op);
void sim_work_after(struct sim_work *work, struct sim_work *predecessor); /* NULL is allowed */
void sim_work_submit(struct sim_work *work);
struct sim_work *sim_work_ref(struct sim_work *work);
struct sim_work *sim_work_unref(struct sim_work *work); /* returns NULL */
void sim_work_replace(struct sim_work **slot, struct sim_work *work);
bool sim_work_done(const struct sim_work *work); /* also true for NULL */
void sim_work_drop(struct sim_work *work);

/* The timeline calls these at the start and at the end of a piece of work. */
void sim_work_start(struct sim_work *work);
void sim_work_finish(struct sim_work *work);
void sim_work_poll_flags(void);
bool sim_work_polls_shared_memory(void);

/*
 * effect.c: reads of work at its start, and its effect at its end. sim_effect_check returns false for an
 * invalid address. sim_effect_bring moves managed memory to the device, and returns the time in ns.
 */
bool sim_effect_check(struct sim_work *work);
bool sim_effect_may_touch(const struct sim_ctx *ctx, const struct sim_block *block); /* other work than copies */
bool sim_effect_may_copy(const struct sim_ctx *ctx, const struct sim_block *block);  /* not between devices */
void sim_effect_sample(struct sim_work *work);
uint64_t sim_effect_bring(struct sim_work *work);
void sim_effect_apply(struct sim_work *work);
bool sim_effect_flag_is_set(const struct sim_work *work);

/* hostfunc.c */
void sim_host_func_run(struct sim_work *work);

/* timeline.c: the virtual clock. */
uint64_t sim_now(void);
void sim_timeline_add(struct sim_work *work, uint64_t at_ns);
void sim_timeline_pass(uint64_t ns);
void sim_timeline_progress(void); /* reports progress: waiting threads check their conditions again */

/*
 * Lets time pass, and other threads work, until blocked() returns false. Returns
 * CUDA_ERROR_LAUNCH_TIMEOUT if the wait can never end. The contexts that hung have faulted then.
 */
CUresult sim_wait_while(bool (*blocked)(const void *arg), const void *arg);
CUresult sim_wait_for(const struct sim_work *work);
void sim_wait_polled(void); /* call this when a query finds unfinished work; it detects a program that only polls */
