# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
A network that torch.compile(mode="reduce-overhead") compiles, which captures graphs, in a forward pass and in a
training. Prints the speed, results, and how many graphs were captured.
"""

import json
import sys
import time

import torch

WARM_UP, STEPS, WINDOWS, ROWS, WIDTH = 6, 100, 3, 64, 512


class Captures:
    """Counts the captures that begin."""

    def __init__(self):
        self.count = 0
        self.begin = torch.cuda.CUDAGraph.capture_begin

    def __enter__(self):
        def capture_begin(graph, *args, **kwargs):
            self.count += 1
            return self.begin(graph, *args, **kwargs)

        torch.cuda.CUDAGraph.capture_begin = capture_begin
        return self

    def __exit__(self, *_):
        torch.cuda.CUDAGraph.capture_begin = self.begin


def training():
    """A step of a deterministic training of a compiled network."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)]
    net = torch.nn.Sequential(*layers).to("cuda")
    compiled = torch.compile(net, mode="reduce-overhead")
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    x = torch.linspace(-1, 1, ROWS * WIDTH, device="cuda").reshape(ROWS, WIDTH)

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        loss = (compiled(x) - x).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    return step


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    with Captures() as captures:
        step = training()
        for _ in range(WARM_UP):
            step()
        ms, losses = [], []
        for _ in range(WINDOWS):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(STEPS):
                loss = step()
            torch.cuda.synchronize()
            ms.append((time.perf_counter() - start) / STEPS * 1e3)
            losses.append(f"{loss.item():.6f}")
    answer = " ".join(losses)
    print(json.dumps({"ms": ms, "answer": answer, "own_peak_bytes": None, "captures": captures.count}), flush=True)
    sys.stdin.readline()  # the test may observe this process before it ends


if __name__ == "__main__":
    main()
