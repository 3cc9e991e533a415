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
#include "reserve.h"
#include "site.h"
#include "stack.h"
#include "unusual.h"

enum {
	SHARD_BITS = 6,
	SHARDS = 1 << SHARD_BITS,
	BUCKET_BITS = 14,
	BUCKETS = 1 << BUCKET_BITS,
	ENTRIES = 1 << 20,
	TAKEN = 32,	 /* at a time, by a shard */
	FREED_MAX = 256, /* of a shard, that were freed */
};

/* Of larger blocks each has its stack, whatever the sample is. */
#define SAMPLED_BELOW GP_MIB

struct entry {
	uint64_t key;
	struct gp_origin origin;
	uint32_t next;	       /* in its bucket, or spare; 0: none */
	uint32_t older, newer; /* freed */
};

/* What is used lies together, whichever shard it is of: so few pages are touched as long as there is little. */
static struct shard {
	struct gp_spinlock lock;
	uint32_t spare, fresh, fresh_end, n_freed, oldest, newest;
} __attribute__((aligned(64))) shards[SHARDS];

struct table {
	uint32_t buckets[SHARDS][BUCKETS];
	struct entry entries[ENTRIES + 1]; /* the first is nobody's */
};

_Atomic unsigned gp_origin_mode;

static _Atomic(void *) table;
static _Atomic uint32_t n_entries; /* that shards have taken for themselves */
static _Atomic unsigned depth, sample = 1;
static _Atomic uint64_t since_ns, n_dropped;

/*
 * Blocks that are neighbours have neighbouring buckets, of which sixteen lie together: the addresses that a program
 * goes round and round are few such groups. Groups are spread over the shards, whatever they are multiples of.
 */
enum { GROUP_BITS = 4 };

static uint64_t unit_of(uint64_t key)
{
	return key / GP_ALIGN;
}

static uint64_t group_hash(uint64_t key)
{
	return (unit_of(key) >> GROUP_BITS) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint32_t bucket_number(uint64_t key)
{
	uint64_t group = group_hash(key) >> (64 - SHARD_BITS - (BUCKET_BITS - GROUP_BITS));

	return (uint32_t)((group << GROUP_BITS | (unit_of(key) & ((1 << GROUP_BITS) - 1))) & (BUCKETS - 1));
}

static struct shard *shard_of(uint64_t key)
{
	return &shards[group_hash(key) >> (64 - SHARD_BITS)];
}

/* There is one once the mode says that there may be blocks in it: so it is looked at first. */
static struct table *get_table(void)
{
	(void)atomic_load_explicit(&gp_origin_mode, memory_order_acquire);
	return atomic_load_explicit(&table, memory_order_acquire);
}

/* The link that leads to the entry with that key, or the end of its bucket. With the shard's lock, as all below. */
static uint32_t *find_locked(struct table *t, uint64_t key)
{
	uint32_t *at = &t->buckets[shard_of(key) - shards][bucket_number(key)];

	while (*at && t->entries[*at].key != key)
		at = &t->entries[*at].next;
	return at;
}

static void list_locked(struct table *t, struct shard *shard, uint32_t i)
{
	struct entry *e = &t->entries[i];

	e->newer = 0;
	e->older = shard->newest;
	*(e->older ? &t->entries[e->older].newer : &shard->oldest) = i;
	shard->newest = i;
	shard->n_freed++;
}

static void unlist_locked(struct table *t, struct shard *shard, uint32_t i)
{
	struct entry *e = &t->entries[i];

	*(e->newer ? &t->entries[e->newer].older : &shard->newest) = e->older;
	*(e->older ? &t->entries[e->older].newer : &shard->oldest) = e->newer;
	shard->n_freed--;
}

static void remove_locked(struct table *t, struct shard *shard, uint32_t *at)
{
	uint32_t i = *at;

	if (t->entries[i].origin.is_freed)
		unlist_locked(t, shard, i);
	*at = t->entries[i].next;
	t->entries[i].next = shard->spare;
	shard->spare = i;
}

static void forget_oldest_locked(struct table *t, struct shard *shard)
{
	remove_locked(t, shard, find_locked(t, t->entries[shard->oldest].key));
}

/* Some that were never used. False if there are none left. */
static bool take_more_locked(struct shard *shard)
{
	uint32_t first;

	if (atomic_load_explicit(&n_entries, memory_order_relaxed) >= ENTRIES)
		return false;
	first = atomic_fetch_add_explicit(&n_entries, TAKEN, memory_order_relaxed);
	if (first >= ENTRIES)
		return false;
	shard->fresh = first + 1;
	shard->fresh_end = first + 1 + TAKEN;
	return true;
}

/* A spare entry; what was freed first makes room. 0: there is none. */
static uint32_t new_locked(struct table *t, struct shard *shard)
{
	uint32_t i = shard->spare;

	if (!i && (shard->fresh != shard->fresh_end || take_more_locked(shard)))
		return shard->fresh++;
	if (!i && shard->oldest)
		forget_oldest_locked(t, shard);
	i = shard->spare;
	if (i)
		shard->spare = t->entries[i].next;
	return i;
}

static bool put_locked(struct table *t, struct shard *shard, uint64_t key, const struct gp_origin *origin)
{
	uint32_t *at = find_locked(t, key), i = *at;

	if (i && t->entries[i].origin.is_freed)
		unlist_locked(t, shard, i);
	if (!i) {
		i = new_locked(t, shard);
		if (!i)
			return false;
		at = find_locked(t, key);
		t->entries[i].key = key;
		t->entries[i].next = 0;
		*at = i;
	}
	t->entries[i].origin = *origin;
	return true;
}

static bool has_stack(uint64_t bytes)
{
	static _Thread_local unsigned n __attribute__((tls_model("initial-exec")));
	unsigned every = atomic_load_explicit(&sample, memory_order_relaxed);

	return bytes >= SAMPLED_BELOW || every < 2 || n++ % every == 0;
}

uint32_t gp_origin_of_caller(void)
{
	uintptr_t frames[GP_STACK_MAX];
	unsigned n = gp_stack_take(frames, atomic_load_explicit(&depth, memory_order_relaxed));

	return n ? gp_site_intern(frames, n) : 0;
}

/* What was there before has gone in some way that nobody told of. */
static void forget(struct table *t, uint64_t key)
{
	struct shard *shard = shard_of(key);
	uint32_t *at;

	gp_spin_lock(&shard->lock);
	at = find_locked(t, key);
	if (*at)
		remove_locked(t, shard, at);
	gp_spin_unlock(&shard->lock);
}

void gp_origin_given_slow(uint64_t key, uint64_t bytes)
{
	struct gp_origin origin = {.bytes = bytes, .time_ns = gp_driver_now_ns(NULL)};
	struct shard *shard = shard_of(key);
	struct table *t = get_table();
	bool is_put;

	if (!(atomic_load_explicit(&gp_origin_mode, memory_order_relaxed) & GP_ORIGIN_STACKS)) {
		forget(t, key);
		return;
	}
	if (has_stack(bytes))
		origin.given = gp_origin_of_caller();
	if (origin.given)
		gp_site_count(origin.given, bytes);
	gp_spin_lock(&shard->lock);
	is_put = put_locked(t, shard, key, &origin);
	gp_spin_unlock(&shard->lock);
	if (!is_put)
		atomic_fetch_add_explicit(&n_dropped, 1, memory_order_relaxed);
}

/* Notes that it is freed now. Whether the stack of that is worth having. */
static bool mark_freed(struct table *t, uint64_t key, uint64_t now_ns)
{
	struct shard *shard = shard_of(key);
	bool is_wanted = false;
	uint32_t i;

	gp_spin_lock(&shard->lock);
	i = *find_locked(t, key);
	if (i && !t->entries[i].origin.is_freed) {
		struct gp_origin *origin = &t->entries[i].origin;

		is_wanted = origin->given != 0;
		origin->is_freed = true;
		origin->time_ns = now_ns;
		list_locked(t, shard, i);
		if (shard->n_freed > FREED_MAX)
			forget_oldest_locked(t, shard);
	}
	gp_spin_unlock(&shard->lock);
	return is_wanted;
}

void gp_origin_freed_slow(uint64_t key)
{
	struct shard *shard = shard_of(key);
	struct table *t = get_table();
	uint64_t now_ns = gp_driver_now_ns(NULL);
	uint32_t site, i;

	if (!mark_freed(t, key, now_ns) ||
		!(atomic_load_explicit(&gp_origin_mode, memory_order_relaxed) & GP_ORIGIN_STACKS))
		return;
	site = gp_origin_of_caller();
	gp_spin_lock(&shard->lock);
	i = *find_locked(t, key);
	if (i && t->entries[i].origin.is_freed && t->entries[i].origin.time_ns == now_ns)
		t->entries[i].origin.freed = site;
	gp_spin_unlock(&shard->lock);
}

/* The time of the allocation is lost: its age counts from the refused free. */
void gp_origin_kept_slow(uint64_t key)
{
	struct shard *shard = shard_of(key);
	struct table *t = get_table();
	uint32_t i;

	gp_spin_lock(&shard->lock);
	i = *find_locked(t, key);
	if (i && t->entries[i].origin.is_freed) {
		unlist_locked(t, shard, i);
		t->entries[i].origin.is_freed = false;
		t->entries[i].origin.freed = 0;
	}
	gp_spin_unlock(&shard->lock);
}

bool gp_origin_find(uint64_t key, struct gp_origin *ret)
{
	struct shard *shard = shard_of(key);
	struct table *t = get_table();
	uint32_t i;

	if (!t)
		return false;
	gp_spin_lock(&shard->lock);
	i = *find_locked(t, key);
	if (i)
		*ret = t->entries[i].origin;
	gp_spin_unlock(&shard->lock);
	return i != 0;
}

static int make_room(void)
{
	int r = gp_reserve_once(&table, sizeof(struct table));
	struct table *t = atomic_load(&table);

	/* Addresses lead all over the buckets, which is dear in small pages. It does without if it must. */
	if (!r)
		(void)madvise(t, sizeof(t->buckets), MADV_HUGEPAGE);
	return r;
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
	/* In this order: what has an origin must not come and go without anybody's noticing. */
	gp_set_unusual(GP_UNUSUAL_ORIGIN);
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
