/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Where protobuf-c was not there to build with. */

#include "convert.h"

enum stat_exit convert_pprof(FILE *out, const struct stat_source *source, uint64_t n_max)
{
	stat_error("gpupool-stat convert --to=folded", "this gpupool-stat was built without pprof.");
	return STAT_FAILED;
}
