/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Declarations that the files of the soak program share.
 *
 * The program uses CUDA only: it runs on the simulated GPU and on a real one, without gpupool and with it. Many threads
 * do random operations on the same contexts, streams and blocks. The program itself has no race: a block belongs to one
 * thread at a time, and one stream works on it until that work has completed. Any race or wrong value is therefore the
 * fault of gpupool or of the simulator.
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
	SOAK_STREAMS = 5, /* in each context; the first is the legacy default stream */
	SOAK_SLOTS = 64,  /* for blocks that one thread leaves for another */
	SOAK_OWN = 6,     /* slots for blocks of each thread */
	SOAK_THREADS_MAX = 64,
};

/* Makes a call that must return 0. If it does not, the program ends with 70. */
#define SOAK_MUST(call) soak_must(call, #call)
void soak_must(int result, const char *call);

/* Reports a failed check. The program continues, and exits with 1 at its end. */
void soak_wrong(const char *what, unsigned long long value);
unsigned soak_n_wrong(void);

/* Counters of a run, apart from its operations. */
enum soak_count {
	SOAK_REFUSED,     /* calls that the driver refused during a capture */
	SOAK_OOM,         /* allocations that failed with out of memory */
	SOAK_INVALIDATED, /* captures that were invalidated */
	SOAK_CAPTURES,    /* captures that succeeded */
	SOAK_ENDED,       /* contexts that ended with memory in them */
	SOAK_EXPORTS,     /* blocks exported to other processes */
	SOAK_INFLIGHT,    /* blocks freed as soon as the GPU began to use them */
	SOAK_CHECKS,      /* comparisons of a block's words */
	SOAK_CLIENTS,     /* clients of the control socket */
	SOAK_KILLED,      /* clients that were killed */
	SOAK_N_COUNTS
};
extern _Atomic uint64_t soak_counts[SOAK_N_COUNTS];
void soak_count(enum soak_count which);

/* Reports an access of the program to pinned memory to the race detector of the simulated GPU. */
void soak_host_access(const void *ptr, size_t bytes, bool is_write);

/* Random numbers, a sequence for each thread. */
struct soak_random {
	uint64_t state;
};
uint32_t soak_random(struct soak_random *random);
bool soak_one_in(struct soak_random *random, unsigned n);
size_t soak_random_bytes(struct soak_random *random); /* 1 byte to some MiB; small sizes are more frequent */

/*
 * Half of the processes have primary contexts only, and allocate in stream order too: gpupool serves no such allocation
 * once the program has created a context.
 */
extern bool soak_is_in_stream_order;

/* context.c */
struct soak_stream {
	pthread_mutex_t lock; /* held by the thread that submits */
	CUstream handle;
	uint64_t generation; /* counts the streams that this slot has had */
	uint64_t lost;       /* the last generation that was destroyed without waiting for its work */
};

struct soak_context {
	CUcontext handle;
	int device;
	CUfunction fill, spin_fill, count_wrong;
	CUdeviceptr wrong; /* number of wrong words that the count_wrong kernels found, on the device */
	struct soak_stream streams[SOAK_STREAMS];
};

extern struct soak_context soak_contexts[SOAK_CONTEXTS_MAX];
extern unsigned soak_n_contexts;

/* Opens the contexts of a phase: the primary context of each device, and one created context if there may be any. */
void soak_contexts_open(void);
void soak_contexts_close(void); /* checks the counters; the created context is destroyed with the memory in it */

/* Loads the kernels and allocates the counter of the current context. Returns false if there was no memory for it. */
bool soak_context_init(struct soak_context *context);

/* Waits for all work of the current context, and reports the number of wrong words if there are any. */
void soak_context_check(struct soak_context *context);

void soak_use_context(const struct soak_context *context); /* makes it current if it is not */

/*
 * A thread holds this lock shared during calls that the driver refuses while another thread captures in the global
 * mode, if it does not handle that error. A thread that captures in the global mode holds it exclusively.
 */
extern pthread_rwlock_t soak_capture_lock;

/* block.c */
struct soak_block {
	CUdeviceptr ptr; /* 0: none */
	size_t bytes;
	unsigned context, stream;
	uint64_t generation;   /* generation of the stream that worked on the block last */
	uint32_t value, words; /* the block begins with the value, this many times; 0 words: not known */
	bool is_in_stream_order;
};

CUdeviceptr soak_alloc(size_t bytes);      /* returns 0 if out of memory, or refused during a capture */
uint32_t *soak_alloc_pinned(size_t bytes); /* returns NULL if refused during a capture */
bool soak_block_alloc(struct soak_block *block, unsigned context, size_t bytes, struct soak_random *random);
void soak_block_fill(struct soak_block *block, struct soak_random *random);
void soak_block_check(const struct soak_block *block);
void soak_block_free(struct soak_block *block, struct soak_random *random); /* frees it, unless a capture forbids */
void soak_block_upload(struct soak_block *block, struct soak_random *random);
void soak_block_download(const struct soak_block *block, struct soak_random *random);
void soak_stream_renew(unsigned context, struct soak_random *random);

/* Submits a fill of the block's first words to the stream, whose lock is held. Returns the driver's result. */
CUresult soak_fill_locked(const struct soak_block *block, CUstream stream, struct soak_random *random);
CUresult soak_slow_fill_locked(const struct soak_block *block, CUstream stream, uint64_t ns); /* spins for ns first */

/* inflight.c: graphs whose block is freed by another thread as soon as the GPU begins to run them */
void soak_inflight_launch(struct soak_block *block, struct soak_random *random);
void soak_inflight_free(struct soak_block *own, struct soak_random *random); /* may fill the slot own if it is empty */
void soak_inflight_end(void); /* frees all their blocks at the end of a phase, after its threads have ended */

/* rare.c */
/* Captures a fill of the block, may allocate and free during the capture, and launches the graph. */
void soak_block_capture(struct soak_block *block, struct soak_random *random);

/* Creates a context, uses blocks in it, and destroys it. */
void soak_visit_context(struct soak_random *random);

/* control.c: clients of the control socket, if this process has one. */
void soak_control_start(uint64_t seed); /* call before CUDA and threads start: it forks the process that runs clients */
void soak_control_client(void);         /* starts a client */
void soak_control_stop(void);           /* waits for the last client */

/* Asks for the status and compares it with the bytes that the program holds on each device, and in pinned memory. */
void soak_control_compare(const uint64_t requested[SOAK_DEVICES_MAX]);
