/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* As grow of struct gp_kind_ops. */

#include "arena.h"

int gp_arena_grow(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token);
