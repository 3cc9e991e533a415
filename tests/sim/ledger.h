/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The memory that each process holds of shared simulated devices. SIMGPU_SHARED names the file that records it. */

#include "memory.h"

enum { SIM_LEDGER_ROWS = 64 };

/* The process of row i holds a lock of the file's byte 1 + i. */
struct sim_ledger_file {
	struct sim_ledger_row {
		uint64_t bytes[SIM_MAX_DEVICES];
	} rows[SIM_LEDGER_ROWS];
	_Atomic uint64_t n_reads;        /* by the stand-in for NVML */
	uint64_t peaks[SIM_MAX_DEVICES]; /* the most bytes that all processes have held together */
};

/* Opens the file, if one is configured. Returns false if that fails. */
bool sim_ledger_open(void);

/* Returns the bytes of a device that the other processes hold. */
size_t sim_ledger_others(int ordinal);

/* Records the bytes that this process holds. Returns false if all processes together would exceed the capacity. */
bool sim_ledger_record(int ordinal, size_t bytes, size_t capacity);
