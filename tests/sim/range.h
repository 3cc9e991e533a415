/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include <stdint.h>

/*
 * A set of disjoint address ranges [lo, hi), embedded in the objects that they describe. It is a
 * treap, in which every operation takes O(log n).
 */
struct sim_range {
	uint64_t lo, hi;
	struct sim_range *left, *right;
	uint32_t priority;
};

void sim_range_insert(struct sim_range **root, struct sim_range *range);
void sim_range_remove(struct sim_range **root, struct sim_range *range);
struct sim_range *sim_range_after(struct sim_range *root, uint64_t addr); /* the first range with hi > addr */
struct sim_range *sim_range_at(struct sim_range *root, uint64_t addr);    /* the range that contains addr */
