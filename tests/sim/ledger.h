/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What each of the processes holds that share the simulated devices: SIMGPU_SHARED names the file that they keep. */

#include "memory.h"

/* Opens it, if there is one. False: it cannot be. */
bool sim_ledger_open(void);

/* What the other processes hold of a device. */
size_t sim_ledger_others(int ordinal);

/* Notes what this one holds, unless with the others' it is more than there is. */
bool sim_ledger_note(int ordinal, size_t bytes, size_t capacity);
