/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A player is a program that allocates and frees in the patterns in which programs do, through one peer: a way to get
 * GPU memory. Each peer_*.c, .cpp or .cu defines bench_peer, and becomes a player with the other sources.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each returns 0 or an error of the peer's own. Streams are CUDA's; NULL is the default stream. */
struct bench_peer {
	int (*init)(void); /* in the first thread, and makes device 0 current */
	int (*thread_init)(void);
	int (*alloc)(void **ptr, size_t bytes, void *stream);
	int (*free)(void *ptr, size_t bytes, void *stream);
	/* May be NULL: this peer has nothing for pinned memory. */
	int (*pinned_alloc)(void **ptr, size_t bytes);
	int (*pinned_free)(void *ptr);
};

extern const struct bench_peer bench_peer;

enum { BENCH_THREADS_MAX = 64, BENCH_STREAMS_MAX = 64, BENCH_RING_SIZE = 256, BENCH_APART = 128 };

/* What a player is asked to do, a line of key=value words. */
struct bench_request {
	char pattern[16];
	size_t bytes;       /* of a block; 0 for a mixture from 512 B to 1 MiB */
	unsigned live;      /* blocks alive at a time, of each thread */
	unsigned held;      /* more blocks that live all the time */
	unsigned cached;    /* blocks that are freed before, between others that stay */
	unsigned threads;   /* 0 is the first thread alone, as 1 */
	unsigned streams;   /* created before */
	unsigned contexts;  /* created before, besides the one that is used */
	unsigned kernel_us; /* of the patterns with kernels */
};

struct bench_slot {
	void *ptr;
	size_t bytes;
};

/* A place in the window, and a size of the mixture. */
struct bench_draw {
	uint32_t slot, bytes;
};

/* From one thread to one other. */
struct bench_ring {
	struct bench_slot slots[BENCH_RING_SIZE];
	unsigned head __attribute__((aligned(BENCH_APART))); /* written by the producer */
	unsigned tail __attribute__((aligned(BENCH_APART))); /* written by the consumer */
};

/*
 * What one thread works with, and what it finds. Two lines apart from that of any other, since processors fetch lines
 * in pairs: what is measured is the peer, not threads that wait for each other's notes.
 */
struct bench_lane {
	const struct bench_request *request __attribute__((aligned(BENCH_APART)));
	struct bench_slot *slots; /* of the window or batch */
	struct bench_ring *ring;
	struct bench_draw *draws;  /* over and over */
	unsigned n_draws, n_drawn; /* the first is a power of two */
	unsigned turn;
	uint64_t pairs;
	double start_ns, end_ns, cpu_ns;
	int error;
};

struct bench_pattern {
	const char *name;
	/* Does about n pairs, returns how many. */
	unsigned (*step)(struct bench_lane *lane, unsigned n);
	bool has_window; /* filled before */
	bool has_kernels;
	bool is_pinned;
	bool is_handed_over; /* between two threads each */
};

const struct bench_pattern *bench_pattern_find(const char *name);

/* Allocates, of the size that is asked for, or the next of the mixture. Sets lane->error. */
bool bench_slot_fill(struct bench_lane *lane, struct bench_slot *slot, bool is_pinned);
void bench_slot_empty(struct bench_lane *lane, struct bench_slot *slot, bool is_pinned);

/* Steps for so long, and a little more. */
void bench_lane_run(struct bench_lane *lane, const struct bench_pattern *pattern, double ns);

/* How many draws reach nearly all of so many places. */
unsigned bench_draws_for(unsigned live);

/*
 * Draws all that is random in what the lane will do; the seed is not 0. Beforehand, since a generator and a division in
 * the loop would be measured with the rest: up to 3 ns of 40.
 */
void bench_lane_draw(struct bench_lane *lane, uint64_t seed);

#ifdef __cplusplus
}
#endif
