/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "arena.h"

/* Returns what is broken, or NULL. */
const char *gp_arena_check_locked(const struct gp_pool *pool);
