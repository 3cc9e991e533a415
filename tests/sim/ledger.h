/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The memory that each process holds of shared simulated devices. SIMGPU_SHARED names the file that records it. */

#include "memory.h"

enum { SIM_LEDGER_ROWS = 64 };

/* The process of row i holds a lock of the file's byte 1 + i. */
struct sim_ledger_file {
	uint64_t peaks[SIM_MAX_DEVICES]; /* the most bytes that all processes have held together; tests read this one */
	_Atomic uint64_t n_reads;        /* by the stand-in for NVML */
	struct sim_ledger_row {
		uint64_t bytes[SIM_MAX_DEVICES];
		/* checkpoint.c */
		uint64_t saved_bytes[SIM_MAX_DEVICES];
		_Atomic int pid;
		_Atomic int state;
		_Atomic unsigned n_calls;
		bool is_lost;
	} rows[SIM_LEDGER_ROWS];
};

/* Opens the file, if one is configured. Returns false if that fails. */
bool sim_ledger_open(void);

/* Returns the bytes of a device that the other processes hold. */
size_t sim_ledger_others(int ordinal);

/* Return the row of this process, or that of a process that lives. NULL: there is none. */
struct sim_ledger_row *sim_ledger_own_row(void);
struct sim_ledger_row *sim_ledger_row_of(int pid);

/* Moves what a process holds out of its row, or back into it. Returns false if that does not fit any more. */
void sim_ledger_save(struct sim_ledger_row *row);
bool sim_ledger_bring_back(struct sim_ledger_row *row);

/* Records the bytes that this process holds. Returns false if all processes together would exceed the capacity. */
bool sim_ledger_record(int ordinal, size_t bytes, size_t capacity);
