/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Arenas: reserved addresses, and the chunks of memory that are mapped there. */

#include <errno.h>
#include <stdlib.h>

#include "fake_impl.h"

struct fake_chunk *fake_chunk_at_locked(struct fake *fake, uint64_t addr)
{
	for (size_t i = 0; i < fake->n_chunks; i++)
		if (fake->chunks[i].addr && addr >= fake->chunks[i].addr &&
			addr - fake->chunks[i].addr < fake->chunks[i].size)
			return &fake->chunks[i];
	return NULL;
}

static bool is_usable_locked(struct fake *fake, uint64_t addr)
{
	const struct fake_chunk *chunk = fake_chunk_at_locked(fake, addr);

	return chunk && !chunk->is_useless;
}

bool fake_is_mapped(struct fake *fake, uint64_t addr, uint64_t bytes)
{
	bool is_mapped = true;

	if (addr < BASE + SPACE_FACTOR * fake->capacity)
		return true;
	pthread_mutex_lock(&fake->lock);
	for (uint64_t at = addr; is_mapped && at < addr + bytes; at += GP_MIB)
		is_mapped = is_usable_locked(fake, at);
	is_mapped = is_mapped && is_usable_locked(fake, addr + bytes - 1);
	pthread_mutex_unlock(&fake->lock);
	return is_mapped || fake->has_ended; /* the context may have ended after the hand-out */
}

static int address_reserve(void *arg, uint64_t bytes, uint64_t *ret_addr)
{
	struct fake *fake = arg;

	fake_check_locks(GP_RANK_FENCE);
	if (fake->cannot_map)
		return -ENOTSUP;
	pthread_mutex_lock(&fake->lock);
	*ret_addr = fake->addresses_end;
	fake->addresses_end += bytes;
	fake->addresses_bytes += bytes;
	pthread_mutex_unlock(&fake->lock);
	return 0;
}

static void address_free(void *arg, uint64_t addr, uint64_t bytes)
{
	struct fake *fake = arg;

	fake_check_locks(GP_RANK_FENCE);
	pthread_mutex_lock(&fake->lock);
	for (size_t i = 0; i < fake->n_chunks; i++)
		if (fake->chunks[i].addr >= addr && fake->chunks[i].addr < addr + bytes)
			fake_set_breach(fake, "addresses were freed with a chunk mapped there");
	fake->addresses_bytes -= bytes;
	/* The last addresses can be reserved again. */
	if (addr + bytes == fake->addresses_end)
		fake->addresses_end = addr;
	pthread_mutex_unlock(&fake->lock);
}

static struct fake_chunk *find_chunk_locked(struct fake *fake, uint64_t handle)
{
	for (size_t i = 0; i < fake->n_chunks; i++)
		if (fake->chunks[i].handle == handle)
			return &fake->chunks[i];
	fake_set_breach(fake, "an unknown chunk was named");
	return NULL;
}

static uint64_t *bytes_of_locked(struct fake *fake, bool is_of_host)
{
	return is_of_host ? &fake->host_bytes : &fake->reserved_bytes;
}

void fake_add_chunk_locked(struct fake *fake, uint64_t bytes, bool is_of_host)
{
	if (fake->n_chunks == fake->chunks_size) {
		fake->chunks_size = fake->chunks_size * 2 + 64;
		fake->chunks = realloc(fake->chunks, fake->chunks_size * sizeof(*fake->chunks));
		if (!fake->chunks)
			abort();
	}
	fake->chunks[fake->n_chunks++] =
		(struct fake_chunk){.handle = ++fake->n_handles, .size = bytes, .is_of_host = is_of_host};
	*bytes_of_locked(fake, is_of_host) += bytes;
}

static void remove_chunk_locked(struct fake *fake, struct fake_chunk *chunk)
{
	*bytes_of_locked(fake, chunk->is_of_host) -= chunk->size;
	*chunk = fake->chunks[--fake->n_chunks];
}

static int create(void *arg, uint64_t bytes, uint64_t *ret_handle)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_RESERVE, .bytes = bytes, .slot = GP_NO_SLOT};

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_RESERVE);
	pthread_mutex_lock(&fake->lock);
	if (!entry.result && bytes > fake->capacity - fake->outside - fake->reserved_bytes)
		entry.result = -ENOMEM;
	if (!entry.result) {
		fake_add_chunk_locked(fake, bytes, false);
		*ret_handle = fake->n_handles;
	}
	pthread_mutex_unlock(&fake->lock);
	return fake_finish(fake, entry);
}

static void release_chunk(void *arg, uint64_t handle, uint64_t bytes)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_RELEASE_BEGIN, .bytes = bytes, .slot = GP_NO_SLOT};
	struct fake_chunk *chunk;

	fake_check_locks(GP_RANK_FENCE);
	(void)fake_begin(fake, FAKE_RELEASE_BEGIN);
	pthread_mutex_lock(&fake->lock);
	chunk = find_chunk_locked(fake, handle);
	if (chunk && ((chunk->addr && !chunk->is_stuck) || chunk->is_released || chunk->size != bytes))
		fake_set_breach(fake, "a chunk was released that is still mapped, or twice, or with another size");
	if (chunk)
		chunk->is_released = true;
	if (chunk && !chunk->addr)
		remove_chunk_locked(fake, chunk);
	pthread_mutex_unlock(&fake->lock);
	(void)fake_finish(fake, entry);
}

static int map_chunk(void *arg, uint64_t addr, uint64_t bytes, uint64_t handle, bool *ret_is_stuck)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_MAP, .addr = addr, .bytes = bytes, .slot = GP_NO_SLOT};
	struct fake_chunk *chunk;

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_MAP);
	*ret_is_stuck = entry.result && fake_begin(fake, FAKE_UNDO);
	pthread_mutex_lock(&fake->lock);
	for (uint64_t at = addr; at < addr + bytes; at += GP_MIB)
		if (fake_chunk_at_locked(fake, at))
			fake_set_breach(fake, "a chunk was mapped where another one is");
	chunk = find_chunk_locked(fake, handle);
	if (chunk && (chunk->addr || chunk->was_exported || chunk->size != bytes))
		fake_set_breach(fake, "a chunk was mapped that is mapped already, was exported, or has another size");
	if (chunk && (!entry.result || *ret_is_stuck))
		chunk->addr = addr;
	if (chunk)
		chunk->is_useless = chunk->is_stuck = *ret_is_stuck;
	pthread_mutex_unlock(&fake->lock);
	return fake_finish(fake, entry);
}

/* Forgets the history of this memory. Returns true if any of it was exported. */
static UNWATCHED bool forget_history(struct fake *fake, uint64_t addr, uint64_t bytes)
{
	_Atomic uint64_t *units = fake_units_of(fake, addr, bytes);
	bool was_exported = false;

	for (uint64_t i = 0; units && i < bytes / GP_ALIGN; i++)
		was_exported |= atomic_exchange_explicit(&units[i], 0, memory_order_relaxed) & UNIT_EXPORTED;
	return was_exported;
}

static int unmap_chunk(void *arg, uint64_t addr, uint64_t bytes)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_UNMAP, .addr = addr, .bytes = bytes, .slot = GP_NO_SLOT};
	struct fake_chunk *chunk = NULL;

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_UNMAP);
	pthread_mutex_lock(&fake->lock);
	for (size_t i = 0; i < fake->n_chunks; i++)
		if (fake->chunks[i].addr == addr && fake->chunks[i].size == bytes)
			chunk = &fake->chunks[i];
	if (!chunk)
		fake_set_breach(fake, "addresses were unmapped that no chunk is mapped at");
	fake_check_copies_locked(fake, addr, bytes);
	if (fake_last_use(fake, addr, bytes) > atomic_load(&fake->completed) && !fake->has_ended)
		fake_set_breach(fake, "memory that the GPU still uses was unmapped");
	if (chunk) {
		chunk->is_stuck = entry.result != 0;
		chunk->is_hopeless = entry.result && fake->has_ended;
	}
	if (chunk && !entry.result) {
		chunk->addr = 0;
		chunk->was_exported = forget_history(fake, addr, bytes);
	}
	if (chunk && !chunk->addr && chunk->is_released)
		remove_chunk_locked(fake, chunk);
	pthread_mutex_unlock(&fake->lock);
	return fake_finish(fake, entry);
}

/* Counts as a release that waits. */
static int wait_as_free(void *arg)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_RELEASE, .slot = GP_NO_SLOT};

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_RELEASE);
	if (!entry.result)
		fake_wait_for(fake, atomic_load(&fake->submitted));
	return fake_finish(fake, entry);
}

const char *fake_check_unmapped(struct fake *fake)
{
	const char *breach = atomic_load(&fake->breach);

	if (breach)
		return breach;
	for (size_t i = 0; i < fake->n_chunks; i++)
		if (!fake->chunks[i].is_hopeless || !fake->chunks[i].is_released)
			return "a chunk was not released";
	return fake->addresses_bytes && !fake->n_chunks ? "reserved addresses were not freed" : NULL;
}

const struct gp_mapping_ops fake_mapping = {
	.address_reserve = address_reserve,
	.address_free = address_free,
	.create = create,
	.release = release_chunk,
	.map = map_chunk,
	.unmap = unmap_chunk,
	.wait = wait_as_free,
};
