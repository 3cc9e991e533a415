/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A hash table of allocation records, in shards, in memory that the kernel provides as it is touched. The record of a
 * freed block stays, so that double frees can be reported. It is removed when the address is handed out again, when the
 * shard is full, or when FREED_MAX more blocks of the shard have been freed.
 *
 * Each shard has a lock, which is held for a few instructions only. No stack is taken while it is held.
 */

#include "alloc_info.h"

#include <errno.h>
#include <sys/mman.h>

#include "call_site.h"
#include "pool/lock.h"
#include "shim/base/clock.h"
#include "shim/base/reserve.h"
#include "shim/base/slow_path.h"
#include "stack.h"

enum {
	SHARD_BITS = 6,
	SHARDS = 1 << SHARD_BITS,
	BUCKET_BITS = 14,
	BUCKETS = 1 << BUCKET_BITS,
	ENTRIES = 1 << 20,
	TAKEN = 32,      /* entries that a shard takes at a time */
	FREED_MAX = 256, /* records of freed blocks per shard */
};

/* Blocks below this size are sampled. A block of this size or above always gets its stack. */
#define SAMPLED_BELOW GP_MIB

struct entry {
	uint64_t key;
	struct gp_alloc_info info;
	uint32_t next;         /* in its bucket or in the list of spare entries; 0: none */
	uint32_t older, newer; /* in the list of freed blocks */
};

/* All shards take unused entries from one array, in order. So few pages are touched while there are few records. */
static struct shard {
	struct gp_spinlock lock;
	uint32_t spare, fresh, fresh_end, n_freed, oldest, newest;
} __attribute__((aligned(64))) shards[SHARDS];

struct table {
	uint32_t buckets[SHARDS][BUCKETS];
	struct entry entries[ENTRIES + 1]; /* the first is unused */
};

_Atomic unsigned gp_alloc_info_mode;

static _Atomic(void *) table;
static _Atomic uint32_t n_entries; /* taken by shards so far */
static _Atomic unsigned depth, sample = 1;
static _Atomic uint64_t since_ns, n_dropped;

/*
 * Sixteen neighbouring units of GP_ALIGN bytes have neighbouring buckets. So the addresses that a program uses again
 * and again touch few pages. A hash spreads the groups of sixteen over the shards, for every stride of the addresses.
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

/* Returns the table, or NULL. It is created before the mode is set, so a thread that sees the mode also gets it. */
static struct table *get_table(void)
{
	(void)atomic_load_explicit(&gp_alloc_info_mode, memory_order_acquire);
	return atomic_load_explicit(&table, memory_order_acquire);
}

/* Returns the link to the entry with the key, or the link at the end of its bucket. */
static uint32_t *find_locked(struct table *t, uint64_t key)
{
	uint32_t *at = &t->buckets[shard_of(key) - shards][bucket_number(key)];

	while (*at && t->entries[*at].key != key)
		at = &t->entries[*at].next;
	return at;
}

static void add_freed_locked(struct table *t, struct shard *shard, uint32_t i)
{
	struct entry *e = &t->entries[i];

	e->newer = 0;
	e->older = shard->newest;
	*(e->older ? &t->entries[e->older].newer : &shard->oldest) = i;
	shard->newest = i;
	shard->n_freed++;
}

static void remove_freed_locked(struct table *t, struct shard *shard, uint32_t i)
{
	struct entry *e = &t->entries[i];

	*(e->newer ? &t->entries[e->newer].older : &shard->newest) = e->older;
	*(e->older ? &t->entries[e->older].newer : &shard->oldest) = e->newer;
	shard->n_freed--;
}

static void remove_locked(struct table *t, struct shard *shard, uint32_t *at)
{
	uint32_t i = *at;

	if (t->entries[i].info.is_freed)
		remove_freed_locked(t, shard, i);
	*at = t->entries[i].next;
	t->entries[i].next = shard->spare;
	shard->spare = i;
}

static void drop_oldest_locked(struct table *t, struct shard *shard)
{
	remove_locked(t, shard, find_locked(t, t->entries[shard->oldest].key));
}

/* Reserves unused entries for the shard. False if there are none left. */
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

/* Returns an unused entry. If none is left, drops the shard's oldest record of a freed block. 0 if it has none. */
static uint32_t new_locked(struct table *t, struct shard *shard)
{
	uint32_t i = shard->spare;

	if (!i && (shard->fresh != shard->fresh_end || take_more_locked(shard)))
		return shard->fresh++;
	if (!i && shard->oldest)
		drop_oldest_locked(t, shard);
	i = shard->spare;
	if (i)
		shard->spare = t->entries[i].next;
	return i;
}

static bool put_locked(struct table *t, struct shard *shard, uint64_t key, const struct gp_alloc_info *info)
{
	uint32_t *at = find_locked(t, key), i = *at;

	if (i && t->entries[i].info.is_freed)
		remove_freed_locked(t, shard, i);
	if (!i) {
		i = new_locked(t, shard);
		if (!i)
			return false;
		at = find_locked(t, key);
		t->entries[i].key = key;
		t->entries[i].next = 0;
		*at = i;
	}
	t->entries[i].info = *info;
	return true;
}

static bool should_take_stack(uint64_t bytes)
{
	static _Thread_local unsigned n __attribute__((tls_model("initial-exec")));
	unsigned every = atomic_load_explicit(&sample, memory_order_relaxed);

	return bytes >= SAMPLED_BELOW || every < 2 || n++ % every == 0;
}

uint32_t gp_alloc_info_current_site(void)
{
	uintptr_t frames[GP_STACK_MAX];
	unsigned n = gp_stack_take(frames, atomic_load_explicit(&depth, memory_order_relaxed));

	return n ? gp_site_intern(frames, n) : 0;
}

/* The stack that gp_alloc_info_take() took last; key 0: it has been used. */
static _Thread_local struct {
	uint64_t key;
	uint32_t site;
} taken __attribute__((tls_model("initial-exec")));

static uint32_t take_site(uint64_t bytes)
{
	return should_take_stack(bytes) ? gp_alloc_info_current_site() : 0;
}

uint32_t gp_alloc_info_take(uint64_t key, uint64_t bytes)
{
	if (!(atomic_load_explicit(&gp_alloc_info_mode, memory_order_relaxed) & GP_ALLOC_INFO_STACKS))
		return 0;
	taken.site = take_site(bytes);
	taken.key = key;
	return taken.site;
}

/* Returns the call site of an allocation, whose stack may have been taken already. */
static uint32_t site_of_alloc(uint64_t key, uint64_t bytes)
{
	if (taken.key != key)
		return take_site(bytes);
	taken.key = 0;
	return taken.site;
}

/* Removes an outdated record: the memory was freed in a way that gpupool did not see. */
static void drop_record(struct table *t, uint64_t key)
{
	struct shard *shard = shard_of(key);
	uint32_t *at;

	gp_spin_lock(&shard->lock);
	at = find_locked(t, key);
	if (*at)
		remove_locked(t, shard, at);
	gp_spin_unlock(&shard->lock);
}

void gp_alloc_info_note_alloc_slow(uint64_t key, uint64_t bytes)
{
	struct gp_alloc_info info = {.bytes = bytes, .time_ns = gp_clock_now_ns(NULL)};
	struct shard *shard = shard_of(key);
	struct table *t = get_table();
	bool is_put;

	if (!(atomic_load_explicit(&gp_alloc_info_mode, memory_order_relaxed) & GP_ALLOC_INFO_STACKS)) {
		drop_record(t, key);
		return;
	}
	info.given = site_of_alloc(key, bytes);
	if (info.given)
		gp_site_count(info.given, bytes);
	gp_spin_lock(&shard->lock);
	is_put = put_locked(t, shard, key, &info);
	gp_spin_unlock(&shard->lock);
	if (!is_put)
		atomic_fetch_add_explicit(&n_dropped, 1, memory_order_relaxed);
}

/* Marks the record as freed. Returns true if the stack of the free should be taken. */
static bool mark_freed(struct table *t, uint64_t key, uint64_t now_ns)
{
	struct shard *shard = shard_of(key);
	bool is_stack_wanted = false;
	uint32_t i;

	gp_spin_lock(&shard->lock);
	i = *find_locked(t, key);
	if (i && !t->entries[i].info.is_freed) {
		struct gp_alloc_info *info = &t->entries[i].info;

		is_stack_wanted = info->given != 0;
		info->is_freed = true;
		info->time_ns = now_ns;
		add_freed_locked(t, shard, i);
		if (shard->n_freed > FREED_MAX)
			drop_oldest_locked(t, shard);
	}
	gp_spin_unlock(&shard->lock);
	return is_stack_wanted;
}

void gp_alloc_info_note_free_slow(uint64_t key)
{
	struct shard *shard = shard_of(key);
	struct table *t = get_table();
	uint64_t now_ns = gp_clock_now_ns(NULL);
	uint32_t site, i;

	if (!mark_freed(t, key, now_ns) ||
		!(atomic_load_explicit(&gp_alloc_info_mode, memory_order_relaxed) & GP_ALLOC_INFO_STACKS))
		return;
	site = gp_alloc_info_current_site();
	gp_spin_lock(&shard->lock);
	i = *find_locked(t, key);
	if (i && t->entries[i].info.is_freed && t->entries[i].info.time_ns == now_ns)
		t->entries[i].info.freed = site;
	gp_spin_unlock(&shard->lock);
}

/* The time of the allocation has been overwritten, so the block's age counts from the refused free. */
void gp_alloc_info_undo_free_slow(uint64_t key)
{
	struct shard *shard = shard_of(key);
	struct table *t = get_table();
	uint32_t i;

	gp_spin_lock(&shard->lock);
	i = *find_locked(t, key);
	if (i && t->entries[i].info.is_freed) {
		remove_freed_locked(t, shard, i);
		t->entries[i].info.is_freed = false;
		t->entries[i].info.freed = 0;
	}
	gp_spin_unlock(&shard->lock);
}

bool gp_alloc_info_find(uint64_t key, struct gp_alloc_info *ret)
{
	struct shard *shard = shard_of(key);
	struct table *t = get_table();
	uint32_t i;

	if (!t)
		return false;
	gp_spin_lock(&shard->lock);
	i = *find_locked(t, key);
	if (i)
		*ret = t->entries[i].info;
	gp_spin_unlock(&shard->lock);
	return i != 0;
}

static int make_table(void)
{
	int r = gp_reserve_once(&table, sizeof(struct table));
	struct table *t = atomic_load(&table);

	/* Accesses are spread over all buckets, which costs TLB misses with small pages. Huge pages are optional. */
	if (!r)
		(void)madvise(t, sizeof(t->buckets), MADV_HUGEPAGE);
	return r;
}

int gp_alloc_info_switch(const struct gp_config_stacks *stacks)
{
	int r;

	if (!stacks->depth) {
		atomic_store(&depth, 0);
		atomic_fetch_and(&gp_alloc_info_mode, ~(unsigned)GP_ALLOC_INFO_STACKS);
		return 0;
	}
	r = gp_stack_prepare();
	r = r ? r : gp_site_init();
	r = r ? r : make_table();
	if (r)
		return r;
	atomic_store(&depth, stacks->depth);
	atomic_store(&sample, stacks->sample);
	if (!(atomic_load(&gp_alloc_info_mode) & GP_ALLOC_INFO_STACKS))
		atomic_store(&since_ns, gp_clock_now_ns(NULL));
	/* The slow-path reason comes first: otherwise the fast path could free a block that has a record. */
	gp_slow_path_add(GP_SLOW_PATH_ALLOC_INFO);
	atomic_store(&gp_alloc_info_mode, GP_ALLOC_INFO_WATCH | GP_ALLOC_INFO_STACKS);
	return 0;
}

void gp_alloc_info_settings(struct gp_config_stacks *ret, uint64_t *ret_since_ns)
{
	ret->depth = atomic_load(&depth);
	ret->sample = atomic_load(&sample);
	*ret_since_ns = atomic_load(&since_ns);
}

uint64_t gp_alloc_info_dropped(void)
{
	return atomic_load_explicit(&n_dropped, memory_order_relaxed);
}
