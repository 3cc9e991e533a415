# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Captures training steps with PyTorch's own cache off under gpupool, and on without it. Replays each graph while other
memory is allocated and freed, and compares the losses with those of the same steps without a graph. Prints lines that
must be equal in every configuration.
"""

import gc
import os
import time

if "gpupool" in os.environ.get("LD_PRELOAD", ""):
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"

import torch

STEPS, CAPTURES, WIDTH = 12, 100, 512
LOST_MAX = 64 << 20


def new_training():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)]
    model = torch.nn.Sequential(*layers).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, target = torch.zeros(256, WIDTH, device="cuda"), torch.ones(256, WIDTH, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = (model(inputs) - target).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return inputs, optimizer, step


def warm_up(step):
    """Runs steps on another stream, as PyTorch requires before a capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()


def eager():
    inputs, _, step = new_training()
    warm_up(step)
    losses = []
    for i in range(STEPS):
        inputs.fill_(i / 5)
        losses.append(step().item())
    return losses


def capture(mode):
    inputs, optimizer, step = new_training()
    warm_up(step)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph, capture_error_mode=mode):
        loss = step()
    return inputs, optimizer, step, loss, graph


def replay(mode, expected):
    # The graph uses the parameters, so their owner has to live as long as it.
    inputs, owner, _, loss, graph = capture(mode)
    wrong = beside = 0
    for i in range(STEPS):
        others = [torch.full(((k + 1) << 18,), float(k), device="cuda") for k in range(8)]
        # Before the first replay the capture has changed no parameter.
        inputs.fill_(i / 5)
        graph.replay()
        wrong += abs(loss.item() - expected[i]) > 1e-5 * abs(expected[i])
        beside += sum(int((other != k).sum()) for k, other in enumerate(others))
        del others
    print(f"{mode}: {wrong} wrong losses, {beside} wrong words in other memory", flush=True)
    del owner


def free_bytes():
    gc.collect()
    torch.cuda.synchronize()
    # The driver may call the destructors of a graph's objects somewhat later.
    time.sleep(0.2)
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def capture_many():
    before = 0
    for i in range(CAPTURES):
        inputs, owner, _, loss, graph = capture("thread_local")
        inputs.fill_(1)
        graph.replay()
        loss.item()
        del inputs, owner, loss, graph, _
        if i == CAPTURES // 10:
            before = free_bytes()
    print(f"memory lost after {CAPTURES} captures: {before - free_bytes() > LOST_MAX}", flush=True)


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    expected = eager()
    for mode in ("global", "thread_local", "relaxed"):
        replay(mode, expected)
    capture_many()
    print("end", flush=True)


main()
