/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The ladder: the steps of ladder.def, tried one after another, serve a request. */

#include "kind.h"

/*
 * Tries the steps from request->first to request->end for which the kind has a use. 0; -ENOENT if the request's end is
 * reached; -ENOMEM after all rounds failed; -ENOBUFS if host memory ran out; GP_E_DEAD; or the driver's error.
 * ret_token->block is NULL unless the result is 0.
 */
int gp_ladder_climb(struct gp_pool *pool, struct gp_request *request, struct gp_claim_token *ret_token);
