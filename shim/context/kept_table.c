/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "kept_table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "pool/lock.h"
#include "shim/base/fork.h"

/* LOOK_MAX, LEFT_MAX: how many triples are looked at, of a size and of those that were unused last. */
enum { BUCKETS_BITS = 10, LOOK_MAX = 32, LEFT_MAX = 8 };

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_kept_note *notes[GP_KEPT_N_NOTES][1 << BUCKETS_BITS];
static struct gp_kept *by_handle[1 << BUCKETS_BITS];
static struct gp_list by_size[1 << BUCKETS_BITS];
static bool is_reversed[1 << BUCKETS_BITS];
static struct gp_list unused;    /* the longest unused first */
static struct gp_kept **by_addr; /* sorted */
static size_t n_by_addr, room_by_addr;
static unsigned n_stuck;
static uint64_t n_births;
_Atomic size_t gp_kept_n; /* n_by_addr, also read without the lock */

static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}

void gp_kept_table_start(void)
{
	static struct gp_fork_child child = {.fn = reset_in_child};

	gp_fork_on_child(&child);
	gp_list_init(&unused);
	for (unsigned i = 0; i < 1u << BUCKETS_BITS; i++)
		gp_list_init(&by_size[i]);
}

static uint64_t this_thread(void)
{
	return (uint64_t)pthread_self();
}

static unsigned bucket_of(uint64_t key)
{
	return (unsigned)((key * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - BUCKETS_BITS));
}

static struct gp_kept_note *note_take_locked(enum gp_kept_notes which, uint64_t key)
{
	struct gp_kept_note **at = &notes[which][bucket_of(key)], *found;

	while (*at && (*at)->key != key)
		at = &(*at)->next;
	found = *at;
	if (found)
		*at = found->next;
	return found;
}

void gp_kept_note_add(enum gp_kept_notes which, uint64_t key, size_t bytes, const CUmemAllocationProp *properties)
{
	struct gp_kept_note *note = malloc(sizeof(*note)), **bucket = &notes[which][bucket_of(key)], *old;

	if (!note)
		return;
	*note = (struct gp_kept_note){.key = key, .bytes = bytes};
	if (properties)
		note->properties = *properties;
	gp_mutex_lock(&lock);
	old = note_take_locked(which, key);
	note->next = *bucket;
	*bucket = note;
	gp_mutex_unlock(&lock);
	free(old);
}

struct gp_kept_note *gp_kept_note_take(enum gp_kept_notes which, uint64_t key)
{
	struct gp_kept_note *note;

	gp_mutex_lock(&lock);
	note = note_take_locked(which, key);
	gp_mutex_unlock(&lock);
	return note;
}

static struct gp_kept_note *note_find_locked(enum gp_kept_notes which, uint64_t key)
{
	struct gp_kept_note *note = notes[which][bucket_of(key)];

	while (note && note->key != key)
		note = note->next;
	return note;
}

/* Returns the position of the first triple that ends behind the address. */
static size_t position_locked(CUdeviceptr addr)
{
	size_t low = 0, high = n_by_addr;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (by_addr[mid]->addr + by_addr[mid]->bytes > addr)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

/* Returns the first triple that overlaps with the addresses, or NULL. */
static struct gp_kept *find_locked(CUdeviceptr ptr, size_t bytes)
{
	size_t i = position_locked(ptr);

	return i < n_by_addr && (by_addr[i]->addr < ptr || by_addr[i]->addr - ptr < bytes) ? by_addr[i] : NULL;
}

static struct gp_kept *find_handle_locked(CUmemGenericAllocationHandle handle)
{
	struct gp_kept *kept = by_handle[bucket_of(handle)];

	while (kept && kept->handle != handle)
		kept = kept->next;
	return kept;
}

static bool insert_locked(struct gp_kept *kept)
{
	struct gp_kept **bucket = &by_handle[bucket_of(kept->handle)];
	size_t i = position_locked(kept->addr);

	if (n_by_addr == room_by_addr) {
		size_t room = room_by_addr ? room_by_addr * 2 : 64;
		struct gp_kept **more = realloc(by_addr, room * sizeof(struct gp_kept *));

		if (!more)
			return false;
		by_addr = more;
		room_by_addr = room;
	}
	memmove(&by_addr[i + 1], &by_addr[i], (n_by_addr - i) * sizeof(struct gp_kept *));
	by_addr[i] = kept;
	atomic_store_explicit(&gp_kept_n, ++n_by_addr, memory_order_relaxed);
	kept->next = *bucket;
	*bucket = kept;
	return true;
}

/* Puts a triple into the lists that it belongs to now, and counts its bytes while it is unused. */
static void list_locked(struct gp_kept *kept)
{
	bool counts = gp_kept_is_unused(kept);

	gp_list_remove(&kept->size_link);
	gp_list_remove(&kept->age_link);
	/* Memory whose last handle the driver has released can only go back. */
	if (!kept->is_stuck && kept->n_held && !kept->is_mapped && (gp_kept_is_unused(kept) || !kept->is_reserved))
		gp_list_prepend(&by_size[bucket_of(kept->bytes)], &kept->size_link);
	if (!kept->is_stuck && gp_kept_is_unused(kept))
		gp_list_append(&unused, &kept->age_link);
	if (counts && !kept->is_counted)
		atomic_fetch_add(&kept->device->kept_bytes, kept->bytes);
	else if (!counts && kept->is_counted)
		atomic_fetch_sub(&kept->device->kept_bytes, kept->bytes);
	kept->is_counted = counts;
}

static void remove_locked(struct gp_kept *kept)
{
	struct gp_kept **at = &by_handle[bucket_of(kept->handle)];
	size_t i = position_locked(kept->addr);

	while (*at != kept)
		at = &(*at)->next;
	*at = kept->next;
	memmove(&by_addr[i], &by_addr[i + 1], (n_by_addr - i - 1) * sizeof(struct gp_kept *));
	atomic_store_explicit(&gp_kept_n, --n_by_addr, memory_order_relaxed);
	gp_list_remove(&kept->size_link);
	gp_list_remove(&kept->age_link);
	if (kept->is_counted)
		atomic_fetch_sub(&kept->device->kept_bytes, kept->bytes);
}

/* Makes a triple busy that is found by `find`. Waits while another thread calls the driver for it. */
static struct gp_kept *claim_locked(struct gp_kept *(*find)(uint64_t key, uint64_t bytes), uint64_t key, uint64_t bytes)
{
	struct gp_kept *kept;

	for (unsigned i = 0; (kept = find(key, bytes)) && kept->is_busy; i++) {
		gp_mutex_unlock(&lock);
		gp_yield(i);
		gp_mutex_lock(&lock);
	}
	if (kept)
		kept->is_busy = true;
	return kept;
}

static struct gp_kept *find_at(uint64_t ptr, uint64_t bytes)
{
	return find_locked(ptr, bytes);
}

static struct gp_kept *find_of(uint64_t handle, uint64_t unused_bytes)
{
	return find_handle_locked(handle);
}

struct gp_kept *gp_kept_claim_at(CUdeviceptr ptr, size_t bytes)
{
	struct gp_kept *kept;

	if (!gp_kept_is_any())
		return NULL;
	gp_mutex_lock(&lock);
	kept = claim_locked(find_at, ptr, bytes);
	gp_mutex_unlock(&lock);
	return kept;
}

struct gp_kept *gp_kept_claim_handle(CUmemGenericAllocationHandle handle)
{
	struct gp_kept *kept;

	if (!gp_kept_is_any())
		return NULL;
	gp_mutex_lock(&lock);
	kept = claim_locked(find_of, handle, 0);
	gp_mutex_unlock(&lock);
	return kept;
}

struct gp_kept *gp_kept_claim_or_begin(
	CUmemGenericAllocationHandle handle, struct gp_kept_note *ret_note, bool *ret_is_first)
{
	struct gp_kept_note *note, *taken = NULL;
	struct gp_kept *kept;

	gp_mutex_lock(&lock);
	kept = claim_locked(find_of, handle, 0);
	note = kept ? NULL : note_find_locked(GP_KEPT_HANDLES, handle);
	*ret_is_first = note && !note->is_mapping;
	if (*ret_is_first) {
		*ret_note = *note;
		note->is_mapping = true;
	} else if (note) {
		taken = note_take_locked(GP_KEPT_HANDLES, handle);
	}
	gp_mutex_unlock(&lock);
	free(taken);
	return kept;
}

void gp_kept_cancel_begun(CUmemGenericAllocationHandle handle)
{
	struct gp_kept_note *note;

	gp_mutex_lock(&lock);
	note = note_find_locked(GP_KEPT_HANDLES, handle);
	if (note)
		note->is_mapping = false;
	gp_mutex_unlock(&lock);
}

struct gp_kept *gp_kept_claim_or_forget(CUmemGenericAllocationHandle handle)
{
	struct gp_kept_note *taken;
	struct gp_kept *kept;

	gp_mutex_lock(&lock);
	kept = claim_locked(find_of, handle, 0);
	taken = kept ? NULL : note_take_locked(GP_KEPT_HANDLES, handle);
	gp_mutex_unlock(&lock);
	free(taken);
	return kept;
}

void gp_kept_done(struct gp_kept *kept)
{
	gp_mutex_lock(&lock);
	kept->thread = this_thread();
	list_locked(kept);
	kept->is_busy = false;
	gp_mutex_unlock(&lock);
}

/*
 * Returns the longest unused triple that fits, or the shortest where the order is reversed; or NULL. may_be_reserved:
 * also one whose addresses the program holds.
 */
static struct gp_kept *choose_unused_locked(struct gp_list *head, const struct gp_kept_need *need, bool may_be_reserved)
{
	bool is_last_first = is_reversed[bucket_of(need->bytes)];
	struct gp_list *link = is_last_first ? head->next : head->prev;

	for (unsigned n = 0; link != head && n < LOOK_MAX; link = is_last_first ? link->next : link->prev, n++) {
		struct gp_kept *kept = gp_container_of(link, struct gp_kept, size_link);

		if (kept->bytes == need->bytes && !kept->is_busy && gp_kept_is_unused(kept) &&
			(may_be_reserved || !kept->is_reserved) && need->fits(kept, need))
			return kept;
	}
	return NULL;
}

/* Returns the triple that is best for the call, and makes it busy; or NULL. */
struct gp_kept *gp_kept_choose(const struct gp_kept_need *need)
{
	struct gp_list *link, *head = &by_size[bucket_of(need->bytes)];
	struct gp_kept *best = NULL;
	unsigned n = 0;

	gp_mutex_lock(&lock);
	/* Triples that this thread has just changed are in front, and those unused for longest at the end. */
	for (link = head->next; link != head && n < LOOK_MAX && !best; link = link->next, n++) {
		struct gp_kept *kept = gp_container_of(link, struct gp_kept, size_link);

		if (kept->bytes == need->bytes && !kept->is_busy && kept->thread == this_thread() &&
			need->fits(kept, need) && need->is_best(kept))
			best = kept;
	}
	if (!best)
		best = choose_unused_locked(head, need, false);
	if (!best)
		best = choose_unused_locked(head, need, true);
	if (best)
		best->is_busy = true;
	gp_mutex_unlock(&lock);
	return best;
}

struct gp_kept *gp_kept_take_left(CUdeviceptr ptr)
{
	struct gp_kept *left = NULL;
	unsigned n = 0;

	gp_mutex_lock(&lock);
	for (struct gp_list *link = unused.prev; link != &unused && n < LEFT_MAX && !left; link = link->prev, n++) {
		struct gp_kept *kept = gp_container_of(link, struct gp_kept, age_link);

		if (!kept->is_busy && kept->is_reserved && kept->thread == this_thread() && kept->addr != ptr)
			left = kept;
	}
	if (left)
		left->is_busy = true;
	gp_mutex_unlock(&lock);
	return left;
}

/* Returns the longest unused triple on the device that is busy, or that is not; or NULL. */
static struct gp_kept *find_oldest_locked(int device, bool is_busy)
{
	struct gp_list *link;

	gp_list_each(link, &unused) {
		struct gp_kept *kept = gp_container_of(link, struct gp_kept, age_link);

		if (kept->is_busy == is_busy && (device < 0 || kept->device->index == device))
			return kept;
	}
	return NULL;
}

struct gp_kept *gp_kept_take_oldest(int device)
{
	struct gp_kept *oldest;

	gp_mutex_lock(&lock);
	oldest = find_oldest_locked(device, false);
	if (oldest)
		oldest->is_busy = true;
	gp_mutex_unlock(&lock);
	return oldest;
}

bool gp_kept_await_busy(int device, uint64_t *ret_ended)
{
	struct gp_kept *kept;
	uint64_t birth = 0;
	CUdeviceptr addr = 0;

	*ret_ended = 0;
	gp_mutex_lock(&lock);
	kept = find_oldest_locked(device, true);
	if (kept) {
		birth = kept->birth;
		addr = kept->addr;
		*ret_ended = kept->bytes;
	}
	for (unsigned i = 0; kept && kept->birth == birth && kept->is_busy; i++) {
		gp_mutex_unlock(&lock);
		gp_yield(i);
		gp_mutex_lock(&lock);
		kept = find_locked(addr, 1);
	}
	if (kept && kept->birth == birth)
		*ret_ended = 0;
	gp_mutex_unlock(&lock);
	return birth != 0;
}

bool gp_kept_restore_order(size_t bytes)
{
	bool was_reversed;

	gp_mutex_lock(&lock);
	was_reversed = is_reversed[bucket_of(bytes)];
	is_reversed[bucket_of(bytes)] = false;
	gp_mutex_unlock(&lock);
	return was_reversed;
}

void gp_kept_note_mismatch(CUdeviceptr ptr, size_t bytes)
{
	struct gp_kept *kept;

	gp_mutex_lock(&lock);
	kept = find_locked(ptr, 1);
	if (kept && !kept->is_busy && kept->addr == ptr && kept->bytes == bytes && kept->is_reserved &&
		gp_kept_is_unused(kept))
		is_reversed[bucket_of(bytes)] ^= true;
	gp_mutex_unlock(&lock);
}

void gp_kept_retry_stuck(void)
{
	gp_mutex_lock(&lock);
	for (size_t i = 0; n_stuck && i < n_by_addr; i++) {
		struct gp_kept *kept = by_addr[i];

		if (kept->is_busy || !kept->is_stuck)
			continue;
		kept->is_stuck = false;
		n_stuck--;
		list_locked(kept);
	}
	gp_mutex_unlock(&lock);
}

void gp_kept_put_back(struct gp_kept *kept)
{
	gp_mutex_lock(&lock);
	kept->is_busy = false;
	gp_mutex_unlock(&lock);
}

void gp_kept_stick(struct gp_kept *kept)
{
	gp_mutex_lock(&lock);
	n_stuck += !kept->is_stuck;
	kept->is_stuck = true;
	list_locked(kept);
	kept->is_busy = false;
	gp_mutex_unlock(&lock);
}

bool gp_kept_insert(struct gp_kept *kept)
{
	bool is_inserted;

	kept->thread = this_thread();
	gp_list_init(&kept->size_link);
	gp_list_init(&kept->age_link);
	gp_mutex_lock(&lock);
	kept->birth = ++n_births;
	is_inserted = insert_locked(kept);
	gp_mutex_unlock(&lock);
	return is_inserted;
}

void gp_kept_remove(struct gp_kept *kept)
{
	gp_mutex_lock(&lock);
	n_stuck -= kept->is_stuck;
	remove_locked(kept);
	gp_mutex_unlock(&lock);
}
