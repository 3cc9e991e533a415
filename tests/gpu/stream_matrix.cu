/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Does memory reach a new owner while the old owner's work can still touch it?
 *
 * A round has these steps:
 * - Work of the old owner, delayed on the GPU, writes or reads a block.
 * - The block is freed and a new block is allocated, without any synchronisation.
 * - The new owner writes its own bytes to the new block, on another kind of stream or with another kind of call.
 * - When all work is done, each byte of the new block must be the new owner's, and the old owner must have read its
 * own. A player has up to five rounds in flight. Each player is a thread with its own streams, and gets blocks that
 * other players freed.
 *
 *   stream_matrix fill SEED ROUNDS PLAYERS BYTES
 *       The players first allocate all available memory, up to BYTES, in blocks of one size, so that a malloc can only
 *       return a block that was just freed. ROUNDS is the number for each of three sizes.
 *   stream_matrix free SEED ROUNDS PLAYERS
 *       Blocks of any size, with room to grow.
 *   stream_matrix plain SEED ROUNDS
 *       One thread that creates no stream.
 *
 * CUDA_DEVICE_MAX_CONNECTIONS should be 32. With fewer, streams share a queue and wait for each other.
 */

#include "players.h"

#include <cstring>

enum old_work { OLD_KERNEL, OLD_READ, OLD_MEMSET, OLD_COPY, N_OLD_WORK };
enum new_work { NEW_KERNEL, NEW_MEMSET, NEW_COPY, NEW_SYNC_COPY, N_NEW_WORK };

enum {
	SWEEP_EVERY = 64, /* groups between two checks of blocks that no work should touch */
	LONG_EVERY = 200, /* rounds between two with a long delay */
	FREE_SLOTS = 48,
	OOM_RETRIES = 100,
};

static const unsigned long long DELAY_MIN_NS = 150000, DELAY_MAX_NS = 600000, DELAY_LONG_NS = 10000000;

static const size_t fill_sizes[] = {64 << 10, 1 << 20, 4 << 20};
static const size_t free_sizes[] = {512, 3000, 64 << 10, 1 << 20, (1 << 20) + 1, 4 << 20, BLOCK_MAX};

static unsigned below(struct player *player, size_t n)
{
	return (unsigned)(player->random() % n);
}

/* Submits the kernel, as a launch or as a graph. */
static void submit_fill(struct lane *lane, uint8_t *p, size_t bytes, uint8_t value, unsigned long long ns)
{
	void *arguments[] = {&p, &bytes, &value, &ns};
	cudaKernelNodeParams params = {};

	if (lane->kind != LANE_GRAPH) {
		lane_submit(lane, [&](cudaStream_t stream) {
			fill_late<<<grid_for(bytes), 256, 0, stream>>>(p, bytes, value, ns);
		});
		return;
	}
	params.func = (void *)fill_late;
	params.gridDim = dim3(grid_for(bytes));
	params.blockDim = dim3(256);
	params.kernelParams = arguments;
	CHECK(cudaGraphExecKernelNodeSetParams(lane->graph, lane->node, &params));
	CHECK(cudaGraphLaunch(lane->graph, lane->stream));
}

static void submit_old(struct player *player, int nth, unsigned long long ns)
{
	struct round *round = &player->group[nth];
	struct slot *slot = round->slot;
	struct lane *lane = round->old_lane;
	int source = N_SOURCES + (int)below(player, N_SOURCES);
	uint8_t value = source_value(source);
	int work = lane->kind == LANE_GRAPH ? OLD_KERNEL : (int)below(player, N_OLD_WORK);

	/* A memset or a copy is delayed by a kernel before it, which writes nearly nothing. */
	if (work != OLD_READ)
		submit_fill(lane, slot->p, work == OLD_KERNEL ? slot->bytes : 1, value, ns);
	lane_submit(lane, [&](cudaStream_t stream) {
		if (work == OLD_READ)
			read_late<<<grid_for(slot->bytes), 256, 0, stream>>>(
				slot->p, slot->bytes, slot->expected, ns, &player->gpu_wrong_reads[nth]);
		if (work == OLD_MEMSET)
			CHECK(cudaMemsetAsync(slot->p, value, slot->bytes, stream));
		if (work == OLD_COPY)
			CHECK(cudaMemcpyAsync(
				slot->p, player->sources[source], slot->bytes, cudaMemcpyHostToDevice, stream));
		CHECK(cudaEventRecord(round->old_done, stream));
	});
}

static void submit_new(struct player *player, struct slot *slot, struct lane *lane, int work)
{
	const uint8_t *source;
	int i = (int)below(player, N_SOURCES);

	source = player->sources[i];
	slot->expected = source_value(i);
	if (work == NEW_KERNEL)
		submit_fill(lane, slot->p, slot->bytes, slot->expected, 0);
	if (work == NEW_SYNC_COPY)
		CHECK(cudaMemcpy(slot->p, source, slot->bytes, cudaMemcpyHostToDevice));
	if (work == NEW_MEMSET || work == NEW_COPY)
		lane_submit(lane, [&](cudaStream_t stream) {
			if (work == NEW_MEMSET)
				CHECK(cudaMemsetAsync(slot->p, slot->expected, slot->bytes, stream));
			else
				CHECK(cudaMemcpyAsync(slot->p, source, slot->bytes, cudaMemcpyHostToDevice, stream));
		});
}

static void alloc_slot(struct player *player, struct slot *slot)
{
	cudaError_t error = cudaMalloc(&slot->p, slot->bytes);

	for (int i = 0; error == cudaErrorMemoryAllocation && i < OOM_RETRIES; i++) {
		player->counters.oom++;
		cudaGetLastError();
		std::this_thread::yield();
		error = cudaMalloc(&slot->p, slot->bytes);
	}
	CHECK(error);
}

static bool is_overlap(const struct round *older, const struct slot *slot)
{
	return slot->p < older->old_p + older->old_bytes && older->old_p < slot->p + slot->bytes;
}

/* Determines which old work of the player is still unfinished in the block that it has just allocated. */
static void classify(struct player *player, int nth)
{
	struct round *round = &player->group[nth];
	bool is_inflight = false;

	round->is_exposed = false;
	for (int i = 0; i <= nth; i++) {
		const struct round *older = &player->group[i];

		if (!is_overlap(older, round->slot) || cudaEventQuery(older->old_done) != cudaErrorNotReady)
			continue;
		is_inflight = true;
		round->is_exposed |= !lane_is_ordered(older->old_lane, round->new_lane);
	}
	player->counters.reused += player->freed.count(round->slot->p);
	player->counters.inflight += is_inflight;
	player->counters.exposed += round->is_exposed;
}

static void play_round(struct player *player, int nth)
{
	struct round *round = &player->group[nth];
	struct slot *slot = round->slot;
	struct lane *new_lane = &player->new_lanes[below(player, (size_t)player->n_lanes)];
	int work = new_lane->kind == LANE_GRAPH ? NEW_KERNEL : (int)below(player, N_NEW_WORK);
	unsigned long long ns = DELAY_MIN_NS + below(player, DELAY_MAX_NS - DELAY_MIN_NS);

	round->old_lane = &player->old_lanes[below(player, (size_t)player->n_lanes)];
	round->new_lane = work == NEW_SYNC_COPY ? &player->new_lanes[LANE_LEGACY] : new_lane;
	round->old_p = slot->p;
	round->old_bytes = slot->bytes;
	submit_old(player, nth, player->counters.rounds % LONG_EVERY ? ns : DELAY_LONG_NS);
	player->freed.insert(slot->p);
	CHECK(cudaFree(slot->p));
	if (!player->is_size_fixed && below(player, 4) == 0)
		slot->bytes = free_sizes[below(player, sizeof(free_sizes) / sizeof(free_sizes[0]))];
	alloc_slot(player, slot);
	classify(player, nth);
	submit_new(player, slot, round->new_lane, work);
	player->counters.rounds++;
}

static void count_round(struct player *player, int nth, unsigned long long wrong_reads)
{
	const struct round *round = &player->group[nth];
	unsigned long long wrong = player->checks[(size_t)nth].wrong;
	bool is_wrong = wrong || wrong_reads;
	struct counters *counters = &player->counters;

	counters->wrong_bytes += wrong;
	counters->wrong_reads += wrong_reads;
	counters->wrong_rounds += is_wrong;
	if (round->is_exposed) {
		counters->wrong_exposed += is_wrong;
		counters->exposed_by[round->old_lane->kind][round->new_lane->kind]++;
		counters->wrong_by[round->old_lane->kind][round->new_lane->kind] += is_wrong;
	}
	if (wrong)
		player_refill(player, round->slot);
}

static void check_group(struct player *player, int n)
{
	unsigned long long wrong_reads[GROUP_MAX];

	player->checks.clear();
	for (int i = 0; i < n; i++)
		player_add_check(player, player->group[i].slot);
	player_check(player);
	CHECK(cudaMemcpyAsync(wrong_reads, player->gpu_wrong_reads, sizeof(wrong_reads), cudaMemcpyDeviceToHost,
		player->check_stream));
	CHECK(cudaMemsetAsync(player->gpu_wrong_reads, 0, sizeof(wrong_reads), player->check_stream));
	CHECK(cudaStreamSynchronize(player->check_stream));
	for (int i = 0; i < n; i++)
		count_round(player, i, wrong_reads[i]);
}

static void sweep(struct player *player)
{
	player->checks.clear();
	for (const struct slot &slot : player->slots)
		player_add_check(player, &slot);
	player_check(player);
	for (size_t i = 0; i < player->slots.size(); i++)
		if (player->checks[i].wrong) {
			player->counters.stray++;
			player_refill(player, &player->slots[i]);
		}
}

static void play_group(struct player *player)
{
	int n = 1 + (int)below(player, std::min((size_t)GROUP_MAX, player->slots.size()));
	size_t first = below(player, player->slots.size());

	if (player->background_block)
		for (cudaStream_t stream : player->background)
			fill_late<<<8, 256, 0, stream>>>(player->background_block, 1 << 20, 0, DELAY_MAX_NS / 2);
	for (int i = 0; i < n; i++) {
		player->group[i].slot = &player->slots[(first + (size_t)i) % player->slots.size()];
		play_round(player, i);
	}
	CHECK(cudaDeviceSynchronize());
	check_group(player, n);
}

static void play(struct player *player, unsigned long long rounds)
{
	unsigned long long end = player->counters.rounds + rounds;

	CHECK(cudaSetDevice(0));
	for (int i = 0; player->counters.rounds < end; i++) {
		play_group(player);
		if (i % SWEEP_EVERY == 0)
			sweep(player);
	}
	CHECK(cudaDeviceSynchronize());
	sweep(player);
}

typedef std::vector<std::unique_ptr<struct player>> players;

/* Allocates one more block; returns false when memory runs out. */
static bool grow(struct player *player, size_t bytes)
{
	struct slot slot = {nullptr, bytes, source_value((int)below(player, N_SOURCES))};

	if (player->slots.size() == SLOTS_MAX)
		return false;
	if (cudaMalloc(&slot.p, slot.bytes) != cudaSuccess) {
		cudaGetLastError();
		return false;
	}
	player_refill(player, &slot);
	player->slots.push_back(slot);
	return true;
}

static void play_all(const players &all, unsigned long long rounds)
{
	std::vector<std::thread> threads;

	/* A plain player runs alone, without another thread. */
	if (all.size() == 1)
		play(all[0].get(), rounds);
	else
		for (const auto &player : all)
			threads.emplace_back(play, player.get(), rounds / all.size());
	for (std::thread &thread : threads)
		thread.join();
}

static void free_blocks(const players &all)
{
	CHECK(cudaDeviceSynchronize());
	for (const auto &player : all) {
		for (const struct slot &slot : player->slots)
			CHECK(cudaFree(slot.p));
		player->slots.clear();
	}
}

static void add(struct counters *sum, const struct counters *counters)
{
	static_assert(sizeof(*sum) % sizeof(unsigned long long) == 0, "struct counters has only counters");
	unsigned long long *to = (unsigned long long *)sum;
	const unsigned long long *from = (const unsigned long long *)counters;

	for (size_t i = 0; i < sizeof(*sum) / sizeof(*to); i++)
		to[i] += from[i];
}

static void report(const players &all, const char *mode, size_t bytes, double start)
{
	struct counters sum = {};

	for (const auto &player : all) {
		add(&sum, &player->counters);
		player->counters = {};
	}
	printf("summary mode=%s bytes=%zu players=%zu rounds=%llu reused=%llu inflight=%llu "
	       "exposed=%llu "
	       "wrong_rounds=%llu wrong_exposed=%llu wrong_bytes=%llu wrong_reads=%llu stray=%llu "
	       "oom=%llu seconds=%.1f\n",
		mode, bytes, all.size(), sum.rounds, sum.reused, sum.inflight, sum.exposed, sum.wrong_rounds,
		sum.wrong_exposed, sum.wrong_bytes, sum.wrong_reads, sum.stray, sum.oom, (now_ns() - start) / 1e9);
	for (int i = 0; i < N_LANE_KINDS; i++)
		for (int k = 0; k < N_LANE_KINDS; k++)
			if (sum.exposed_by[i][k])
				printf("lanes mode=%s bytes=%zu old=%s new=%s exposed=%llu "
				       "wrong=%llu\n",
					mode, bytes, lane_names[i], lane_names[k], sum.exposed_by[i][k],
					sum.wrong_by[i][k]);
	fflush(stdout);
}

static void run_fill(const players &all, unsigned long long rounds, size_t max_bytes)
{
	for (size_t bytes : fill_sizes) {
		double start = now_ns();
		size_t taken = 0;

		for (size_t i = 0; taken < max_bytes && grow(all[i % all.size()].get(), bytes); i++)
			taken += bytes;
		for (const auto &player : all)
			player->is_size_fixed = true;
		play_all(all, rounds);
		report(all, "fill", bytes, start);
		free_blocks(all);
	}
}

static void run_free(const players &all, unsigned long long rounds, const char *mode)
{
	double start = now_ns();
	size_t n_sizes = sizeof(free_sizes) / sizeof(free_sizes[0]);

	for (const auto &player : all)
		for (size_t i = 0; i < FREE_SLOTS; i++)
			grow(player.get(), free_sizes[i % n_sizes]);
	play_all(all, rounds);
	report(all, mode, 0, start);
	free_blocks(all);
}

int main(int argc, char **argv)
{
	bool is_fill = argc == 6 && !strcmp(argv[1], "fill"), is_free = argc == 5 && !strcmp(argv[1], "free");
	bool is_plain = argc == 4 && !strcmp(argv[1], "plain");
	uint8_t *sources[2 * N_SOURCES];
	unsigned seed;
	players all;

	if (!is_fill && !is_free && !is_plain) {
		fprintf(stderr, "usage: stream_matrix fill SEED ROUNDS PLAYERS BYTES |"
				" free SEED ROUNDS PLAYERS | plain SEED ROUNDS\n");
		return 2;
	}
	gpu_require();
	seed = (unsigned)strtoul(argv[2], nullptr, 0);
	for (int i = 0; i < 2 * N_SOURCES; i++) {
		CHECK(cudaMallocHost(&sources[i], BLOCK_MAX));
		memset(sources[i], source_value(i), BLOCK_MAX);
	}
	for (int i = 0; i < (is_plain ? 1 : atoi(argv[4])); i++)
		all.push_back(player_new(seed + (unsigned)i, sources, is_plain));
	if (is_fill)
		run_fill(all, strtoull(argv[3], nullptr, 0), strtoull(argv[5], nullptr, 0));
	else
		run_free(all, strtoull(argv[3], nullptr, 0), argv[1]);
	return 0;
}
