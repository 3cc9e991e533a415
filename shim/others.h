/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Round 5, when memory has run out: what others on the device have cached. First the process's own other contexts, then
 * the user's other processes under gpupool, which are asked through their sockets. Who is asked gives what is cached
 * and done with; nobody waits for the GPU or asks in turn, so two that ask each other at once both get an answer.
 */

#include "context.h"
#include "json.h"
#include "peers.h"

/* What the device's other contexts gave back, of as many bytes as are wanted. No lock may be held. */
uint64_t gp_others_contexts(struct gp_context *context, uint64_t bytes);

/* The same of the context's own pools: those of regions. may_wait: as the driver's own free. */
uint64_t gp_others_siblings(struct gp_context *context, uint64_t bytes, bool may_wait);

/* The same of pinned memory, which is all contexts' and kinds'; but for one pool. */
uint64_t gp_others_pinned(struct gp_pool *pool, uint64_t bytes);

uint64_t gp_others_processes(struct gp_context *context, uint64_t bytes);

/* What the thread was told by other processes the last time that it asked. */
const struct gp_peers *gp_others_answers(void);

/* Request "yield", of another process. */
int gp_others_answer(int argc, char **argv, struct gp_json *out);
