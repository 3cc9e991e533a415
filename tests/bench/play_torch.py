# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Windows of the training of tests/gpu/work_torch.py, with the allocator that the environment chooses."""

import play
import torch
import work_torch


def main():
    last = {}
    step = work_torch.training()

    def training_step(i):
        last["loss"] = step(i)

    def more_results():
        stats = work_torch.own_stats()
        return {"answer": f"{last['loss'].item():.6f}", "own_peak": stats.get("reserved_bytes.all.peak") or None,
                "own_used": stats.get("allocated_bytes.all.peak") or None}

    for i in range(work_torch.WARM_UP):
        training_step(i)
    play.serve(training_step, torch.cuda.synchronize, work_torch.STEPS, more_results)


main()
