/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "ctx.h"

#define COUNT_RESULT_BYTES 8

/* The thread sanitiser has these functions, if it is in the process. */
extern void AnnotateIgnoreReadsBegin(const char *file, int line) __attribute__((weak));
extern void AnnotateIgnoreReadsEnd(const char *file, int line) __attribute__((weak));

/*
 * The accesses between these two are the GPU's. The thread sanitiser would take them for accesses of the thread that
 * moves the clock, and spend most of a test's time on the bytes of each copy. The race detector checks them instead.
 */
static void begin_gpu_accesses(void)
{
	if (AnnotateIgnoreReadsBegin)
		AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
}

static void end_gpu_accesses(void)
{
	if (AnnotateIgnoreReadsEnd)
		AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

static void report_invalid_use(
	const struct sim_work *work, const struct sim_access *access, const struct sim_block *block)
{
	sim.invalid_uses++;
	sim_print("invalid use: %s on stream %u (submission %llu) touches %#llx, %llu bytes: %s", work->op.name,
		work->stream_number, (unsigned long long)work->number, (unsigned long long)access->lo,
		(unsigned long long)(access->hi - access->lo),
		!block                                ? "no such memory, or freed"
		: block->released                     ? "already freed in stream order"
		: access->hi > sim_block_reach(block) ? "beyond the end of the block"
						      : "memory of a context without access");
}

bool sim_effect_may_touch(const struct sim_ctx *ctx, const struct sim_block *block)
{
	unsigned bit = 1u << ctx->device->ordinal;

	if (block->kind == SIM_MAPPED)
		return block->access & bit;
	if (block->kind == SIM_POOLED && block->device != ctx->device)
		return block->pool->access & bit;
	return block->kind >= SIM_MANAGED || sim_ctx_may_touch(ctx, block->ctx);
}

/* Memory of cuMemAlloc is copied on streams of every device, as measured on two H200. */
bool sim_effect_may_copy(const struct sim_ctx *ctx, const struct sim_block *block)
{
	return (block->kind != SIM_MAPPED && block->kind != SIM_POOLED) || sim_effect_may_touch(ctx, block);
}

/* Access that ends after the submission of a copy makes it fail, as measured on two H200. */
static bool may_touch(const struct sim_work *work, const struct sim_block *block)
{
	if (work->op.ctx)
		return sim_effect_may_copy(work->op.ctx, block);
	if (work->op.kind != SIM_COPY)
		return sim_effect_may_touch(work->ctx, block);
	if (work->op.is_between)
		return block->kind != SIM_MAPPED || block->access;
	return sim_effect_may_copy(work->ctx, block);
}

bool sim_effect_check(struct sim_work *work)
{
	for (unsigned i = 0; i < work->op.n_accesses; i++) {
		const struct sim_access *access = &work->op.accesses[i];
		struct sim_block *block = sim_block_at(access->lo);
		bool is_valid = block && !block->released && access->hi <= sim_block_reach(block);

		for (struct sim_block *b = block; is_valid && b && b->range.lo < access->hi;
			b = sim_block_at(b->range.hi))
			is_valid = may_touch(work, b);
		if (is_valid)
			continue;
		report_invalid_use(work, access, block);
		return false;
	}
	return true;
}

uint64_t sim_effect_bring(struct sim_work *work)
{
	uint64_t ns = 0;

	for (unsigned i = 0; i < work->op.n_accesses; i++) {
		const struct sim_access *access = &work->op.accesses[i];
		struct sim_block *block = sim_block_at(access->lo);

		if (block && block->kind == SIM_MANAGED)
			ns += sim_managed_bring(work->ctx->device, block, access->hi - access->lo);
	}
	return ns;
}

/* Memory that was never written reads as zero, without real memory behind it. */
static bool is_blank(uint64_t addr, uint64_t bytes)
{
	struct sim_block *block = sim_block_at(addr);
	bool is_blank = block && block->kind <= SIM_MAPPED;

	for (uint64_t hi = addr + bytes; is_blank && block && block->range.lo < hi;
		block = sim_block_at(block->range.hi))
		is_blank = !(block->kind == SIM_MAPPED ? *sim_physical_dirty(block->physical) : block->dirty);
	return is_blank;
}

/* Returns the bytes to write to. Returns NULL if zeros would be written over memory that was never written. */
static char *writable(uint64_t addr, uint64_t bytes, bool only_zeros)
{
	struct sim_block *block = sim_block_at(addr);

	if (only_zeros && is_blank(addr, bytes))
		return NULL;
	for (uint64_t hi = addr + bytes; block && block->range.lo < hi;
		block = block->kind == SIM_MAPPED ? sim_block_at(block->range.hi) : NULL) {
		block->dirty = true;
		if (block->kind == SIM_MAPPED)
			*sim_physical_dirty(block->physical) = true;
	}
	return sim_bytes_at(addr);
}

static uint64_t count_wrong(const struct sim_op *op)
{
	const char *bytes = sim_bytes_at(op->src);
	uint64_t wrong = 0;

	if (is_blank(op->src, op->bytes))
		return op->value ? op->bytes / 4 : 0;
	/* The C library finds the usual answer faster: the first word is right, and each equals the one before. */
	if (op->bytes >= 4 && !memcmp(bytes, &op->value, 4) && !memcmp(bytes, bytes + 4, op->bytes - 4))
		return 0;
	for (uint64_t i = 0; i < op->bytes; i += 4) {
		uint32_t word;

		memcpy(&word, bytes + i, sizeof(word));
		wrong += word != op->value;
	}
	return wrong;
}

void sim_effect_sample(struct sim_work *work)
{
	const struct sim_op *op = &work->op;

	begin_gpu_accesses();
	if (op->kind == SIM_COUNT)
		work->counted = count_wrong(op);
	if (op->kind == SIM_COPY && !op->staged && !is_blank(op->src, op->bytes)) {
		work->sample = sim_alloc(op->bytes);
		memcpy(work->sample, sim_bytes_at(op->src), op->bytes);
	}
	end_gpu_accesses();
}

static void fill(const struct sim_op *op)
{
	char *bytes = writable(op->dst, op->bytes, op->value == 0);

	if (!bytes)
		return;
	if (op->width == 1) {
		memset(bytes, (int)op->value, op->bytes);
		return;
	}
	wmemset((wchar_t *)(void *)bytes, (wchar_t)op->value, op->bytes / 4);
}

static void copy(const struct sim_work *work)
{
	const void *from = work->op.staged ? work->op.staged : work->sample;
	char *bytes = writable(work->op.dst, work->op.bytes, !from);

	if (!bytes)
		return;
	if (from)
		memcpy(bytes, from, work->op.bytes);
	else
		memset(bytes, 0, work->op.bytes);
}

static void add_count(const struct sim_work *work)
{
	char *bytes = writable(work->op.dst, COUNT_RESULT_BYTES, false);
	uint64_t sum;

	memcpy(&sum, bytes, COUNT_RESULT_BYTES);
	sum += work->counted;
	memcpy(bytes, &sum, COUNT_RESULT_BYTES);
}

static void release(struct sim_work *work)
{
	struct sim_block *block = work->op.block;
	struct sim_stream *stream = work->stream ? work->stream : work->ctx->own.legacy;

	block->released = true;
	if (block->kind == SIM_POOLED) {
		sim_pool_take_back(block);
	} else {
		block->next = stream->freed_blocks;
		stream->freed_blocks = block;
	}
}

void sim_effect_apply(struct sim_work *work)
{
	begin_gpu_accesses();
	switch (work->op.kind) {
	case SIM_FILL:
		fill(&work->op);
		break;
	case SIM_COPY:
		copy(work);
		break;
	case SIM_COUNT:
		add_count(work);
		break;
	case SIM_RELEASE:
		release(work);
		break;
	case SIM_MARK:
	case SIM_WAIT_FLAG:
	case SIM_HOST_FUNC:
	case SIM_TRAP:
		break;
	}
	end_gpu_accesses();
}

bool sim_effect_flag_is_set(const struct sim_work *work)
{
	const uint32_t *word = (const void *)sim_bytes_at(work->op.src);

	if (!sim_block_at(work->op.src))
		return false;
	return __atomic_load_n(word, __ATOMIC_ACQUIRE) == work->op.value;
}
