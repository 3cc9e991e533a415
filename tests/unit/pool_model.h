/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A pool, driven by choices that the caller supplies, and checked against a simple model: a list of the
 * blocks that the program holds, and the fake's history of the last use of every byte. Every step ends with a
 * check of all invariants.
 */

#include "pool/pool.h"

enum { MODEL_N_PROFILES = 9 };

struct model_options {
	enum gp_kind kind;
	unsigned profile;                          /* index of a row in pool_profiles.h */
	uint64_t (*below)(void *arg, uint64_t n);  /* chooses a number from 0 to n - 1 */
	void (*fail)(void *arg, const char *what); /* reports a broken invariant; does not return */
	void *arg;
};

struct model *model_new(const struct model_options *options);
void model_free(struct model *m);

/* Lets the GPU progress, then allocates, frees, or performs one of the rare operations. */
void model_step(struct model *m);
