/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "clock.h"
#include "work.h"

/* Checks the accesses of a piece of work against the history, and adds them to it. clock is the work's clock. */
void sim_race_enter(const struct sim_work *work, unsigned lane, uint64_t count, const struct sim_clock *clock);
void sim_race_host_access(uint64_t lo, uint64_t hi, bool is_write);

/* Memory is unmapped: work that the host does not know to be finished may still touch it, which is a race. */
void sim_race_unmap(uint64_t lo, uint64_t hi);

/* Drops the history of a range that was returned to the driver, which hands it out again in a safe order. */
void sim_race_forget(uint64_t lo, uint64_t hi);

unsigned sim_race_cells(void); /* size of the history, for the test that it stays bounded */
