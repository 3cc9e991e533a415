/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Copies and memsets. */

#include <stdlib.h>
#include <string.h>

#include "capture.h"

#define SMALL_NS        1500
#define LINK_BYTES_NS   50   /* between host and device */
#define COPY_BYTES_NS   1500 /* within a device */
#define MEMSET_BYTES_NS 3000

static const void *host(uint64_t addr)
{
	return (const void *)(uintptr_t)addr;
}

static uint64_t address(const void *ptr)
{
	return (uint64_t)(uintptr_t)ptr;
}

/*
 * The ends of a copy that must be CUDA's memory according to the function's name. Other ends may be any memory. A copy
 * between devices needs no access.
 */
enum { ANY = 0, TO_DEVICE = 1, FROM_DEVICE = 2, WITHIN_DEVICE = 3, BETWEEN = 4, BETWEEN_DEVICES = 7 };

struct end {
	struct sim_block *block; /* NULL: pageable memory */
	bool on_device;
};

/* A copy may leave registered memory for memory that CUDA does not know, but not for another registration. */
static bool leaves_for_another(const struct sim_block *block, uint64_t addr, size_t bytes)
{
	const struct sim_block *next = sim_block_at(block->range.hi);

	return block->kind == SIM_REGISTERED && addr + bytes > block->range.hi && next && next->kind == SIM_REGISTERED;
}

/* Describes one end of a copy, which must lie in one live block or in host memory that CUDA does not know. */
static CUresult end_of(uint64_t addr, size_t bytes, bool promised, struct end *end)
{
	end->block = sim_block_at(addr);
	end->on_device = sim_address_is_device(addr);
	if (!end->block)
		return end->on_device || promised || !addr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	if (end->block->kind <= SIM_MANAGED && (end->block->freed || bytes > sim_block_reach(end->block) - addr))
		return CUDA_ERROR_INVALID_VALUE;
	if (leaves_for_another(end->block, addr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > sim_block_reach(end->block) - addr)
		end->block = NULL; /* reaches beyond the pinned memory */
	return CUDA_SUCCESS;
}

static bool may_copy(const struct sim_ctx *ctx, const struct end *to, const struct end *from)
{
	return (!to->block || sim_effect_may_copy(ctx, to->block)) &&
	       (!from->block || sim_effect_may_copy(ctx, from->block));
}

static void stage(struct sim_op *op)
{
	op->staged = malloc(op->bytes);
	if (op->staged)
		memcpy(op->staged, host(op->src), op->bytes);
}

static CUresult build(struct sim_op *op, int promise, struct end *to, struct end *from)
{
	size_t bytes = op->bytes;

	SIM_TRY(end_of(op->dst, bytes, promise & TO_DEVICE, to));
	SIM_TRY(end_of(op->src, bytes, promise & FROM_DEVICE, from));
	op->kind = SIM_COPY;
	op->name = sim_call_name();
	op->duration_ns = SMALL_NS + bytes / (to->on_device && from->on_device ? COPY_BYTES_NS : LINK_BYTES_NS);
	if (from->block)
		sim_op_touch(op, op->src, bytes, SIM_READ);
	if (to->block)
		sim_op_touch(op, op->dst, bytes, SIM_WRITE);
	return CUDA_SUCCESS;
}

/* A copy into pageable memory ends before the call returns, as does every synchronous copy that involves the host. */
static CUresult copy(uint64_t dst, uint64_t src, size_t bytes, int promise, struct sim_stream *stream, bool synchronous)
{
	struct sim_op op = {.dst = dst, .src = src, .bytes = bytes};
	struct end to, from;
	CUresult result;

	if (!bytes)
		return CUDA_SUCCESS;
	SIM_TRY(sim_capture_implicit(stream));
	SIM_TRY(build(&op, promise, &to, &from));
	op.is_between = promise & BETWEEN;
	if (!op.is_between && !may_copy(stream->ctx, &to, &from))
		return CUDA_ERROR_INVALID_VALUE;
	if (!from.block && !stream->capture)
		stage(&op);
	result = sim_stream_submit(stream, &op);
	if (result) {
		free(op.staged);
		return result;
	}
	if (stream->capture || (!synchronous && to.block) || (to.on_device && from.on_device))
		return CUDA_SUCCESS;
	return sim_stream_wait(stream);
}

CUresult sim_copy_build(struct sim_ctx *ctx, uint64_t dst, uint64_t src, size_t bytes, struct sim_op *op)
{
	struct end to, from;

	*op = (struct sim_op){.dst = dst, .src = src, .bytes = bytes, .ctx = ctx};
	SIM_TRY(build(op, ANY, &to, &from));
	return may_copy(ctx, &to, &from) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_now(uint64_t dst, uint64_t src, size_t bytes, int promise, bool per_thread)
{
	struct sim_stream *stream;

	SIM_TRY(sim_stream_of(NULL, per_thread, &stream));
	return copy(dst, src, bytes, promise, stream, true);
}

static CUresult copy_async(uint64_t dst, uint64_t src, size_t bytes, int promise, CUstream handle, bool per_thread)
{
	struct sim_stream *stream;

	SIM_TRY(sim_stream_of(handle, per_thread, &stream));
	return copy(dst, src, bytes, promise, stream, false);
}

SIM_STREAM_PAIR(
	cuMemcpy, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), copy_now(dst, src, bytes, ANY, per_thread))
SIM_STREAM_PAIR(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr dst, const void *src, size_t bytes),
	copy_now(dst, address(src), bytes, TO_DEVICE, per_thread))
SIM_STREAM_PAIR(cuMemcpyDtoH_v2, _ptds, (void *dst, CUdeviceptr src, size_t bytes),
	copy_now(address(dst), src, bytes, FROM_DEVICE, per_thread))
SIM_STREAM_PAIR(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t bytes),
	copy_now(dst, src, bytes, WITHIN_DEVICE, per_thread))
SIM_STREAM_PAIR(cuMemcpyAsync, _ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),
	copy_async(dst, src, bytes, ANY, stream, per_thread))
SIM_STREAM_PAIR(cuMemcpyHtoDAsync_v2, _ptsz, (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream),
	copy_async(dst, address(src), bytes, TO_DEVICE, stream, per_thread))
SIM_STREAM_PAIR(cuMemcpyDtoHAsync_v2, _ptsz, (void *dst, CUdeviceptr src, size_t bytes, CUstream stream),
	copy_async(address(dst), src, bytes, FROM_DEVICE, stream, per_thread))
SIM_STREAM_PAIR(cuMemcpyDtoDAsync_v2, _ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),
	copy_async(dst, src, bytes, WITHIN_DEVICE, stream, per_thread))

static CUresult copy_peer(uint64_t dst, CUcontext dst_ctx, uint64_t src, CUcontext src_ctx, size_t bytes,
	CUstream stream, bool per_thread)
{
	struct sim_ctx *ctx;

	SIM_TRY(sim_ctx_of(dst_ctx, &ctx));
	SIM_TRY(sim_ctx_of(src_ctx, &ctx));
	return copy_async(dst, src, bytes, BETWEEN_DEVICES, stream, per_thread);
}

/* The copy follows all earlier work of both contexts, and all later work follows it. The call waits for both. */
static CUresult copy_peer_in_turn(
	uint64_t dst, CUcontext dst_handle, uint64_t src, CUcontext src_handle, size_t bytes, bool per_thread)
{
	struct sim_ctx *dst_ctx, *src_ctx;

	SIM_TRY(sim_ctx_of(dst_handle, &dst_ctx));
	SIM_TRY(sim_ctx_of(src_handle, &src_ctx));
	SIM_TRY(sim_ctx_synchronize(dst_ctx));
	SIM_TRY(sim_ctx_synchronize(src_ctx));
	SIM_TRY(copy_async(dst, src, bytes, BETWEEN_DEVICES, NULL, per_thread));
	SIM_TRY(sim_ctx_synchronize(dst_ctx));
	return sim_ctx_synchronize(src_ctx);
}

SIM_STREAM_PAIR(cuMemcpyPeer, _ptds,
	(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t bytes),
	copy_peer_in_turn(dst, dst_ctx, src, src_ctx, bytes, per_thread))

SIM_STREAM_PAIR(cuMemcpyPeerAsync, _ptsz,
	(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t bytes, CUstream stream),
	copy_peer(dst, dst_ctx, src, src_ctx, bytes, stream, per_thread))

/* Measured for memory of another device, but not for that of another context on the same device. */
static bool may_set(const struct sim_ctx *ctx, const struct sim_block *block)
{
	const struct sim_device *device = block->ctx ? block->ctx->device : block->device;

	return device == ctx->device || sim_effect_may_touch(ctx, block);
}

static CUresult build_fill(uint64_t dst, uint32_t value, unsigned width, size_t n, struct sim_op *op, struct end *to)
{
	*op = (struct sim_op){.kind = SIM_FILL, .dst = dst, .value = value, .width = width, .bytes = n * width};
	SIM_TRY(end_of(dst, op->bytes, true, to));
	if (!to->block || dst % width || n > SIZE_MAX / width)
		return CUDA_ERROR_INVALID_VALUE;
	op->name = sim_call_name();
	op->duration_ns = SMALL_NS + op->bytes / MEMSET_BYTES_NS;
	sim_op_touch(op, dst, op->bytes, SIM_WRITE);
	return CUDA_SUCCESS;
}

/* A node of a graph sets memory wherever a copy may copy it, as measured on two H200. */
CUresult sim_fill_build(struct sim_ctx *ctx, uint64_t dst, uint32_t value, unsigned width, size_t n, struct sim_op *op)
{
	struct end to;

	SIM_TRY(build_fill(dst, value, width, n, op, &to));
	op->ctx = ctx;
	return sim_effect_may_copy(ctx, to.block) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A memset waits only if it sets memory of the host. */
static CUresult set(
	uint64_t dst, uint32_t value, unsigned width, size_t n, CUstream handle, bool per_thread, bool synchronous)
{
	struct sim_stream *stream;
	struct sim_op op;
	struct end to;

	SIM_TRY(sim_stream_of(handle, per_thread, &stream));
	if (!n)
		return CUDA_SUCCESS;
	SIM_TRY(build_fill(dst, value, width, n, &op, &to));
	if (!may_set(stream->ctx, to.block))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_submit(stream, &op));
	if (!synchronous || to.on_device || stream->capture)
		return CUDA_SUCCESS;
	return sim_stream_wait(stream);
}

SIM_STREAM_PAIR(cuMemsetD8_v2, _ptds, (CUdeviceptr dst, unsigned char value, size_t n),
	set(dst, value, 1, n, NULL, per_thread, true))
SIM_STREAM_PAIR(cuMemsetD32_v2, _ptds, (CUdeviceptr dst, unsigned value, size_t n),
	set(dst, value, 4, n, NULL, per_thread, true))
SIM_STREAM_PAIR(cuMemsetD8Async, _ptsz, (CUdeviceptr dst, unsigned char value, size_t n, CUstream stream),
	set(dst, value, 1, n, stream, per_thread, false))
SIM_STREAM_PAIR(cuMemsetD32Async, _ptsz, (CUdeviceptr dst, unsigned value, size_t n, CUstream stream),
	set(dst, value, 4, n, stream, per_thread, false))

/* Writes one word, for which a spinning kernel or the host may be waiting. */
static CUresult write_value(uint64_t dst, uint32_t value, unsigned flags, CUstream handle, bool per_thread)
{
	struct sim_op op = {.kind = SIM_FILL,
		.name = sim_call_name(),
		.dst = dst,
		.value = value,
		.width = sizeof(value),
		.bytes = sizeof(value),
		.duration_ns = SMALL_NS};
	struct sim_stream *stream;
	struct end to;

	SIM_TRY(sim_stream_of(handle, per_thread, &stream));
	SIM_TRY(end_of(dst, op.bytes, true, &to));
	if (!to.block || to.block->kind == SIM_MANAGED || dst % sizeof(value) ||
		flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
		return CUDA_ERROR_INVALID_VALUE;
	sim_op_touch(&op, dst, op.bytes, SIM_ATOMIC);
	return sim_stream_submit(stream, &op);
}

SIM_STREAM_PAIR(cuStreamWriteValue32_v2, _ptsz, (CUstream stream, CUdeviceptr dst, uint32_t value, unsigned flags),
	write_value(dst, value, flags, stream, per_thread))
