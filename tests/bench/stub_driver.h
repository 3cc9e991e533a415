/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include <stdint.h>

/* Groups of calls that the stub driver counts. */
enum stub_call {
	STUB_MEMORY,  /* allocations and frees */
	STUB_RECORD,  /* fences recorded */
	STUB_FENCE,   /* GPU waits, queries and host waits for fences */
	STUB_CURRENT, /* queries of the current context */
	STUB_OTHER,
	STUB_N_CALLS
};

/* Returns the number of calls that the calling thread has made so far. */
uint64_t stub_calls(enum stub_call call);
