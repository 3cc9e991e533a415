/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The classes in order: every multiple of 512 up to 2 KiB; then each octave [2^k, 2^(k+1)) in 4 equal steps up to
 * 1 MiB and in 8 above. (512, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 5120, ...)
 */

#include "sizeclass.h"

enum {
	UNIT_LOG2 = 9,    /* 512 */
	COARSE_FROM = 11, /* octave of 2 KiB */
	FINE_FROM = 20,   /* octave of 1 MiB */
	N_UNIT = 4,       /* 512 .. 2048 */
	N_COARSE = (FINE_FROM - COARSE_FROM) * 4,
};

/*
 * Returns the index of a size in an octave. With k the octave of (bytes - 1), steps of 2^(k - shift) lie between 2^k
 * and 2^(k+1).
 */
static unsigned octave_index(uint64_t bytes, unsigned shift, unsigned from)
{
	unsigned k = gp_log2(bytes - 1);
	uint64_t step = UINT64_C(1) << (k - shift);
	unsigned nth = (unsigned)((bytes - (UINT64_C(1) << k) + step - 1) >> (k - shift));

	return ((k - from) << shift) + nth - 1;
}

unsigned gp_sizeclass_index(uint64_t bytes)
{
	if (bytes <= UINT64_C(1) << COARSE_FROM)
		return bytes ? (unsigned)((bytes - 1) >> UNIT_LOG2) : 0;
	if (bytes <= UINT64_C(1) << FINE_FROM)
		return N_UNIT + octave_index(bytes, 2, COARSE_FROM);
	return N_UNIT + N_COARSE + octave_index(bytes, 3, FINE_FROM);
}

static uint64_t octave_bytes(unsigned index, unsigned shift, unsigned from)
{
	unsigned k = from + (index >> shift);
	uint64_t nth = (index & ((1u << shift) - 1)) + 1;

	return (UINT64_C(1) << k) + (nth << (k - shift));
}

uint64_t gp_sizeclass_bytes(unsigned index)
{
	if (index < N_UNIT)
		return (uint64_t)(index + 1) << UNIT_LOG2;
	if (index < N_UNIT + N_COARSE)
		return octave_bytes(index - N_UNIT, 2, COARSE_FROM);
	return octave_bytes(index - N_UNIT - N_COARSE, 3, FINE_FROM);
}
