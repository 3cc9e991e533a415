/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A pool, driven by choices that somebody else makes, against an obvious model: a list of what the
 * program holds, and the fake's history of who used which bytes last. After every step all
 * invariants are proved again.
 */

#include "pool/pool.h"

enum { MODEL_N_PROFILES = 9 };

struct model_options {
	enum gp_kind kind;
	unsigned profile; /* how the backend behaves, and what the pool's limits are */
	uint64_t (*below)(void *arg, uint64_t n);	/* a choice from 0 to n - 1 */
	void (*fail)(void *arg, const char *what); /* a promise is broken; does not return */
	void *arg;
};

struct model *model_new(const struct model_options *options);
void model_free(struct model *m);

/* Some work of the GPU, and an allocation, a free, or something rare. */
void model_step(struct model *m);
