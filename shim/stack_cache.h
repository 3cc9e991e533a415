/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Stacks that were walked before. Who calls from where somebody called already, with the stack pointer where it was
 * then, needs no tables: if each return address of that time is still where it was, this is the same stack.
 */

#include <stdbool.h>
#include <stdint.h>

#include "config_stacks.h"

/* Whether anything is kept on this architecture. */
#ifdef __x86_64__
enum { GP_HAS_STACK_CACHE = 1 };
#else
enum { GP_HAS_STACK_CACHE = 0 };
#endif

/* Of a walk: where it begins, and what it was asked for. */
struct gp_stack_key {
	uintptr_t frame, caller; /* of the function that begins it: its frame's address, and its return address */
	unsigned depth;
	bool ends_at_loop;
};

enum { GP_STACK_SEEN_MAX = 2 * (GP_STACKS_DEPTH_MAX + 16) };

/* What it has seen on the stack, the innermost first. */
struct gp_stack_seen {
	unsigned n;
	bool is_lost;	   /* something was not where it should be */
	uintptr_t end;	   /* of the last frame; 0: there was none */
	uintptr_t pointer; /* the frame pointer in the last frame */
	uint32_t offsets[GP_STACK_SEEN_MAX]; /* from the key's frame */
	uintptr_t words[GP_STACK_SEEN_MAX];
	bool is_wanted[GP_STACK_SEEN_MAX]; /* it is a return address that was asked for */
};

/* One frame more. pc: where it goes on; end: of the frame that it called; pointer: what it has as frame pointer. */
void gp_stack_cache_see(struct gp_stack_seen *seen, const struct gp_stack_key *key, uintptr_t pc, uintptr_t end,
	uintptr_t pointer, bool is_wanted);

/* The wanted frames of the same stack, at most as many as the depth; -1 if it is not known. */
int gp_stack_cache_find(const struct gp_stack_key *key, uintptr_t *frames);
void gp_stack_cache_keep(const struct gp_stack_key *key, const struct gp_stack_seen *seen);

/* 0 or -ENOMEM; without it nothing is kept. May be called again. */
int gp_stack_cache_init(void);
