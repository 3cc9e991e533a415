/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The first chunk of a context. Only a chunk that is created and mapped shows that the driver can map memory, and this
 * takes the driver 0.1 ms. So the context keeps that chunk until the end of the allocation that made the context, or
 * its first pool of mapped memory. The first growth takes it, as a rule at the address where it is mapped already.
 *
 * No other memory is created in the context while it keeps a chunk or a thread has taken the chunk, and so none is
 * mapped at the chunk's addresses: each creation first takes the chunk, gives it back, or waits for the thread that has
 * taken it. Such a thread waits for no other one until it has mapped or released the chunk.
 */

#include "shim/context/context.h"

/* The calling thread's. */
struct gp_first_chunks {
	uint64_t expected_bytes;   /* what the allocation under way requests, or 0 */
	struct gp_context *keeper; /* a context that keeps a chunk for it, with a reference; or NULL */
};
extern _Thread_local struct gp_first_chunks gp_first_chunks __attribute__((tls_model("initial-exec")));

/* Lets a context keep a mapped chunk of a pool that no other thread knows, the first one of mapped memory. */
void gp_first_chunk_keep(struct gp_context *context, const struct gp_first_chunk *chunk);

/*
 * To be called before memory is created, without the context's lock, which a thread that ends the context may wait for.
 * Returns true if the context had a chunk of that size, and its handle. The thread has taken it then, and must either
 * use the mapping and call gp_first_chunk_done, or unmap it. A chunk of another size goes back, so that its memory is
 * available.
 */
bool gp_first_chunk_take(struct gp_context *context, uint64_t bytes, uint64_t *ret_handle);
void gp_first_chunk_done(struct gp_context *context);
void gp_first_chunk_unmap(struct gp_context *context);

/* True if the handle is that of the chunk that was taken: it is mapped at context->first_chunk.addr. */
bool gp_first_chunk_is(const struct gp_context *context, uint64_t handle);

/* Gives the context's chunk back, if it keeps one. To be called before its addresses are freed. */
void gp_first_chunk_drop(struct gp_context *context);

/* Bracket an allocation of device memory. */
static inline void gp_first_chunk_expect(uint64_t bytes)
{
	gp_first_chunks.expected_bytes = bytes;
}

void gp_first_chunk_release_slow(void);

/* Lets no context keep a chunk for this thread. */
static inline void gp_first_chunk_release(void)
{
	if (gp_unlikely(gp_first_chunks.keeper != NULL))
		gp_first_chunk_release_slow();
}

static inline void gp_first_chunk_settle(void)
{
	gp_first_chunks.expected_bytes = 0;
	gp_first_chunk_release();
}
