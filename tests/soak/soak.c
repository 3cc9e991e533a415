/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * soak OPERATIONS SEED [THREADS]: runs OPERATIONS random operations, in phases. Each phase has new contexts and
 * threads. At the end of a phase, after all threads have ended, the program compares gpupool's status with the blocks
 * that it holds. Then it frees the blocks, or leaves them to the end of their context.
 *
 * Prints its counters, one "name number" a line. Exits with 1 if a check failed, and with 70 if a call failed
 * that must not fail.
 */

#include "soak.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PHASE_OPERATIONS = 100000, EXPORTS_ONE_IN = 5 };

_Atomic uint64_t soak_counts[SOAK_N_COUNTS];

static const char *const count_names[SOAK_N_COUNTS] = {
	[SOAK_REFUSED] = "refused",
	[SOAK_OOM] = "ooms",
	[SOAK_INVALIDATED] = "invalidated",
	[SOAK_CAPTURES] = "captures",
	[SOAK_ENDED] = "ended",
	[SOAK_EXPORTS] = "exports",
	[SOAK_INFLIGHT] = "inflight",
	[SOAK_CHECKS] = "checks",
	[SOAK_CLIENTS] = "clients",
	[SOAK_KILLED] = "killed",
};

static unsigned long long seed;
bool soak_is_in_stream_order;
static _Atomic unsigned n_wrong;
static void (*host_access)(const void *ptr, size_t bytes, bool is_write); /* simgpu_host_access, or NULL */

/* Blocks that one thread leaves for another. */
static struct slot {
	pthread_mutex_t lock;
	struct soak_block block;
} slots[SOAK_SLOTS];

struct thread {
	pthread_t id;
	struct soak_random random;
	uint64_t n_operations;
	struct soak_block own[SOAK_OWN];
};

static struct thread threads[SOAK_THREADS_MAX];

void soak_must(int result, const char *call)
{
	if (!result)
		return;
	fprintf(stderr, "soak: seed %llu: failed: %s: %d\n", seed, call, result);
	_exit(70);
}

void soak_wrong(const char *what, unsigned long long value)
{
	atomic_fetch_add(&n_wrong, 1);
	fprintf(stderr, "soak: seed %llu: wrong: %s: %llu\n", seed, what, value);
}

unsigned soak_n_wrong(void)
{
	return n_wrong;
}

void soak_count(enum soak_count which)
{
	atomic_fetch_add_explicit(&soak_counts[which], 1, memory_order_relaxed);
}

void soak_host_access(const void *ptr, size_t bytes, bool is_write)
{
	if (host_access)
		host_access(ptr, bytes, is_write);
}

uint32_t soak_random(struct soak_random *random)
{
	uint64_t x = random->state += 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return (uint32_t)((x ^ (x >> 31)) >> 16);
}

bool soak_one_in(struct soak_random *random, unsigned n)
{
	return soak_random(random) % n == 0;
}

size_t soak_random_bytes(struct soak_random *random)
{
	unsigned bits = soak_random(random) % 22;

	if (soak_one_in(random, 256))
		return 1 + soak_random(random) % (32 * MIB);
	return ((size_t)1 << bits) + soak_random(random) % ((size_t)1 << bits);
}

/* The operations. Each gets one of the thread's block slots, which is empty for op_alloc and filled for all others. */

static void op_alloc(struct thread *self, struct soak_block *block)
{
	unsigned context = soak_random(&self->random) % soak_n_contexts;

	soak_use_context(&soak_contexts[context]);
	if (soak_block_alloc(block, context, soak_random_bytes(&self->random), &self->random))
		soak_block_fill(block, &self->random);
}

static void op_free(struct thread *self, struct soak_block *block)
{
	soak_block_free(block, &self->random);
}

static void op_touch(struct thread *self, struct soak_block *block)
{
	soak_block_check(block);
	soak_block_fill(block, &self->random);
}

/* Leaves the block in a shared slot for another thread, and takes the block that was there. */
static void op_swap(struct thread *self, struct soak_block *block)
{
	struct slot *slot = &slots[soak_random(&self->random) % SOAK_SLOTS];
	struct soak_block given = *block;

	pthread_mutex_lock(&slot->lock);
	*block = slot->block;
	slot->block = given;
	pthread_mutex_unlock(&slot->lock);
}

static void op_upload(struct thread *self, struct soak_block *block)
{
	pthread_rwlock_rdlock(&soak_capture_lock);
	soak_block_upload(block, &self->random);
	pthread_rwlock_unlock(&soak_capture_lock);
}

static void op_download(struct thread *self, struct soak_block *block)
{
	pthread_rwlock_rdlock(&soak_capture_lock);
	soak_block_download(block, &self->random);
	pthread_rwlock_unlock(&soak_capture_lock);
}

static void op_renew(struct thread *self, struct soak_block *block)
{
	pthread_rwlock_rdlock(&soak_capture_lock);
	soak_stream_renew(block->context, &self->random);
	pthread_rwlock_unlock(&soak_capture_lock);
}

/* These operations free the block without a stream. */
static void op_capture(struct thread *self, struct soak_block *block)
{
	if (!block->is_in_stream_order)
		soak_block_capture(block, &self->random);
}

static void op_launch(struct thread *self, struct soak_block *block)
{
	if (!block->is_in_stream_order)
		soak_inflight_launch(block, &self->random);
}

static void op_visit(struct thread *self, struct soak_block *block)
{
	if (soak_is_in_stream_order)
		return;
	pthread_rwlock_rdlock(&soak_capture_lock);
	soak_visit_context(&self->random);
	pthread_rwlock_unlock(&soak_capture_lock);
}

static bool exports; /* in this phase */

/* Exports the block. From then on gpupool handles this block, and all blocks allocated later, differently. */
static void op_export(struct thread *self, struct soak_block *block)
{
	CUipcMemHandle handle;

	if (exports && cuIpcGetMemHandle(&handle, block->ptr) == CUDA_SUCCESS)
		soak_count(SOAK_EXPORTS);
}

static void op_client(struct thread *self, struct soak_block *block)
{
	soak_control_client();
}

/* The operations on a slot that has a block. */
static const struct {
	unsigned weight; /* frequency, relative to the sum of all weights */
	void (*run)(struct thread *self, struct soak_block *block);
} operations[] = {
	{2188, op_free},
	{800, op_swap},
	{680, op_touch},
	{180, op_upload},
	{180, op_download},
	{32, op_capture},
	{96, op_launch},
	{20, op_renew},
	{12, op_export},
	{3, op_client},
	{1, op_visit},
};

static unsigned sum_of_weights;

static void step(struct thread *self)
{
	struct soak_block *block = &self->own[soak_random(&self->random) % SOAK_OWN];
	unsigned at = soak_random(&self->random) % sum_of_weights, i = 0;

	soak_inflight_free(block, &self->random);
	if (!block->ptr) {
		op_alloc(self, block);
		return;
	}
	soak_use_context(&soak_contexts[block->context]);
	while (at >= operations[i].weight)
		at -= operations[i++].weight;
	operations[i].run(self, block);
}

static void *work(void *arg)
{
	struct thread *self = arg;

	soak_use_context(&soak_contexts[0]);
	for (uint64_t i = 0; i < self->n_operations; i++)
		step(self);
	return NULL;
}

static void add_block(uint64_t requested[SOAK_DEVICES_MAX], const struct soak_block *block)
{
	if (block->ptr)
		requested[soak_contexts[block->context].device] += block->bytes;
}

/* Adds up the blocks that the program holds, and compares the sum with gpupool's status. */
static void compare_status(unsigned n_threads)
{
	uint64_t requested[SOAK_DEVICES_MAX] = {0};

	for (unsigned i = 0; i < n_threads; i++)
		for (unsigned k = 0; k < SOAK_OWN; k++)
			add_block(requested, &threads[i].own[k]);
	for (unsigned i = 0; i < SOAK_SLOTS; i++)
		add_block(requested, &slots[i].block);
	for (unsigned i = 0; i < soak_n_contexts; i++)
		requested[soak_contexts[i].device] += sizeof(uint64_t);
	soak_control_compare(requested);
}

/* Frees a block. Half of the blocks of the created context are left, and freed by its end. */
static void free_or_leave(struct soak_block *block, struct soak_random *random)
{
	if (!block->ptr)
		return;
	soak_use_context(&soak_contexts[block->context]);
	if (soak_is_in_stream_order || block->context + 1 < soak_n_contexts || soak_one_in(random, 2))
		soak_block_free(block, random);
	else
		soak_block_check(block);
	block->ptr = 0;
}

static void run_phase(uint64_t phase, uint64_t n_operations, unsigned n_threads)
{
	struct soak_random random = {seed * 0x2545f4914f6cdd1du + phase};

	soak_contexts_open();
	for (unsigned i = 0; i < n_threads; i++) {
		threads[i] = (struct thread){.random = {random.state ^ ((uint64_t)(i + 1) << 32)},
			.n_operations = n_operations / n_threads + (i < n_operations % n_threads)};
		SOAK_MUST(pthread_create(&threads[i].id, NULL, work, &threads[i]));
	}
	for (unsigned i = 0; i < n_threads; i++)
		pthread_join(threads[i].id, NULL);
	soak_inflight_end();
	compare_status(n_threads);
	for (unsigned i = 0; i < n_threads; i++)
		for (unsigned k = 0; k < SOAK_OWN; k++)
			free_or_leave(&threads[i].own[k], &random);
	for (unsigned i = 0; i < SOAK_SLOTS; i++)
		free_or_leave(&slots[i].block, &random);
	soak_contexts_close();
}

static void report(uint64_t n_operations)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	printf("operations %llu\n", (unsigned long long)n_operations);
	for (unsigned i = 0; i < SOAK_N_COUNTS; i++)
		printf("%s %llu\n", count_names[i], (unsigned long long)soak_counts[i]);
	for (unsigned i = 0; driver && i < 3; i++) {
		static const char *const names[] = {"races", "deadlocks", "invalid_uses"};
		uint64_t (*counter)(void);
		char symbol[32];

		snprintf(symbol, sizeof(symbol), "simgpu_%s", names[i]);
		counter = (uint64_t(*)(void))dlsym(driver, symbol);
		if (counter)
			printf("%s %llu\n", names[i], (unsigned long long)counter());
	}
	printf("wrong %u\n", n_wrong);
}

int main(int argc, char **argv)
{
	uint64_t n_operations = argc > 1 ? strtoull(argv[1], NULL, 0) : 0, left = n_operations;
	unsigned n_threads = argc > 3 ? (unsigned)atoi(argv[3]) : SOAK_THREADS_MAX;
	void *driver;

	if (argc < 3 || argc > 4 || !n_operations || !n_threads || n_threads > SOAK_THREADS_MAX) {
		fprintf(stderr, "usage: %s OPERATIONS SEED [THREADS]\n", argv[0]);
		return 64;
	}
	seed = strtoull(argv[2], NULL, 0);
	soak_is_in_stream_order = seed * 0x9e3779b97f4a7c15u >> 63;
	printf("seed %llu\n", seed);
	fflush(stdout);
	for (unsigned i = 0; i < SOAK_SLOTS; i++)
		pthread_mutex_init(&slots[i].lock, NULL);
	for (unsigned i = 0; i < LENGTH(operations); i++)
		sum_of_weights += operations[i].weight;
	soak_control_start(seed);
	SOAK_MUST(cuInit(0));
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (driver)
		host_access = (void (*)(const void *, size_t, bool))dlsym(driver, "simgpu_host_access");
	for (uint64_t phase = 0; left; phase++) {
		uint64_t n = left < PHASE_OPERATIONS ? left : PHASE_OPERATIONS;

		exports = n == left && seed % EXPORTS_ONE_IN == 0; /* in the last phase, as exports are permanent */
		run_phase(phase, n, n_threads);
		left -= n;
	}
	soak_control_stop();
	report(n_operations);
	return n_wrong ? 1 : 0;
}
