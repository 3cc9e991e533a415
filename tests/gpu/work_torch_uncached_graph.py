# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Captures training steps with PyTorch's own cache off under gpupool, and on without it. Replays each graph while other
memory is allocated and freed, and compares the losses with those of the same steps without a graph. Prints lines that
must be equal in every configuration. Fails if memory is lost after the graphs' end.
"""

import gc
import os
import sys
import time

if "gpupool" in os.environ.get("LD_PRELOAD", ""):
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"

import torch

STEPS, CAPTURES, HELD, WIDTH = 12, 100, 8, 512
# A capture has some 20 MiB. Two looks differ by some MiB that the driver and PyTorch keep.
SEEN_MIN = LOST_MAX = 64 << 20


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


def warm_up(step, stream=None):
    """Runs steps on another stream, as PyTorch requires before a capture."""
    stream = stream or torch.cuda.Stream()
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


def capture(mode, stream=None):
    inputs, optimizer, step = new_training()
    warm_up(step, stream)
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


def capture_many(stream, n):
    """Captures and destroys that many graphs. Returns the device's free memory after that."""
    for _ in range(n):
        inputs, owner, step, loss, graph = capture("thread_local", stream)
        inputs.fill_(1)
        graph.replay()
        loss.item()
        del inputs, owner, step, loss, graph
    return free_bytes()


def look_for_lost_memory():
    """
    Compares two rounds of as many captures. The driver and PyTorch keep some memory after the first captures, which the
    first round takes. PyTorch also keeps a workspace of cuBLAS for each stream, up to 32 MiB, so all captures warm up
    on the same one. Returns false if memory was lost, or if a loss would not be seen.
    """
    stream = torch.cuda.Stream()
    first = capture_many(stream, CAPTURES)
    second = capture_many(stream, CAPTURES)
    is_lost = first - second > LOST_MAX
    held = [capture("thread_local", stream) for _ in range(HELD)]
    # The free memory shows what graphs hold. Otherwise nothing could be seen to be lost.
    is_seen = second - free_bytes() > SEEN_MIN
    held.clear()
    is_kept = second - free_bytes() > LOST_MAX
    print(f"memory lost by {CAPTURES} captures: {is_lost}")
    print(f"memory held by {HELD} graphs is seen: {is_seen}, and stays after their end: {is_kept}", flush=True)
    return is_seen and not is_lost and not is_kept


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    expected = eager()
    for mode in ("global", "thread_local", "relaxed"):
        replay(mode, expected)
    is_right = look_for_lost_memory()
    print("end", flush=True)
    sys.exit(0 if is_right else 1)


main()
