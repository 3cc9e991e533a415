/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Ranges of addresses, and the pieces of memory that are mapped there. */

#include <errno.h>
#include <stdlib.h>

#include "fake_impl.h"

static const struct fake_piece *piece_at_locked(const struct fake *fake, uint64_t addr)
{
	for (size_t i = 0; i < fake->n_pieces; i++)
		if (fake->pieces[i].addr && addr >= fake->pieces[i].addr &&
			addr - fake->pieces[i].addr < fake->pieces[i].size)
			return &fake->pieces[i];
	return NULL;
}

static bool is_usable_locked(const struct fake *fake, uint64_t addr)
{
	const struct fake_piece *piece = piece_at_locked(fake, addr);

	return piece && !piece->is_useless;
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
	return is_mapped || fake->has_ended; /* perhaps since it was handed out */
}

/* Only with room for their history, that of the model included. */
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
	for (size_t i = 0; i < fake->n_pieces; i++)
		if (fake->pieces[i].addr >= addr && fake->pieces[i].addr < addr + bytes)
			fake_set_breach(fake, "addresses went back with memory mapped there");
	fake->addresses_bytes -= bytes;
	/* The last of them can be had again. */
	if (addr + bytes == fake->addresses_end)
		fake->addresses_end = addr;
	pthread_mutex_unlock(&fake->lock);
}

static struct fake_piece *piece_locked(struct fake *fake, uint64_t handle)
{
	for (size_t i = 0; i < fake->n_pieces; i++)
		if (fake->pieces[i].handle == handle)
			return &fake->pieces[i];
	fake_set_breach(fake, "a piece of memory was named that is none");
	return NULL;
}

static void add_piece_locked(struct fake *fake, uint64_t bytes)
{
	if (fake->n_pieces == fake->pieces_size) {
		fake->pieces_size = fake->pieces_size * 2 + 64;
		fake->pieces = realloc(fake->pieces, fake->pieces_size * sizeof(*fake->pieces));
		if (!fake->pieces)
			abort();
	}
	fake->pieces[fake->n_pieces++] = (struct fake_piece){.handle = ++fake->n_handles, .size = bytes};
	fake->reserved_bytes += bytes;
}

static void remove_piece_locked(struct fake *fake, struct fake_piece *piece)
{
	fake->reserved_bytes -= piece->size;
	*piece = fake->pieces[--fake->n_pieces];
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
		add_piece_locked(fake, bytes);
		*ret_handle = fake->n_handles;
	}
	pthread_mutex_unlock(&fake->lock);
	return fake_finish(fake, entry);
}

static void release_piece(void *arg, uint64_t handle, uint64_t bytes)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_RELEASE_BEGIN, .bytes = bytes, .slot = GP_NO_SLOT};
	struct fake_piece *piece;

	fake_check_locks(GP_RANK_FENCE);
	(void)fake_begin(fake, FAKE_RELEASE_BEGIN);
	pthread_mutex_lock(&fake->lock);
	piece = piece_locked(fake, handle);
	if (piece && ((piece->addr && !piece->is_stuck) || piece->is_released || piece->size != bytes))
		fake_set_breach(fake, "a piece of memory went back that is mapped, or another");
	if (piece)
		piece->is_released = true;
	if (piece && !piece->addr)
		remove_piece_locked(fake, piece);
	pthread_mutex_unlock(&fake->lock);
	(void)fake_finish(fake, entry);
}

static int map_piece(void *arg, uint64_t addr, uint64_t bytes, uint64_t handle, bool *ret_is_stuck)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_MAP, .addr = addr, .bytes = bytes, .slot = GP_NO_SLOT};
	struct fake_piece *piece;

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_MAP);
	*ret_is_stuck = entry.result && fake_begin(fake, FAKE_UNDO);
	pthread_mutex_lock(&fake->lock);
	for (uint64_t at = addr; at < addr + bytes; at += GP_MIB)
		if (piece_at_locked(fake, at))
			fake_set_breach(fake, "memory was mapped where there is some already");
	piece = piece_locked(fake, handle);
	if (piece && (piece->addr || piece->was_exported || piece->size != bytes))
		fake_set_breach(fake, "a piece of memory was mapped that is mapped, or was exported, or another");
	if (piece && (!entry.result || *ret_is_stuck))
		piece->addr = addr;
	if (piece)
		piece->is_useless = piece->is_stuck = *ret_is_stuck;
	pthread_mutex_unlock(&fake->lock);
	return fake_finish(fake, entry);
}

/* Whether anything there was exported; nobody knows of it any more. */
static bool forget_history(struct fake *fake, uint64_t addr, uint64_t bytes)
{
	_Atomic uint64_t *units = fake_units_of(fake, addr, bytes);
	bool was_exported = false;

	for (uint64_t i = 0; units && i < bytes / GP_ALIGN; i++)
		was_exported |= atomic_exchange_explicit(&units[i], 0, memory_order_relaxed) & UNIT_EXPORTED;
	return was_exported;
}

static int unmap_piece(void *arg, uint64_t addr, uint64_t bytes)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_UNMAP, .addr = addr, .bytes = bytes, .slot = GP_NO_SLOT};
	struct fake_piece *piece = NULL;

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_UNMAP);
	pthread_mutex_lock(&fake->lock);
	for (size_t i = 0; i < fake->n_pieces; i++)
		if (fake->pieces[i].addr == addr && fake->pieces[i].size == bytes)
			piece = &fake->pieces[i];
	if (!piece)
		fake_set_breach(fake, "something was unmapped that is not mapped");
	if (fake_last_use(fake, addr, bytes) > atomic_load(&fake->completed) && !fake->has_ended)
		fake_set_breach(fake, "memory that the GPU still uses was unmapped");
	if (piece) {
		piece->is_stuck = entry.result != 0;
		piece->is_hopeless = entry.result && fake->has_ended;
	}
	if (piece && !entry.result) {
		piece->addr = 0;
		piece->was_exported = forget_history(fake, addr, bytes);
	}
	if (piece && !piece->addr && piece->is_released)
		remove_piece_locked(fake, piece);
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
	for (size_t i = 0; i < fake->n_pieces; i++)
		if (!fake->pieces[i].is_hopeless || !fake->pieces[i].is_released)
			return "a piece of memory was lost";
	return fake->addresses_bytes && !fake->n_pieces ? "addresses were lost" : NULL;
}

const struct gp_mapping_ops fake_mapping = {
	.address_reserve = address_reserve,
	.address_free = address_free,
	.create = create,
	.release = release_piece,
	.map = map_piece,
	.unmap = unmap_piece,
	.wait = wait_as_free,
};
