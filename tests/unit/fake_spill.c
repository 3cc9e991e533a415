/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory of the host that is mapped like a chunk. A copy takes the name of the content along. */

#include <errno.h>

#include "fake_impl.h"

static int create(void *arg, uint64_t bytes, uint64_t *ret_handle)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_HOST_CREATE, .bytes = bytes, .slot = GP_NO_SLOT};

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_HOST_CREATE);
	pthread_mutex_lock(&fake->lock);
	if (!entry.result) {
		fake_add_chunk_locked(fake, bytes, true);
		*ret_handle = fake->n_handles;
	}
	pthread_mutex_unlock(&fake->lock);
	return fake_finish(fake, entry);
}

static void release(void *arg, uint64_t handle, uint64_t bytes)
{
	fake_mapping.release(arg, handle, bytes);
}

static int copy(void *arg, uint64_t to, uint64_t from, uint64_t bytes)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_COPY, .addr = to, .bytes = bytes, .slot = GP_NO_SLOT};
	struct fake_chunk *source, *target;

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_COPY);
	pthread_mutex_lock(&fake->lock);
	source = fake_chunk_at_locked(fake, from);
	target = fake_chunk_at_locked(fake, to);
	if (!source || !target || source->size != bytes || target->size != bytes || target->is_useless)
		fake_set_breach(fake, "memory was copied that is not mapped");
	else if (!entry.result)
		target->content = source->content ? source->content : from;
	pthread_mutex_unlock(&fake->lock);
	return fake_finish(fake, entry);
}

static bool is_lost(void *arg, int error)
{
	return ((struct fake *)arg)->has_ended || error == 700;
}

static uint64_t make_room(void *arg, uint64_t bytes, uint64_t least)
{
	struct fake *fake = arg;

	fake_check_locks(GP_RANK_FENCE);
	return fake->make_room ? fake->make_room(bytes, least) : 0;
}

static void seek(void *arg, bool is_begin)
{
	((struct fake *)arg)->seeks += is_begin ? 1 : (uint64_t)-1;
}

const struct gp_spill_ops fake_spill = {
	.create = create,
	.release = release,
	.copy = copy,
	.is_lost = is_lost,
	.make_room = make_room,
	.seek = seek,
};

uint64_t fake_content(struct fake *fake, uint64_t addr, bool *ret_is_of_host)
{
	const struct fake_chunk *chunk;
	uint64_t content = 0;

	pthread_mutex_lock(&fake->lock);
	chunk = fake_chunk_at_locked(fake, addr);
	if (chunk) {
		content = chunk->content ? chunk->content : chunk->addr;
		*ret_is_of_host = chunk->is_of_host;
	}
	pthread_mutex_unlock(&fake->lock);
	return content;
}
