#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
#
# Records the programs of this folder on a GPU, for tests/traces/: needs CuPy and PyTorch.
set -eu

usage="usage: record.sh LIBGPUPOOL.SO DIR"
library=$(realpath "${1:?$usage}")
out=${2:?$usage}
here=$(dirname "$0")

mkdir -p "$out"
for name in elements graphs adversary; do
	rm -f "$out/$name.rec"
	PYTHONDONTWRITEBYTECODE=1 PYTORCH_NO_CUDA_MEMORY_CACHING=1 LD_PRELOAD=$library GPUPOOL_POOL=split \
		GPUPOOL_RECORD=$out/$name.rec timeout 120 "${PYTHON:-python3}" "$here/$name.py"
	gzip -9 -f -k "$out/$name.rec"
done
