/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The call sites are in a hash table that only grows. A lookup takes no lock: a site is complete before its number is
 * stored in the bucket, and after that only its counters change.
 */

#include "call_site.h"

#include <stdatomic.h>
#include <string.h>

#include "pool/lock.h"
#include "shim/base/reserve.h"

enum {
	BUCKET_BITS = 15,
	BUCKETS = 1 << BUCKET_BITS,
	FRAMES_MAX = 1 << 20, /* frames of all sites together */
};

struct site {
	uint64_t hash;
	uint32_t next; /* in its bucket; 0: none */
	uint32_t first_frame, n_frames;
	_Atomic uint64_t n_allocs, bytes;
};

struct table {
	_Atomic uint32_t buckets[BUCKETS];
	struct site sites[GP_SITES_MAX + 1]; /* the first is unused */
	uintptr_t frames[FRAMES_MAX];
};

static _Atomic(void *) table;
static struct gp_spinlock lock; /* taken to add a site */
static _Atomic uint32_t n_sites;
static uint32_t n_frames_used;
static _Atomic uint64_t n_dropped;

int gp_site_init(void)
{
	return gp_reserve_once(&table, sizeof(struct table));
}

static uint64_t hash_of(const uintptr_t *frames, unsigned n)
{
	uint64_t hash = n;

	for (unsigned i = 0; i < n; i++) {
		hash = (hash ^ frames[i]) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 29;
	}
	return hash;
}

static _Atomic uint32_t *bucket_of(struct table *t, uint64_t hash)
{
	return &t->buckets[hash >> (64 - BUCKET_BITS)];
}

static uint32_t find(struct table *t, uint64_t hash, const uintptr_t *frames, unsigned n)
{
	uint32_t i = atomic_load_explicit(bucket_of(t, hash), memory_order_acquire);

	while (i && !(t->sites[i].hash == hash && t->sites[i].n_frames == n &&
			    memcmp(&t->frames[t->sites[i].first_frame], frames, n * sizeof(*frames)) == 0))
		i = t->sites[i].next;
	return i;
}

static uint32_t add_locked(struct table *t, uint64_t hash, const uintptr_t *frames, unsigned n)
{
	_Atomic uint32_t *bucket = bucket_of(t, hash);
	uint32_t i = atomic_load_explicit(&n_sites, memory_order_relaxed) + 1;

	if (i > GP_SITES_MAX || n_frames_used + n > FRAMES_MAX)
		return 0;
	memcpy(&t->frames[n_frames_used], frames, n * sizeof(*frames));
	t->sites[i] = (struct site){
		.hash = hash,
		.next = atomic_load_explicit(bucket, memory_order_relaxed),
		.first_frame = n_frames_used,
		.n_frames = n,
	};
	n_frames_used += n;
	atomic_store_explicit(bucket, i, memory_order_release);
	atomic_store_explicit(&n_sites, i, memory_order_release);
	return i;
}

uint32_t gp_site_intern(const uintptr_t *frames, unsigned n)
{
	struct table *t = atomic_load(&table);
	uint64_t hash = hash_of(frames, n);
	uint32_t i = t ? find(t, hash, frames, n) : 0;

	if (gp_likely(i || !t))
		return i;
	gp_spin_lock(&lock);
	i = find(t, hash, frames, n);
	if (!i)
		i = add_locked(t, hash, frames, n);
	gp_spin_unlock(&lock);
	if (!i)
		atomic_fetch_add_explicit(&n_dropped, 1, memory_order_relaxed);
	return i;
}

void gp_site_count(uint32_t site, uint64_t bytes)
{
	struct table *t = atomic_load(&table);

	atomic_fetch_add_explicit(&t->sites[site].n_allocs, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&t->sites[site].bytes, bytes, memory_order_relaxed);
}

void gp_site_info(uint32_t site, struct gp_site_info *ret)
{
	struct table *t = atomic_load(&table);

	*ret = (struct gp_site_info){
		.frames = &t->frames[t->sites[site].first_frame],
		.n_frames = t->sites[site].n_frames,
		.n_allocs = atomic_load_explicit(&t->sites[site].n_allocs, memory_order_relaxed),
		.bytes = atomic_load_explicit(&t->sites[site].bytes, memory_order_relaxed),
	};
}

uint32_t gp_sites_count(void)
{
	return atomic_load_explicit(&n_sites, memory_order_acquire);
}

uint64_t gp_sites_dropped(void)
{
	return atomic_load_explicit(&n_dropped, memory_order_relaxed);
}
