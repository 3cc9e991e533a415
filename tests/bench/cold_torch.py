# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Prints the wall time in which PyTorch gets pinned memory of each size in MiB, as cold.c does: by PyTorch's own pool, which
PYTORCH_CUDA_ALLOC_CONF makes register memory.
"""

import sys
import time

import torch

torch.cuda.init()
torch.cuda.synchronize()
for size in sys.argv[1:]:
    started = time.perf_counter_ns()
    block = torch.empty(int(size) << 20, dtype=torch.uint8, pin_memory=True)
    print(f"allocation-of-{size}-MiB ns={time.perf_counter_ns() - started}")
    block[0] = block[-1] = 1
