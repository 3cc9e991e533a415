/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * On x86-64 a return address lies at the end of the frame of the function that was called. A frame of fixed size lies
 * where its inner neighbour ends; so from the first on, each return address that is the same proves where the next must
 * be, and that it is there to be read. The end of a frame of variable size is known by the frame pointer, which a
 * function further in has saved: that place is found at the walk, and what is there must be the same, too.
 *
 * One table for all threads: their stacks have different addresses. Entries are taken with a lock of their own, and
 * whoever finds one taken walks.
 */

#include "stack_cache.h"

#include <stdatomic.h>

#include "../pool/lock.h"
#include "reserve.h"

enum { ENTRY_BITS = 12, ENTRIES = 1 << ENTRY_BITS, WANTED = 1, WORD = sizeof(uintptr_t), SEARCH_WORDS = 256 };

/* No stack that is worth keeping reaches further. */
#define REACH_BYTES (64 * GP_MIB)

struct entry {
	_Atomic bool is_locked;
	struct gp_stack_key key; /* without a frame: nothing yet */
	unsigned n;
	uint32_t offsets[GP_STACK_SEEN_MAX]; /* multiples of words; the lowest bit: wanted */
	uintptr_t words[GP_STACK_SEEN_MAX];
};

static _Atomic(void *) entries;

int gp_stack_cache_init(void)
{
	return GP_HAS_STACK_CACHE ? gp_reserve_once(&entries, ENTRIES * sizeof(struct entry)) : 0;
}

/* Between the variables of other functions, where a sanitiser does not expect anybody. */
static __attribute__((no_sanitize("address"))) uintptr_t read_word(uintptr_t place)
{
	return *(const uintptr_t *)place;
}

static void note(struct gp_stack_seen *seen, const struct gp_stack_key *key, uintptr_t place, bool is_wanted)
{
	if (seen->n == GP_STACK_SEEN_MAX || place < key->frame || place - key->frame >= REACH_BYTES) {
		seen->is_lost = true;
		return;
	}
	seen->offsets[seen->n] = (uint32_t)(place - key->frame);
	seen->words[seen->n] = read_word(place);
	seen->is_wanted[seen->n++] = is_wanted;
}

/* Where a frame pointer was saved: by the next function further in that has one of its own. */
static void note_pointer(struct gp_stack_seen *seen, const struct gp_stack_key *key, uintptr_t pointer)
{
	uintptr_t place = seen->end;

	if (pointer == key->frame)
		return;
	for (int i = 0; i < SEARCH_WORDS && place > key->frame; i++) {
		place -= WORD;
		if (read_word(place) == pointer) {
			note(seen, key, place, false);
			return;
		}
	}
	seen->is_lost = true;
}

void gp_stack_cache_see(struct gp_stack_seen *seen, const struct gp_stack_key *key, uintptr_t pc, uintptr_t end,
	uintptr_t pointer, bool is_wanted)
{
	uintptr_t least = seen->end ? seen->end : key->frame, called_pointer = seen->end ? seen->pointer : key->frame;

	/* Signal handlers, other stacks, and what is no stack at all are always walked. */
	if (seen->is_lost || end % WORD || end <= least || end - least >= REACH_BYTES ||
		read_word(end - WORD) != pc) {
		seen->is_lost = true;
		return;
	}
	/* Below its end lie the return address and the frame pointer of who called. */
	if (end == called_pointer + 2 * WORD)
		note_pointer(seen, key, called_pointer);
	note(seen, key, end - WORD, is_wanted);
	seen->end = end;
	seen->pointer = pointer;
}

static struct entry *entry_of(const struct gp_stack_key *key)
{
	struct entry *all = atomic_load_explicit(&entries, memory_order_acquire);
	uint64_t hash = (key->frame ^ key->caller << 16 ^ key->depth) * UINT64_C(0x9e3779b97f4a7c15);

	return all ? &all[hash >> (64 - ENTRY_BITS)] : NULL;
}

static bool is_same_key(const struct gp_stack_key *a, const struct gp_stack_key *b)
{
	return a->frame == b->frame && a->caller == b->caller && a->depth == b->depth &&
	       a->ends_at_loop == b->ends_at_loop;
}

/* In their order, since each is known to be there only if the one before it is the same. */
static int compare_locked(const struct entry *entry, uintptr_t *frames)
{
	int n = 0;

	for (unsigned i = 0; i < entry->n; i++) {
		uintptr_t place = entry->key.frame + (entry->offsets[i] & ~(uint32_t)WANTED);

		if (read_word(place) != entry->words[i])
			return -1;
		if (entry->offsets[i] & WANTED)
			frames[n++] = entry->words[i];
	}
	return n;
}

int gp_stack_cache_find(const struct gp_stack_key *key, uintptr_t *frames)
{
	struct entry *entry = entry_of(key);
	int n = -1;

	if (!entry || atomic_exchange_explicit(&entry->is_locked, true, memory_order_acquire))
		return -1;
	if (gp_likely(is_same_key(&entry->key, key)))
		n = compare_locked(entry, frames);
	atomic_store_explicit(&entry->is_locked, false, memory_order_release);
	return n;
}

void gp_stack_cache_keep(const struct gp_stack_key *key, const struct gp_stack_seen *seen)
{
	struct entry *entry = entry_of(key);

	if (!entry || seen->is_lost || atomic_exchange_explicit(&entry->is_locked, true, memory_order_acquire))
		return;
	entry->key = *key;
	entry->n = seen->n;
	for (unsigned i = 0; i < seen->n; i++) {
		entry->offsets[i] = seen->offsets[i] | (seen->is_wanted[i] ? WANTED : 0);
		entry->words[i] = seen->words[i];
	}
	atomic_store_explicit(&entry->is_locked, false, memory_order_release);
}
