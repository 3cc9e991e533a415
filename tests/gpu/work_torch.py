# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Trains a small transformer with changing batch sizes and lengths. Prints the speed and the loss.
"""

import json
import os
import sys
import time

import torch

WARM_UP, STEPS, WINDOWS = 5, 30, 3


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(width, 8, batch_first=True)
        self.norm1 = torch.nn.LayerNorm(width)
        self.feed = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )
        self.norm2 = torch.nn.LayerNorm(width)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.feed(self.norm2(x))


def training():
    """A step of a deterministic training."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[Block(512) for _ in range(6)]).to("cuda")
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)

    def step(i):
        batch, length = 8 + (i % 3) * 4, 128 + (i * 37) % 128
        x = torch.randn(batch, length, 512, generator=generator).to("cuda", non_blocking=True)
        loss = (net(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def own_stats():
    """The statistics of PyTorch's own cache, if it is in use."""
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        return {}
    return torch.cuda.memory_stats()


def main():
    step = training()
    for i in range(WARM_UP):
        step(i)
    ms, losses = [], []
    for _ in range(WINDOWS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for i in range(STEPS):
            loss = step(i)
        torch.cuda.synchronize()
        ms.append((time.perf_counter() - start) / STEPS * 1e3)
        losses.append(f"{loss.item():.6f}")
    stats = own_stats()
    result = {
        "ms": ms,
        "answer": " ".join(losses),
        "own_peak_bytes": stats.get("reserved_bytes.all.peak"),
        "own_peak_used_bytes": stats.get("allocated_bytes.all.peak"),
    }
    print(json.dumps(result), flush=True)
    sys.stdin.readline()  # the test may observe this process before it ends


if __name__ == "__main__":
    main()
