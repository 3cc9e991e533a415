/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include <stdint.h>

/* What the stub driver counts. */
enum stub_call {
	STUB_MEMORY,  /* allocations and frees */
	STUB_RECORD,  /* fences recorded */
	STUB_FENCE,   /* fences ordered upon, queried or waited for */
	STUB_CURRENT, /* which context is current */
	STUB_OTHER,
	STUB_N_CALLS
};

/* Calls by the calling thread so far. */
uint64_t stub_calls(enum stub_call call);
