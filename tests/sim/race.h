/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "clock.h"
#include "work.h"

/*
 * Checks what a piece of work touches against the history and enters it; clock is the work's own.
 */
void sim_race_enter(
	const struct sim_work *work, unsigned lane, uint64_t count, const struct sim_clock *clock);
void sim_race_host_access(uint64_t lo, uint64_t hi, bool is_write);

/* The range has gone back to the driver, which hands it out again in its own safe order. */
/* Memory is taken away: whatever the host does not know to be finished may still touch it. */
void sim_race_unmap(uint64_t lo, uint64_t hi);
void sim_race_forget(uint64_t lo, uint64_t hi);

unsigned sim_race_cells(void); /* size of the history, for the test that it stays bounded */
