/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "oom.h"

/* Logs an out-of-memory error. */
void gp_oom_say(const struct gp_oom *oom);
