/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Operations on one block. The first words of a block hold a random value. Before the block is freed, a kernel compares
 * them on the stream that worked on the block last, and adds the number of wrong words to the context's counter, so
 * that no thread has to wait for the comparison.
 */

#include "soak.h"

#include <string.h>

enum {
	WORDS_MAX = 64,
	MANY_WORDS_MAX = 16384,
	MANY_ONE_IN = 128,
	FREED_ASYNC_ONE_IN = 4,
	FOREIGN_ONE_IN = 4,
	SLOW_ONE_IN = 8,
	SLOW_NS_MAX = 200000,
	IN_STREAM_ORDER_ONE_IN = 2,
};

static struct soak_stream *stream_of(const struct soak_block *block)
{
	return &soak_contexts[block->context].streams[block->stream];
}

/* True if later work of the stream is ordered after the last work on the block. */
static bool is_known_locked(const struct soak_block *block, const struct soak_stream *stream)
{
	return block->words && block->generation > stream->lost;
}

static CUresult launch(CUfunction function, CUstream stream, void **params)
{
	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

CUresult soak_slow_fill_locked(const struct soak_block *block, CUstream stream, uint64_t ns)
{
	uint64_t ptr = block->ptr, words = block->words;
	uint32_t value = block->value;

	return launch(soak_contexts[block->context].spin_fill, stream, (void *[]){&ptr, &words, &value, &ns});
}

CUresult soak_fill_locked(const struct soak_block *block, CUstream stream, struct soak_random *random)
{
	struct soak_context *context = &soak_contexts[block->context];
	uint64_t ptr = block->ptr, words = block->words, ns = soak_random(random) % SLOW_NS_MAX;
	uint32_t value = block->value;

	if (soak_one_in(random, SLOW_ONE_IN))
		return soak_slow_fill_locked(block, stream, ns);
	return launch(context->fill, stream, (void *[]){&ptr, &words, &value});
}

static uint32_t choose_words(const struct soak_block *block, struct soak_random *random)
{
	size_t words = block->bytes / 4, max = soak_one_in(random, MANY_ONE_IN) ? MANY_WORDS_MAX : WORDS_MAX;

	return (uint32_t)(words < max ? words : max);
}

void soak_block_fill(struct soak_block *block, struct soak_random *random)
{
	struct soak_stream *stream = stream_of(block);

	pthread_mutex_lock(&stream->lock);
	/* If the previous stream was destroyed without a wait, its work may still run: the block may only be freed. */
	if (block->generation > stream->lost) {
		block->words = choose_words(block, random);
		block->value = soak_random(random);
		if (block->words)
			SOAK_MUST(soak_fill_locked(block, stream->handle, random));
		block->generation = stream->generation;
	}
	pthread_mutex_unlock(&stream->lock);
}

/* Returns the pointer if the allocation has succeeded, or else 0. */
static CUdeviceptr allocated(CUresult r, CUdeviceptr ptr)
{
	if (r == CUDA_SUCCESS)
		return ptr;
	if (r == CUDA_ERROR_OUT_OF_MEMORY)
		soak_count(SOAK_OOM);
	else if (r == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
		soak_count(SOAK_REFUSED);
	else
		SOAK_MUST(r);
	return 0;
}

CUdeviceptr soak_alloc(size_t bytes)
{
	CUdeviceptr ptr = 0;
	CUresult r = cuMemAlloc_v2(&ptr, bytes);

	return allocated(r, ptr);
}

static CUdeviceptr alloc_on(struct soak_stream *stream, size_t bytes)
{
	CUdeviceptr ptr = 0;
	CUresult r;

	pthread_mutex_lock(&stream->lock);
	r = cuMemAllocAsync(&ptr, bytes, stream->handle);
	pthread_mutex_unlock(&stream->lock);
	return allocated(r, ptr);
}

bool soak_block_alloc(struct soak_block *block, unsigned context, size_t bytes, struct soak_random *random)
{
	struct soak_stream *stream;

	*block = (struct soak_block){.context = context, .stream = soak_random(random) % SOAK_STREAMS, .bytes = bytes};
	stream = stream_of(block);
	block->is_in_stream_order = soak_is_in_stream_order && soak_one_in(random, IN_STREAM_ORDER_ONE_IN);
	block->ptr = block->is_in_stream_order ? alloc_on(stream, bytes) : soak_alloc(bytes);
	if (!block->ptr)
		return false;
	pthread_mutex_lock(&stream->lock);
	block->generation = stream->generation;
	pthread_mutex_unlock(&stream->lock);
	return true;
}

void soak_block_check(const struct soak_block *block)
{
	struct soak_context *context = &soak_contexts[block->context];
	struct soak_stream *stream = stream_of(block);
	uint64_t ptr = block->ptr, words = block->words;
	uint32_t value = block->value;

	pthread_mutex_lock(&stream->lock);
	if (is_known_locked(block, stream)) {
		SOAK_MUST(launch(
			context->count_wrong, stream->handle, (void *[]){&ptr, &words, &value, &context->wrong}));
		soak_count(SOAK_CHECKS);
	}
	pthread_mutex_unlock(&stream->lock);
}

/* Frees the block on its stream, unless that was destroyed: its slot then has another stream. */
static bool free_async(struct soak_block *block)
{
	struct soak_stream *stream = stream_of(block);
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&stream->lock);
	if (block->generation > stream->lost)
		r = cuMemFreeAsync(block->ptr, stream->handle);
	pthread_mutex_unlock(&stream->lock);
	if (r != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && block->is_in_stream_order)
		SOAK_MUST(r);
	return r == CUDA_SUCCESS;
}

/* A cuMemFree of memory in stream order need not wait for its work, so that memory is always freed on its stream. */
void soak_block_free(struct soak_block *block, struct soak_random *random)
{
	CUresult r;

	soak_block_check(block);
	if (block->is_in_stream_order) {
		if (!free_async(block)) {
			soak_count(SOAK_REFUSED);
			return;
		}
	} else if (!soak_one_in(random, FREED_ASYNC_ONE_IN) || !free_async(block)) {
		if (soak_one_in(random, FOREIGN_ONE_IN))
			soak_use_context(&soak_contexts[soak_random(random) % soak_n_contexts]);
		r = cuMemFree_v2(block->ptr);
		if (r == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
			soak_count(SOAK_REFUSED);
			return;
		}
		SOAK_MUST(r);
	}
	block->ptr = 0;
}

uint32_t *soak_alloc_pinned(size_t bytes)
{
	void *host = NULL;
	CUresult r = cuMemHostAlloc(&host, bytes, 0);

	if (r == CUDA_SUCCESS)
		return host;
	if (r == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
		soak_count(SOAK_REFUSED);
	else
		SOAK_MUST(r);
	return NULL;
}

/* Copies from pinned memory, which is freed while the copy may still read it. */
void soak_block_upload(struct soak_block *block, struct soak_random *random)
{
	struct soak_stream *stream = stream_of(block);
	uint32_t words = choose_words(block, random);
	size_t bytes = words * sizeof(uint32_t);
	uint32_t *host = words ? soak_alloc_pinned(bytes) : NULL;

	if (!host)
		return;
	pthread_mutex_lock(&stream->lock);
	if (block->generation > stream->lost) {
		block->value = soak_random(random);
		block->words = words;
		for (uint32_t i = 0; i < words; i++)
			host[i] = block->value;
		soak_host_access(host, bytes, true);
		SOAK_MUST(cuMemcpyHtoDAsync_v2(block->ptr, host, bytes, stream->handle));
		block->generation = stream->generation;
	}
	pthread_mutex_unlock(&stream->lock);
	SOAK_MUST(cuMemFreeHost(host));
}

/*
 * Copies to pinned memory, and either waits for the copy and compares, or frees the memory while the copy may still
 * run.
 */
void soak_block_download(const struct soak_block *block, struct soak_random *random)
{
	struct soak_stream *stream = stream_of(block);
	size_t bytes = block->words * sizeof(uint32_t);
	uint32_t *host = bytes ? soak_alloc_pinned(bytes) : NULL;
	unsigned long long wrong = 0;

	if (!host)
		return;
	pthread_mutex_lock(&stream->lock);
	if (is_known_locked(block, stream)) {
		SOAK_MUST(cuMemcpyDtoHAsync_v2(host, block->ptr, bytes, stream->handle));
		if (soak_one_in(random, 2)) {
			SOAK_MUST(cuStreamSynchronize(stream->handle));
			soak_host_access(host, bytes, false);
			for (uint32_t i = 0; i < block->words; i++)
				wrong += host[i] != block->value;
			if (wrong)
				soak_wrong("words of pinned memory", wrong);
			soak_count(SOAK_CHECKS);
		}
	}
	pthread_mutex_unlock(&stream->lock);
	SOAK_MUST(cuMemFreeHost(host));
}

void soak_stream_renew(unsigned context, struct soak_random *random)
{
	struct soak_stream *stream = &soak_contexts[context].streams[1 + soak_random(random) % (SOAK_STREAMS - 1)];

	pthread_mutex_lock(&stream->lock);
	if (soak_is_in_stream_order || soak_one_in(random, 2))
		SOAK_MUST(cuStreamSynchronize(stream->handle));
	else
		stream->lost = stream->generation;
	SOAK_MUST(cuStreamDestroy_v2(stream->handle));
	SOAK_MUST(cuStreamCreate(&stream->handle, CU_STREAM_NON_BLOCKING));
	stream->generation++;
	pthread_mutex_unlock(&stream->lock);
}
