/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The first chunk of a context. Only a chunk that is created and mapped shows that the driver can map memory, and this
 * takes the driver 0.1 ms. So the thread whose allocation makes the context keeps that chunk, and the growth for the
 * same allocation takes it, at the address where it is mapped already. A chunk that is not taken goes back when the
 * call ends, so no other thread ever sees a kept chunk.
 */

#include "shim/context/context.h"

struct gp_first_chunk {
	const struct gp_context *context;
	uint64_t addr, bytes, handle;
	uint64_t devices; /* that have access: bits as of gp_mapping_devices */
	bool is_taken;    /* the pool has the handle, and will map or release it next */
};

/* The calling thread's. */
struct gp_first_chunks {
	uint64_t expected_bytes;     /* what the allocation under way requests, or 0 */
	struct gp_first_chunk *kept; /* or NULL */
};
extern _Thread_local struct gp_first_chunks gp_first_chunks __attribute__((tls_model("initial-exec")));

/* Keeps a mapped chunk until the end of the allocation under way. Returns false if host memory is short. */
bool gp_first_chunk_keep(const struct gp_first_chunk *chunk);

/*
 * Takes the context's kept chunk if it has that size, and returns true. Gives back one of another size, so that its
 * memory is available.
 */
bool gp_first_chunk_take(const struct gp_context *context, uint64_t bytes, uint64_t *ret_handle);

/* If the handle is that of the chunk which was taken last, forgets the chunk and returns true. */
bool gp_first_chunk_find(uint64_t handle, struct gp_first_chunk *ret_chunk);

/* Gives back a chunk that was kept and not taken. */
void gp_first_chunk_give_back(void);

static inline void gp_first_chunk_drop(void)
{
	if (gp_unlikely(gp_first_chunks.kept != NULL))
		gp_first_chunk_give_back();
}

/* Bracket an allocation of device memory. */
static inline void gp_first_chunk_expect(uint64_t bytes)
{
	gp_first_chunks.expected_bytes = bytes;
}

static inline void gp_first_chunk_settle(void)
{
	gp_first_chunks.expected_bytes = 0;
	gp_first_chunk_drop();
}
