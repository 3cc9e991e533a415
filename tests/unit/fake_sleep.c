/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Copies to and from host memory. The content of device memory is its own address, at the begin and the end of each
 * copy. So a copy back to another address, or of host memory that was not written, is a breach.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake_impl.h"

enum { COPIES_MAX = 4096, SLOTS = 2 };

struct fake_copies {
	struct copy {
		uint64_t addr, bytes, host;
	} under_way[COPIES_MAX];
	unsigned n;
	unsigned marks[SLOTS]; /* copies before the mark, of those under way */
};

static struct fake_copies *copies_of_locked(struct fake *fake)
{
	if (!fake->copies)
		fake->copies = calloc(1, sizeof(*fake->copies));
	if (!fake->copies)
		abort();
	return fake->copies;
}

static bool overlaps(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

void fake_check_copies_locked(struct fake *fake, uint64_t addr, uint64_t bytes)
{
	const struct fake_copies *copies = copies_of_locked(fake);

	for (unsigned i = 0; i < copies->n && !fake->has_ended; i++)
		if (overlaps(addr, bytes, copies->under_way[i].addr, copies->under_way[i].bytes) ||
			overlaps(addr, bytes, copies->under_way[i].host, copies->under_way[i].bytes))
			fake_set_breach(fake, "memory was taken away during a copy");
}

static int host_take(
	void *arg, uint64_t bytes, uint64_t next_bytes, void **ret_host, uint64_t *ret_size, bool *ret_is_new)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {
		.call = FAKE_HOST_TAKE, .bytes = bytes, .next_bytes = next_bytes, .slot = GP_NO_SLOT};

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_HOST_TAKE);
	if (!entry.result) {
		/* Only the ends of it are touched. */
		*ret_host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		*ret_size = bytes;
		*ret_is_new = !fake->is_host_kept;
		if (*ret_host == MAP_FAILED)
			abort();
		pthread_mutex_lock(&fake->lock);
		fake->host_bytes += bytes;
		fake->pinned_bytes += bytes;
		pthread_mutex_unlock(&fake->lock);
	}
	return fake_finish(fake, entry);
}

static void host_give(void *arg, void *host, uint64_t size, bool is_pinned)
{
	struct fake *fake = arg;

	fake_check_locks(GP_RANK_FENCE);
	pthread_mutex_lock(&fake->lock);
	fake_check_copies_locked(fake, (uint64_t)(uintptr_t)host, size);
	fake->host_bytes -= size;
	fake->pinned_bytes -= is_pinned ? size : 0;
	pthread_mutex_unlock(&fake->lock);
	munmap(host, size);
}

static void host_unpin(void *arg, void *host, uint64_t size)
{
	struct fake *fake = arg;

	fake_check_locks(GP_RANK_FENCE);
	pthread_mutex_lock(&fake->lock);
	fake_check_copies_locked(fake, (uint64_t)(uintptr_t)host, size);
	fake->pinned_bytes -= size;
	pthread_mutex_unlock(&fake->lock);
}

static int host_pin(void *arg, void *unused, uint64_t size)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_HOST_PIN, .bytes = size, .slot = GP_NO_SLOT};

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_HOST_PIN);
	pthread_mutex_lock(&fake->lock);
	fake->pinned_bytes += entry.result ? 0 : size;
	pthread_mutex_unlock(&fake->lock);
	return fake_finish(fake, entry);
}

static int start_copy(struct fake *fake, uint64_t addr, char *host, uint64_t bytes, bool is_out)
{
	struct fake_log_entry entry = {.call = FAKE_COPY, .addr = addr, .bytes = bytes, .slot = GP_NO_SLOT};
	uint64_t first, last = addr + bytes;

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_COPY);
	if (!fake_is_mapped(fake, addr, bytes))
		fake_set_breach(fake, "memory was copied that is not mapped");
	pthread_mutex_lock(&fake->lock);
	if (!entry.result && is_out) {
		memcpy(host, &addr, sizeof(addr));
		memcpy(host + bytes - sizeof(last), &last, sizeof(last));
	} else if (!entry.result) {
		memcpy(&first, host, sizeof(first));
		memcpy(&last, host + bytes - sizeof(last), sizeof(last));
		if (first != addr || last != addr + bytes)
			fake_set_breach(fake, "other content was copied in than had been copied out");
	}
	if (!entry.result && copies_of_locked(fake)->n == COPIES_MAX)
		abort();
	if (!entry.result)
		fake->copies->under_way[fake->copies->n++] = (struct copy){addr, bytes, (uint64_t)(uintptr_t)host};
	pthread_mutex_unlock(&fake->lock);
	return fake_finish(fake, entry);
}

static int copy_out(void *arg, void *host, uint64_t addr, uint64_t bytes)
{
	return start_copy(arg, addr, host, bytes, true);
}

static int copy_in(void *arg, uint64_t addr, const void *host, uint64_t bytes)
{
	return start_copy(arg, addr, (char *)host, bytes, false);
}

static int zero(void *arg, uint64_t addr, uint64_t bytes)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_COPY, .addr = addr, .bytes = bytes, .slot = GP_NO_SLOT};

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_COPY);
	if (!fake_is_mapped(fake, addr, bytes))
		fake_set_breach(fake, "memory was set to zero that is not mapped");
	pthread_mutex_lock(&fake->lock);
	if (!entry.result && copies_of_locked(fake)->n == COPIES_MAX)
		abort();
	if (!entry.result)
		fake->copies->under_way[fake->copies->n++] = (struct copy){addr, bytes, 0};
	if (!entry.result)
		fake->zeroed_bytes += bytes;
	pthread_mutex_unlock(&fake->lock);
	return fake_finish(fake, entry);
}

static int copy_mark(void *arg, int slot)
{
	struct fake *fake = arg;

	pthread_mutex_lock(&fake->lock);
	copies_of_locked(fake)->marks[slot] = copies_of_locked(fake)->n;
	pthread_mutex_unlock(&fake->lock);
	return 0;
}

static void end_copies_locked(struct fake *fake, unsigned n)
{
	struct fake_copies *copies = copies_of_locked(fake);

	memmove(copies->under_way, copies->under_way + n, (copies->n - n) * sizeof(copies->under_way[0]));
	copies->n -= n;
	for (int i = 0; i < SLOTS; i++)
		copies->marks[i] -= copies->marks[i] < n ? copies->marks[i] : n;
}

static int copy_wait(void *arg, int slot)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_COPY_WAIT, .slot = slot};

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_COPY_WAIT);
	pthread_mutex_lock(&fake->lock);
	if (!entry.result)
		end_copies_locked(fake, copies_of_locked(fake)->marks[slot]);
	pthread_mutex_unlock(&fake->lock);
	return fake_finish(fake, entry);
}

static void copy_drain(void *arg)
{
	struct fake *fake = arg;

	fake_check_locks(GP_RANK_FENCE);
	pthread_mutex_lock(&fake->lock);
	end_copies_locked(fake, copies_of_locked(fake)->n);
	pthread_mutex_unlock(&fake->lock);
}

const struct gp_sleep_ops fake_sleep = {
	.piece_bytes = FAKE_PIECE,
	.host_take = host_take,
	.host_give = host_give,
	.host_unpin = host_unpin,
	.host_pin = host_pin,
	.copy_out = copy_out,
	.copy_in = copy_in,
	.zero = zero,
	.copy_mark = copy_mark,
	.copy_wait = copy_wait,
	.copy_drain = copy_drain,
};
