/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Checkpoints: one process takes the memory of another out of the devices. Both share the file of SIMGPU_SHARED, which
 * has the state of each process. A call of a process that is not running waits in front of the driver's lock.
 */

#include "checkpoint.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "ctx.h"
#include "ledger.h"

enum { RUNNING, LOCKED, CHECKPOINTED };

static void pause_ms(void)
{
	const struct timespec ms = {.tv_nsec = SIM_NS_PER_MS};

	nanosleep(&ms, NULL);
}

static bool is_own(enum sim_fn fn)
{
	return fn >= FN_cuCheckpointProcessGetState && fn <= FN_cuCheckpointProcessUnlock;
}

static bool is_synchronisation(enum sim_fn fn)
{
	return fn == FN_cuCtxSynchronize || fn == FN_cuCtxSynchronize_v2 || fn == FN_cuStreamSynchronize ||
	       fn == FN_cuStreamSynchronize_ptsz;
}

/* In a real driver the process ends by a segmentation fault (580 and 595: github.com/VivianSobers/gpunap, 30 runs). */
static void crash(enum sim_fn fn)
{
	sim_print("%s while the process is checkpointed", sim_fns[fn].name);
	abort();
}

bool sim_checkpoint_enter(enum sim_fn fn)
{
	struct sim_ledger_row *row = is_own(fn) ? NULL : sim_ledger_own_row();

	while (row) {
		atomic_fetch_add(&row->n_calls, 1);
		if (atomic_load(&row->state) == RUNNING)
			return true;
		atomic_fetch_sub(&row->n_calls, 1);
		while (atomic_load(&row->state) != RUNNING) {
			if (is_synchronisation(fn) && atomic_load(&row->state) == CHECKPOINTED)
				crash(fn);
			pause_ms();
		}
	}
	return false;
}

void sim_checkpoint_leave(void)
{
	atomic_fetch_sub(&sim_ledger_own_row()->n_calls, 1);
}

/* Finds a process. The errors are those of a real driver for a process without CUDA, and for none. */
static CUresult find(int pid, struct sim_ledger_row **row)
{
	*row = sim_ledger_row_of(pid);
	if (*row)
		return CUDA_SUCCESS;
	return kill(pid, 0) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult find_in_state(int pid, int state, struct sim_ledger_row **row)
{
	SIM_TRY(find(pid, row));
	return atomic_load(&(*row)->state) == state ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

CUresult cuCheckpointProcessGetState(int pid, int *state)
{
	struct sim_ledger_row *row;

	SIM_BEGIN(cuCheckpointProcessGetState);
	SIM_TRY(find(pid, &row));
	*state = atomic_load(&row->state);
	return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessLock(int pid, const struct sim_lock_args *args)
{
	struct sim_ledger_row *row;

	SIM_BEGIN(cuCheckpointProcessLock);
	SIM_TRY(find_in_state(pid, RUNNING, &row));
	atomic_store(&row->state, LOCKED);
	for (unsigned ms = 0; atomic_load(&row->n_calls); ms++) {
		if (!sim_ledger_row_of(pid))
			return CUDA_ERROR_OPERATING_SYSTEM;
		if (args && args->timeout_ms && ms >= args->timeout_ms) {
			atomic_store(&row->state, RUNNING);
			return CUDA_ERROR_NOT_READY;
		}
		pause_ms();
	}
	return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessCheckpoint(int pid, const void *args)
{
	struct sim_ledger_row *row;

	SIM_BEGIN(cuCheckpointProcessCheckpoint);
	SIM_TRY(find_in_state(pid, LOCKED, &row));
	sim_ledger_save(row);
	atomic_store(&row->state, CHECKPOINTED);
	return CUDA_SUCCESS;
}

/* Once memory was short, a real driver never restores the process any more (580 and 595, cuda-checkpoint issue 44). */
CUresult cuCheckpointProcessRestore(int pid, const void *args)
{
	struct sim_ledger_row *row;

	SIM_BEGIN(cuCheckpointProcessRestore);
	SIM_TRY(find_in_state(pid, CHECKPOINTED, &row));
	if (row->is_lost)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (!sim_ledger_bring_back(row)) {
		row->is_lost = true;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	atomic_store(&row->state, LOCKED);
	return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessUnlock(int pid, const void *args)
{
	struct sim_ledger_row *row;

	SIM_BEGIN(cuCheckpointProcessUnlock);
	SIM_TRY(find_in_state(pid, LOCKED, &row));
	atomic_store(&row->state, RUNNING);
	return CUDA_SUCCESS;
}
