/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A cache of stacks that were walked before. It saves a walk with the unwind tables if a call comes from the same code
 * and with the same stack pointer as an earlier call: if each return address of the earlier stack is still at its
 * address, the stack is the same.
 */

#include <stdbool.h>
#include <stdint.h>

#include "common/config_stacks.h"

/* 1 if the architecture has a stack cache. */
#ifdef __x86_64__
enum { GP_HAS_STACK_CACHE = 1 };
#else
enum { GP_HAS_STACK_CACHE = 0 };
#endif

/* The start and the parameters of a walk. */
struct gp_stack_key {
	uintptr_t frame, caller; /* frame address and return address of the function that begins the walk */
	unsigned depth;
	bool ends_at_loop;
};

enum { GP_STACK_SEEN_MAX = 2 * (GP_STACKS_DEPTH_MAX + 16) };

/* The words on the stack that identify it, the innermost first. */
struct gp_stack_seen {
	unsigned n;
	bool is_lost;                        /* the stack cannot be cached: a word was not where it should be */
	uintptr_t end;                       /* end of the last frame; 0: there was none */
	uintptr_t pointer;                   /* the frame pointer in the last frame */
	uint32_t offsets[GP_STACK_SEEN_MAX]; /* from the key's frame */
	uintptr_t words[GP_STACK_SEEN_MAX];
	bool is_wanted[GP_STACK_SEEN_MAX]; /* the word is a return address that the stack includes */
};

/*
 * Adds a frame. pc: its return address; end: the end of the frame that it called; pointer: its frame pointer.
 */
void gp_stack_cache_see(struct gp_stack_seen *seen, const struct gp_stack_key *key, uintptr_t pc, uintptr_t end,
	uintptr_t pointer, bool is_wanted);

/* Stores the wanted frames if the stack is cached, and returns their number, at most the depth; otherwise -1. */
int gp_stack_cache_find(const struct gp_stack_key *key, uintptr_t *frames);
void gp_stack_cache_keep(const struct gp_stack_key *key, const struct gp_stack_seen *seen);

/* Reserves the table. Returns 0, or -ENOMEM: then nothing is cached. May be called again. */
int gp_stack_cache_init(void);
