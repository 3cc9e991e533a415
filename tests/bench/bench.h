/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A peer is a way to get GPU memory, such as cudaMallocAsync. A player is a program that allocates and frees through
 * one peer, in patterns of real programs. Each peer_*.c, .cpp or .cu defines bench_peer, and is linked with the other
 * sources into a player.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each function returns 0 or the peer's own error code. Streams are CUDA streams; NULL is the default stream. */
struct bench_peer {
	int (*init)(void); /* is called in the first thread, and makes device 0 current */
	int (*thread_init)(void);
	int (*alloc)(void **ptr, size_t bytes, void *stream);
	int (*free)(void *ptr, size_t bytes, void *stream);
	/* NULL if this peer cannot allocate pinned memory. */
	int (*pinned_alloc)(void **ptr, size_t bytes);
	int (*pinned_free)(void *ptr);
};

extern const struct bench_peer bench_peer;

enum { BENCH_THREADS_MAX = 64, BENCH_STREAMS_MAX = 64, BENCH_RING_SIZE = 256, BENCH_ALIGNMENT = 128 };

/* A request to a player, parsed from a line of key=value words. */
struct bench_request {
	char pattern[16];
	size_t bytes;       /* size of a block; 0 for mixed sizes from 512 B to 1 MiB */
	unsigned live;      /* live blocks of each thread */
	unsigned held;      /* additional blocks that stay live */
	unsigned cached;    /* blocks freed beforehand, each between two that stay */
	unsigned threads;   /* 0 and 1: only the first thread */
	unsigned streams;   /* created beforehand */
	unsigned contexts;  /* created beforehand, besides the context in use */
	unsigned kernel_us; /* duration of a kernel, in the patterns with kernels */
};

struct bench_slot {
	void *ptr;
	size_t bytes;
};

/* A random slot of the window, and a random size of the mixed sizes. */
struct bench_draw {
	uint32_t slot, bytes;
};

/* Blocks on their way from one thread to another. */
struct bench_ring {
	struct bench_slot slots[BENCH_RING_SIZE];
	unsigned head __attribute__((aligned(BENCH_ALIGNMENT))); /* written by the producer */
	unsigned tail __attribute__((aligned(BENCH_ALIGNMENT))); /* written by the consumer */
};

/*
 * The state and results of one thread. Lanes lie two cache lines apart, since processors fetch lines in pairs: false
 * sharing between lanes would be measured as time of the peer.
 */
struct bench_lane {
	const struct bench_request *request __attribute__((aligned(BENCH_ALIGNMENT)));
	struct bench_slot *slots; /* the window or batch */
	struct bench_ring *ring;
	struct bench_draw *draws;  /* used again from the start after the last */
	unsigned n_draws, n_drawn; /* the first is a power of two */
	unsigned turn;             /* counts the uses of streams; in a handover 1 for the thread that frees */
	uint64_t pairs;
	double start_ns, end_ns, cpu_ns;
	int error;
};

struct bench_pattern {
	const char *name;
	/* Does about n pairs, and returns their number. */
	unsigned (*step)(struct bench_lane *lane, unsigned n);
	bool has_window; /* the slots are filled before the first step */
	bool has_kernels;
	bool is_pinned;
	bool is_handed_over; /* threads work in pairs */
};

const struct bench_pattern *bench_pattern_find(const char *name);

/* Allocates a block of the requested size, or of the next of the mixed sizes. Sets lane->error. */
bool bench_slot_fill(struct bench_lane *lane, struct bench_slot *slot, bool is_pinned);
void bench_slot_empty(struct bench_lane *lane, struct bench_slot *slot, bool is_pinned);

/* Steps until at least ns nanoseconds have passed. */
void bench_lane_run(struct bench_lane *lane, const struct bench_pattern *pattern, double ns);

/* The number of random draws after which nearly every one of the live slots was drawn. */
unsigned bench_draws_for(unsigned live);

/*
 * Draws the lane's random slots and sizes; the seed is not 0. They are drawn beforehand, since a generator and a
 * division in the loop would add up to 3 ns to a pair of 40 ns.
 */
void bench_lane_draw(struct bench_lane *lane, uint64_t seed);

#ifdef __cplusplus
}
#endif
