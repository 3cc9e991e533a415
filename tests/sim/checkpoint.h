/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "sim.h"

/*
 * Waits while another process has locked or checkpointed this one, and counts a call. Returns false if it did not,
 * since the process shares its devices with no other, or the call is one of those that make checkpoints.
 */
bool sim_checkpoint_enter(enum sim_fn fn);
void sim_checkpoint_leave(void);
