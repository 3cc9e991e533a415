/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Takes the place of convert_pprof.c in a build without protobuf-c. */

#include "convert_formats.h"

enum stat_exit convert_pprof(FILE *out, const struct stat_source *source, uint64_t n_max)
{
	stat_error("gpupool-stat convert --to=folded", "this gpupool-stat was built without support for pprof.");
	return STAT_FAILED;
}
