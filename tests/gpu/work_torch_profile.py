# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Runs steps of work_torch.py under PyTorch's profiler (T10.3), and prints the kernels and runtime calls that it saw.
"""

import collections
import json

import torch
import work_torch

WARM_UP, STEPS = 3, 4


def main():
    step = work_torch.training()
    for i in range(WARM_UP):
        step(i)
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for i in range(STEPS):
            loss = step(i)
        torch.cuda.synchronize()
    calls = collections.Counter(event.name for event in profile.events())
    on_gpu = collections.Counter(
        event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA)
    result = {
        "answer": f"{loss.item():.6f}",
        "kernels": sum(n for name, n in on_gpu.items() if not name.startswith(("Memcpy", "Memset"))),
        "mallocs": calls["cudaMalloc"],
        "frees": calls["cudaFree"],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
