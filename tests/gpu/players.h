/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The players of the stream matrix: their data, and the check of their blocks. */

#include "lanes.h"

#include <cstdint>
#include <memory>
#include <random>
#include <unordered_set>

enum {
	GROUP_MAX = 5,
	SLOTS_MAX = 16384,
	N_SOURCES = 4,
	N_BACKGROUND = 2,
};

static const size_t BLOCK_MAX = 16 << 20;

/* A block that a player holds, and the byte with which it is filled. */
struct slot {
	uint8_t *p;
	size_t bytes;
	uint8_t expected;
};

struct block_check {
	const uint8_t *p;
	size_t bytes;
	unsigned long long wrong;
	uint8_t expected;
};

struct round {
	struct slot *slot;
	const uint8_t *old_p;
	size_t old_bytes;
	struct lane *old_lane, *new_lane;
	cudaEvent_t old_done;
	/* The block was handed out under unfinished work of the old owner, which CUDA itself does not order. */
	bool is_exposed;
};

struct counters {
	unsigned long long rounds, reused, inflight, exposed;
	unsigned long long wrong_rounds, wrong_exposed, wrong_bytes, wrong_reads, stray, oom;
	unsigned long long exposed_by[N_LANE_KINDS][N_LANE_KINDS];
	unsigned long long wrong_by[N_LANE_KINDS][N_LANE_KINDS];
};

struct player {
	std::mt19937_64 random;
	struct lane old_lanes[N_LANE_KINDS], new_lanes[N_LANE_KINDS];
	int n_lanes;
	bool is_size_fixed;
	cudaStream_t background[N_BACKGROUND], check_stream;
	uint8_t *background_block;
	uint8_t *const *sources;
	std::vector<struct slot> slots;
	std::unordered_set<void *> freed;
	std::vector<struct block_check> checks;
	struct block_check *gpu_checks;
	unsigned long long *gpu_wrong_reads; /* one for each round of a group */
	struct round group[GROUP_MAX];
	struct counters counters;
};

__global__ void fill_late(uint8_t *p, size_t bytes, uint8_t value, unsigned long long ns)
{
	size_t step = (size_t)gridDim.x * blockDim.x;

	gpu_delay(ns);
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < bytes; i += step)
		p[i] = value;
}

__global__ void read_late(
	const uint8_t *p, size_t bytes, uint8_t expected, unsigned long long ns, unsigned long long *ret_wrong)
{
	size_t step = (size_t)gridDim.x * blockDim.x;
	unsigned long long wrong = 0;

	gpu_delay(ns);
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < bytes; i += step)
		wrong += p[i] != expected;
	if (wrong)
		atomicAdd(ret_wrong, wrong);
}

/* Checks blocks of memory, with a row of thread blocks for each. */
__global__ void check_blocks(struct block_check *checks)
{
	struct block_check *block_check = &checks[blockIdx.x];
	size_t step = (size_t)gridDim.y * blockDim.x;
	unsigned long long wrong = 0;

	for (size_t i = blockIdx.y * (size_t)blockDim.x + threadIdx.x; i < block_check->bytes; i += step)
		wrong += block_check->p[i] != block_check->expected;
	if (wrong)
		atomicAdd(&block_check->wrong, wrong);
}

/*
 * The sources of copies are pinned, and each is filled with one byte. Those of new owners come first, then those of old
 * owners.
 */
static inline uint8_t source_value(int i)
{
	return i < N_SOURCES ? (uint8_t)(1 + i) : (uint8_t)(0x80 + i);
}

static inline unsigned grid_for(size_t bytes)
{
	return (unsigned)std::min((size_t)16, bytes / 4096 + 1);
}

/* Counts wrong bytes in the blocks of player->checks. No work may be running on them. */
static inline void player_check(struct player *player)
{
	std::vector<struct block_check> &checks = player->checks;
	size_t bytes = checks.size() * sizeof(checks[0]);
	cudaStream_t stream = player->check_stream;

	CHECK(cudaMemcpyAsync(player->gpu_checks, checks.data(), bytes, cudaMemcpyHostToDevice, stream));
	check_blocks<<<dim3((unsigned)checks.size(), 16), 256, 0, stream>>>(player->gpu_checks);
	CHECK(cudaMemcpyAsync(checks.data(), player->gpu_checks, bytes, cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamSynchronize(stream));
}

static inline void player_add_check(struct player *player, const struct slot *slot)
{
	player->checks.push_back({slot->p, slot->bytes, 0, slot->expected});
}

/* Fills the block again, so that a wrong byte is counted only once. */
static inline void player_refill(struct player *player, const struct slot *slot)
{
	CHECK(cudaMemsetAsync(slot->p, slot->expected, slot->bytes, player->check_stream));
	CHECK(cudaStreamSynchronize(player->check_stream));
}

static inline void player_init_graph(struct lane *lane)
{
	uint8_t *p = nullptr, value = 0;
	size_t bytes = 0;
	unsigned long long ns = 0;
	void *arguments[] = {&p, &bytes, &value, &ns};
	cudaKernelNodeParams params = {};

	params.func = (void *)fill_late;
	params.gridDim = dim3(1);
	params.blockDim = dim3(256);
	params.kernelParams = arguments;
	lane_graph_init(lane, &params);
}

/* is_plain: the player creates no stream and no other thread, and is the only player. */
static inline std::unique_ptr<struct player> player_new(unsigned seed, uint8_t *const *sources, bool is_plain)
{
	std::unique_ptr<struct player> player(new struct player());

	player->random.seed(seed);
	player->sources = sources;
	player->n_lanes = is_plain ? LANE_PER_THREAD + 1 : N_LANE_KINDS;
	for (int i = 0; i < player->n_lanes; i++) {
		lane_init(&player->old_lanes[i], (enum lane_kind)i);
		lane_init(&player->new_lanes[i], (enum lane_kind)i);
	}
	player->check_stream = is_plain ? cudaStreamPerThread : lane_stream_new(LANE_NONBLOCKING);
	if (!is_plain) {
		player_init_graph(&player->old_lanes[LANE_GRAPH]);
		player_init_graph(&player->new_lanes[LANE_GRAPH]);
		for (cudaStream_t &stream : player->background)
			stream = lane_stream_new(LANE_NONBLOCKING);
		CHECK(cudaMalloc(&player->background_block, 1 << 20));
	}
	for (struct round &round : player->group)
		CHECK(cudaEventCreateWithFlags(&round.old_done, cudaEventDisableTiming));
	CHECK(cudaMalloc(&player->gpu_checks, SLOTS_MAX * sizeof(struct block_check)));
	CHECK(cudaMalloc(&player->gpu_wrong_reads, GROUP_MAX * sizeof(unsigned long long)));
	CHECK(cudaMemset(player->gpu_wrong_reads, 0, GROUP_MAX * sizeof(unsigned long long)));
	CHECK(cudaDeviceSynchronize());
	return player;
}
