/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * On x86-64 a return address lies at the end of the frame of the called function. A frame begins where its inner
 * neighbour ends, and a function's code determines the size of its frame. So each return address that is unchanged
 * proves where the next one must be, and that it can be read. The end of a frame of variable size depends on the frame
 * pointer, which a function further in has saved. The walk finds the address of that saved value, and it must be
 * unchanged, too.
 *
 * All threads share one table: their stacks have different addresses. Each entry has a lock. A thread that finds it
 * taken does not wait, but walks the stack.
 */

#include "stack_cache.h"

#include <stdatomic.h>

#include "pool/base.h"
#include "shim/base/reserve.h"

enum { ENTRY_BITS = 12, ENTRIES = 1 << ENTRY_BITS, WANTED = 1, WORD = sizeof(uintptr_t), SEARCH_WORDS = 256 };

/* Larger stacks are not cached. */
#define REACH_BYTES (64 * GP_MIB)

struct entry {
	_Atomic bool is_locked;
	struct gp_stack_key key; /* frame 0: the entry is empty */
	unsigned n;
	uint32_t offsets[GP_STACK_SEEN_MAX]; /* multiples of the word size; the lowest bit is WANTED */
	uintptr_t words[GP_STACK_SEEN_MAX];
};

static _Atomic(void *) entries;

int gp_stack_cache_init(void)
{
	return GP_HAS_STACK_CACHE ? gp_reserve_once(&entries, ENTRIES * sizeof(struct entry)) : 0;
}

/* Reads a word in the frame of another function, which an address sanitizer would report. */
static __attribute__((no_sanitize("address"))) uintptr_t read_word(uintptr_t address)
{
	return *(const uintptr_t *)address;
}

static void add_word(struct gp_stack_seen *seen, const struct gp_stack_key *key, uintptr_t address, bool is_wanted)
{
	if (seen->n == GP_STACK_SEEN_MAX || address < key->frame || address - key->frame >= REACH_BYTES) {
		seen->is_lost = true;
		return;
	}
	seen->offsets[seen->n] = (uint32_t)(address - key->frame);
	seen->words[seen->n] = read_word(address);
	seen->is_wanted[seen->n++] = is_wanted;
}

/*
 * Finds where the frame pointer was saved and adds that word. The next inner function that uses a frame pointer saved
 * it.
 */
static void add_saved_pointer(struct gp_stack_seen *seen, const struct gp_stack_key *key, uintptr_t pointer)
{
	uintptr_t address = seen->end;

	if (pointer == key->frame)
		return;
	for (int i = 0; i < SEARCH_WORDS && address > key->frame; i++) {
		address -= WORD;
		if (read_word(address) == pointer) {
			add_word(seen, key, address, false);
			return;
		}
	}
	seen->is_lost = true;
}

void gp_stack_cache_see(struct gp_stack_seen *seen, const struct gp_stack_key *key, uintptr_t pc, uintptr_t end,
	uintptr_t pointer, bool is_wanted)
{
	uintptr_t least = seen->end ? seen->end : key->frame, called_pointer = seen->end ? seen->pointer : key->frame;

	/* Stacks with signal handlers, switches to other stacks, or broken frames are not cached. */
	if (seen->is_lost || end % WORD || end <= least || end - least >= REACH_BYTES || read_word(end - WORD) != pc) {
		seen->is_lost = true;
		return;
	}
	/*
	 * The called function's frame pointer is two words below the end of its frame: the function uses a frame
	 * pointer, and the two words are its caller's frame pointer and the return address.
	 */
	if (end == called_pointer + 2 * WORD)
		add_saved_pointer(seen, key, called_pointer);
	add_word(seen, key, end - WORD, is_wanted);
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

/* Compares the words in order: each may be read only if the previous one is unchanged. Returns the frames, or -1. */
static int compare_locked(const struct entry *entry, uintptr_t *frames)
{
	int n = 0;

	for (unsigned i = 0; i < entry->n; i++) {
		uintptr_t address = entry->key.frame + (entry->offsets[i] & ~(uint32_t)WANTED);

		if (read_word(address) != entry->words[i])
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
