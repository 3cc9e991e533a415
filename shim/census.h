/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What the program holds at one moment: each block, in a list of its own that nobody else changes. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gp_holding_kind {
	GP_HOLDING_DEVICE,
	GP_HOLDING_PINNED,
	GP_HOLDING_UNPOOLED, /* the driver's own, counted */
};

struct gp_holding {
	uint64_t key;		 /* of origin.h; of a block its address */
	uint64_t bytes, requested; /* that it takes, and that were asked for */
	int device;
	uint32_t caller; /* caller.h */
	enum gp_holding_kind kind;
};

struct gp_census {
	struct gp_holding *list;
	size_t n, room;
	uint64_t n_all, bytes; /* also of those that do not fit */
	size_t mapped_bytes;
	int device;		   /* of the context that is looked at */
	enum gp_holding_kind kind; /* of the pool */
};

/* All there is; no lock may be held. False without host memory. */
bool gp_census_take(struct gp_census *census);
void gp_census_free(struct gp_census *census);
