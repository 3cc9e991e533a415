/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What the files of the soak program share.
 *
 * The program knows CUDA alone: it runs on the simulated GPU and on a real one, without gpupool and with it. Many
 * threads do random operations on the same contexts, streams and blocks. It makes no race of its own: a block belongs
 * to one thread at a time, and is worked on by one stream until the work is known to be done. So whatever is found
 * racing, or wrong, was done to it.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/apps/cuda_min.h"
#include "tests/sim/abi.h"

#define KIB          ((size_t)1 << 10)
#define MIB          ((size_t)1 << 20)
#define LENGTH(list) (sizeof(list) / sizeof(*(list)))

enum {
	SOAK_DEVICES_MAX = 4,
	SOAK_CONTEXTS_MAX = SOAK_DEVICES_MAX + 1,
	SOAK_STREAMS = 5,    /* of each context; the first is the legacy default stream */
	SOAK_SLOTS = 64,     /* blocks on their way from one thread to another */
	SOAK_OWN = 6,        /* blocks of a thread */
	SOAK_THREADS_MAX = 64,
};

/* A driver call that must succeed; otherwise the program ends. */
#define SOAK_MUST(call) soak_must(call, #call)
void soak_must(int result, const char *call);

/* Something is wrong: says what, once for each kind of thing, and the program ends with 1. */
void soak_wrong(const char *what, unsigned long long value);
unsigned soak_n_wrong(void);

/* What a run counts beside its operations. */
enum soak_count {
	SOAK_REFUSED,  /* by a driver that is capturing */
	SOAK_OOM,      /* out of memory */
	SOAK_SPOILT,   /* captures that did not come out whole */
	SOAK_CAPTURES, /* those that did */
	SOAK_ENDED,    /* contexts that ended with memory in them */
	SOAK_EXPORTS,  /* blocks offered to other processes */
	SOAK_INFLIGHT, /* blocks freed as soon as the GPU began to use them */
	SOAK_CHECKS,   /* of blocks */
	SOAK_CLIENTS,  /* of the control socket */
	SOAK_KILLED,   /* of these */
	SOAK_N_COUNTS
};
extern _Atomic uint64_t soak_counts[SOAK_N_COUNTS];
void soak_count(enum soak_count which);

/* The program's own access to pinned memory, for the race detector of the simulated GPU. */
void soak_host_access(const void *ptr, size_t bytes, bool is_write);

/* Random numbers, a sequence for each thread. */
struct soak_random {
	uint64_t state;
};
uint32_t soak_random(struct soak_random *random);
bool soak_one_in(struct soak_random *random, unsigned n);
size_t soak_random_bytes(struct soak_random *random); /* 1 byte to some MiB; small ones are more frequent */

/* context.c */
struct soak_stream {
	pthread_mutex_t lock; /* held by who submits */
	CUstream handle;
	uint64_t generation; /* of the handle */
	uint64_t lost;       /* the last generation that went without anybody waiting for its work */
};

struct soak_context {
	CUcontext handle;
	int device;
	CUfunction fill, spin_fill, count_wrong;
	CUdeviceptr wrong; /* the words that all count_wrong found */
	struct soak_stream streams[SOAK_STREAMS];
};

extern struct soak_context soak_contexts[SOAK_CONTEXTS_MAX];
extern unsigned soak_n_contexts;

/* The contexts of a phase: a primary one for each device, and one more that was created. */
void soak_contexts_open(void);
void soak_contexts_close(void); /* checks what was counted; the created one goes with what is in it */

/* Kernels, and the counter, of the current context; false if there was no memory for that. */
bool soak_context_init(struct soak_context *context);

/* Waits for all work of the current context and says if words were wrong. */
void soak_context_check(struct soak_context *context);

void soak_use_context(const struct soak_context *context); /* makes it current, if it is not */

/*
 * Held shared by whoever makes a call that the driver refuses during a capture in the global mode, and does not expect
 * that; held alone by the capture.
 */
extern pthread_rwlock_t soak_calm;

/* block.c */
struct soak_block {
	CUdeviceptr ptr; /* 0: none */
	size_t bytes;
	unsigned context, stream;
	uint64_t generation; /* of the stream, when it worked on the block last */
	uint32_t value, words; /* what the block begins with; 0 words: nothing is known */
};

CUdeviceptr soak_alloc(size_t bytes); /* 0: none left, or refused */
uint32_t *soak_take_pinned(size_t bytes); /* or NULL */
bool soak_block_take(struct soak_block *block, unsigned context, size_t bytes, struct soak_random *random);
void soak_block_fill(struct soak_block *block, struct soak_random *random);
void soak_block_check(const struct soak_block *block);
void soak_block_drop(struct soak_block *block, struct soak_random *random); /* refused: it is still there */
void soak_block_upload(struct soak_block *block, struct soak_random *random);
void soak_block_download(const struct soak_block *block, struct soak_random *random);
void soak_stream_renew(unsigned context, struct soak_random *random);

/* Puts a fill of the block's first words into the stream, whose lock is held; the driver's result. */
CUresult soak_fill_locked(const struct soak_block *block, CUstream stream, struct soak_random *random);
CUresult soak_slow_fill_locked(const struct soak_block *block, CUstream stream, uint64_t ns); /* after so long */

/* inflight.c: graphs whose block belongs to the thread that frees it as soon as the GPU says that they run */
void soak_inflight_launch(struct soak_block *block, struct soak_random *random);
void soak_inflight_free(struct soak_block *own, struct soak_random *random); /* an empty own block may be filled */
void soak_inflight_end(void); /* of a phase, with no other thread there: frees all of them */

/* rare.c */
/* Captures a fill of the block, with memory that comes and goes meanwhile, and replays the graph. */
void soak_block_capture(struct soak_block *block, struct soak_random *random);

/* A context of its own, with blocks in it, from its birth to its end. */
void soak_visit_context(struct soak_random *random);

/* control.c: the control socket, if this process has one. */
void soak_control_start(uint64_t seed); /* before CUDA and threads: clients need a process of their own */
void soak_control_client(void);         /* one more of them */
void soak_control_stop(void);           /* waits for the last of them */

/* Asks for the status and compares it with what the program holds on each device, and in pinned memory. */
void soak_control_compare(const uint64_t requested[SOAK_DEVICES_MAX]);
