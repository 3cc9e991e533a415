/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A hash table in shards over memory of its own, which the kernel gives as it is touched. What is freed stays for the
 * sake of double frees, until its address is handed out again, its shard is full, or enough have been freed since.
 *
 * The locks are held for some instructions; nothing is called meanwhile, no stack is taken.
 */

#include "origin.h"

#include <errno.h>
#include <sys/mman.h>

#include "../pool/lock.h"
#include "driver.h"
#include "site.h"
#include "stack.h"

enum {
	SHARD_BITS = 6,
	SHARDS = 1 << SHARD_BITS,
	BUCKET_BITS = 14,
	BUCKETS = 1 << BUCKET_BITS,
	ENTRIES = 1 << BUCKET_BITS, /* of a shard */
	FREED_MAX = 1024,	    /* of these, that were freed */
};

/* Of larger blocks each has its stack, whatever the sample is. */
#define SAMPLED_BELOW GP_MIB

struct entry {
	uint64_t key;
	struct gp_origin origin;
	uint32_t next;	       /* in its bucket, or spare; 0: none */
	uint32_t older, newer; /* freed */
};

struct shard {
	struct gp_spinlock lock;
	uint32_t n_used, spare, n_freed, oldest, newest;
	uint32_t buckets[BUCKETS];
	struct entry entries[ENTRIES + 1]; /* the first is nobody's */
};

_Atomic unsigned gp_origin_mode;

static _Atomic(struct shard *) shards;
static _Atomic unsigned depth, sample = 1;
static _Atomic uint64_t since_ns, n_dropped;

static uint64_t hash_of(uint64_t key)
{
	uint64_t hash = (key ^ key >> 32) * UINT64_C(0x9e3779b97f4a7c15);

	return hash ^ hash >> 29;
}

/* There are shards once the mode says that there may be blocks in them: so it is looked at first. */
static struct shard *shard_of(uint64_t key)
{
	(void)atomic_load_explicit(&gp_origin_mode, memory_order_acquire);
	return &atomic_load_explicit(&shards, memory_order_acquire)[hash_of(key) >> (64 - SHARD_BITS)];
}

/* The link that leads to the entry with that key, or the end of its bucket. */
static uint32_t *find_locked(struct shard *shard, uint64_t key)
{
	uint32_t *at = &shard->buckets[hash_of(key) & (BUCKETS - 1)];

	while (*at && shard->entries[*at].key != key)
		at = &shard->entries[*at].next;
	return at;
}

static void list_locked(struct shard *shard, uint32_t i)
{
	struct entry *e = &shard->entries[i];

	e->newer = 0;
	e->older = shard->newest;
	*(e->older ? &shard->entries[e->older].newer : &shard->oldest) = i;
	shard->newest = i;
	shard->n_freed++;
}

static void unlist_locked(struct shard *shard, uint32_t i)
{
	struct entry *e = &shard->entries[i];

	*(e->newer ? &shard->entries[e->newer].older : &shard->newest) = e->older;
	*(e->older ? &shard->entries[e->older].newer : &shard->oldest) = e->newer;
	shard->n_freed--;
}

static void remove_locked(struct shard *shard, uint32_t *at)
{
	uint32_t i = *at;

	if (shard->entries[i].origin.is_freed)
		unlist_locked(shard, i);
	*at = shard->entries[i].next;
	shard->entries[i].next = shard->spare;
	shard->spare = i;
}

/* A spare entry; what was freed first makes room. 0: there is none. */
static uint32_t new_locked(struct shard *shard)
{
	uint32_t i = shard->spare;

	if (!i && shard->n_used < ENTRIES)
		return ++shard->n_used;
	if (!i && shard->oldest)
		remove_locked(shard, find_locked(shard, shard->entries[shard->oldest].key));
	i = shard->spare;
	if (i)
		shard->spare = shard->entries[i].next;
	return i;
}

static bool put_locked(struct shard *shard, uint64_t key, const struct gp_origin *origin)
{
	uint32_t *at = find_locked(shard, key), i = *at;

	if (i && shard->entries[i].origin.is_freed)
		unlist_locked(shard, i);
	if (!i) {
		i = new_locked(shard);
		if (!i)
			return false;
		at = find_locked(shard, key);
		shard->entries[i].key = key;
		shard->entries[i].next = 0;
		*at = i;
	}
	shard->entries[i].origin = *origin;
	return true;
}

static bool has_stack(uint64_t bytes)
{
	static _Thread_local unsigned n __attribute__((tls_model("initial-exec")));
	unsigned every = atomic_load_explicit(&sample, memory_order_relaxed);

	return bytes >= SAMPLED_BELOW || every < 2 || n++ % every == 0;
}

static uint32_t site_of_caller(void)
{
	uintptr_t frames[GP_STACK_MAX];
	unsigned n = gp_stack_take(frames, atomic_load_explicit(&depth, memory_order_relaxed));

	return n ? gp_site_intern(frames, n) : 0;
}

/* What was there before has gone in some way that nobody told of. */
static void forget(uint64_t key)
{
	struct shard *shard = shard_of(key);
	uint32_t *at;

	gp_spin_lock(&shard->lock);
	at = find_locked(shard, key);
	if (*at)
		remove_locked(shard, at);
	gp_spin_unlock(&shard->lock);
}

void gp_origin_given_slow(uint64_t key, uint64_t bytes)
{
	struct gp_origin origin = {.bytes = bytes, .time_ns = gp_driver_now_ns(NULL)};
	struct shard *shard = shard_of(key);
	bool is_put;

	if (!(atomic_load_explicit(&gp_origin_mode, memory_order_relaxed) & GP_ORIGIN_STACKS)) {
		forget(key);
		return;
	}
	if (has_stack(bytes))
		origin.given = site_of_caller();
	if (origin.given)
		gp_site_count(origin.given, bytes);
	gp_spin_lock(&shard->lock);
	is_put = put_locked(shard, key, &origin);
	gp_spin_unlock(&shard->lock);
	if (!is_put)
		atomic_fetch_add_explicit(&n_dropped, 1, memory_order_relaxed);
}

/* Notes that it is freed now. Whether the stack of that is worth having. */
static bool mark_freed(struct shard *shard, uint64_t key, uint64_t now_ns)
{
	uint32_t *at, i;
	bool is_wanted = false;

	gp_spin_lock(&shard->lock);
	at = find_locked(shard, key);
	i = *at;
	if (i && !shard->entries[i].origin.is_freed) {
		struct gp_origin *origin = &shard->entries[i].origin;

		is_wanted = origin->given != 0;
		origin->is_freed = true;
		origin->time_ns = now_ns;
		list_locked(shard, i);
		if (shard->n_freed > FREED_MAX)
			remove_locked(shard, find_locked(shard, shard->entries[shard->oldest].key));
	}
	gp_spin_unlock(&shard->lock);
	return is_wanted;
}

void gp_origin_freed_slow(uint64_t key)
{
	struct shard *shard = shard_of(key);
	uint64_t now_ns = gp_driver_now_ns(NULL);
	uint32_t site, i;

	if (!mark_freed(shard, key, now_ns) ||
		!(atomic_load_explicit(&gp_origin_mode, memory_order_relaxed) & GP_ORIGIN_STACKS))
		return;
	site = site_of_caller();
	gp_spin_lock(&shard->lock);
	i = *find_locked(shard, key);
	if (i && shard->entries[i].origin.is_freed && shard->entries[i].origin.time_ns == now_ns)
		shard->entries[i].origin.freed = site;
	gp_spin_unlock(&shard->lock);
}

bool gp_origin_find(uint64_t key, struct gp_origin *ret)
{
	struct shard *shard;
	uint32_t i;

	if (!atomic_load_explicit(&gp_origin_mode, memory_order_acquire))
		return false;
	shard = shard_of(key);
	gp_spin_lock(&shard->lock);
	i = *find_locked(shard, key);
	if (i)
		*ret = shard->entries[i].origin;
	gp_spin_unlock(&shard->lock);
	return i != 0;
}

static int make_room(void)
{
	struct shard *none = NULL, *new;
	size_t bytes = SHARDS * sizeof(*new);

	if (atomic_load(&shards))
		return 0;
	new = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (new == MAP_FAILED)
		return -ENOMEM;
	if (!atomic_compare_exchange_strong(&shards, &none, new))
		munmap(new, bytes);
	return 0;
}

int gp_origin_switch(const struct gp_config_stacks *stacks)
{
	int r;

	if (!stacks->depth) {
		atomic_store(&depth, 0);
		atomic_fetch_and(&gp_origin_mode, ~(unsigned)GP_ORIGIN_STACKS);
		return 0;
	}
	r = gp_stack_prepare();
	r = r ? r : gp_site_init();
	r = r ? r : make_room();
	if (r)
		return r;
	atomic_store(&depth, stacks->depth);
	atomic_store(&sample, stacks->sample);
	if (!(atomic_load(&gp_origin_mode) & GP_ORIGIN_STACKS))
		atomic_store(&since_ns, gp_driver_now_ns(NULL));
	atomic_store(&gp_origin_mode, GP_ORIGIN_WATCH | GP_ORIGIN_STACKS);
	return 0;
}

void gp_origin_setting(struct gp_config_stacks *ret, uint64_t *ret_since_ns)
{
	ret->depth = atomic_load(&depth);
	ret->sample = atomic_load(&sample);
	*ret_since_ns = atomic_load(&since_ns);
}

uint64_t gp_origins_dropped(void)
{
	return atomic_load_explicit(&n_dropped, memory_order_relaxed);
}
