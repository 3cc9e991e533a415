# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Captures training steps and forward passes as graphs with PyTorch's own allocator, in every capture mode. Launches them
while other tensors are allocated and freed and the allocator gives memory back. Prints sums, which must be equal in
every configuration.
"""

import gc
import random
import threading

import torch

STEPS, SHAPES = 12, 5


def net():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)]
    return torch.nn.Sequential(*layers).to("cuda")


def warm_up(run):
    """Runs steps on another stream, as PyTorch requires before a capture: libraries allocate their workspaces there."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()


def churn(generator):
    """Allocates memory, and makes PyTorch give it back to the allocator below."""
    kept = [torch.full((generator.randrange(1, 1 << 22),), 7.0, device="cuda") for _ in range(8)]
    total = sum(float(tensor[-1]) for tensor in kept[::2])
    del kept
    gc.collect()
    torch.cuda.empty_cache()
    return total


def capture_forward(mode, rows):
    model = net()
    inputs = torch.zeros(rows, 256, device="cuda")
    with torch.no_grad():
        warm_up(lambda: model(inputs))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode=mode):
            out = model(inputs)
    return model, inputs, out, graph


def forward(mode):
    generator = random.Random(1)
    graphs = [capture_forward(mode, 16 << i) for i in range(SHAPES)]
    for step in range(STEPS):
        model, inputs, out, graph = graphs[step % SHAPES]
        inputs.fill_(step / 7)
        graph.replay()
        churn(generator)
        with torch.no_grad():
            wrong = int((out != model(inputs)).sum())
        print(f"{mode} forward {step}: {out.double().sum().item():.6f}, {wrong} wrong", flush=True)
    del graphs
    gc.collect()
    torch.cuda.empty_cache()


def training(mode):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, target = torch.zeros(64, 256, device="cuda"), torch.ones(64, 64, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = (model(inputs) - target).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    warm_up(step)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph, capture_error_mode=mode):
        loss = step()
    generator = random.Random(2)
    for i in range(STEPS):
        inputs.fill_(i / 5)
        graph.replay()
        churn(generator)
        print(f"{mode} training {i}: {loss.item():.6f}", flush=True)


def beside_a_thread():
    """Captures while another thread allocates memory and gives it back."""
    is_over = threading.Event()

    def allocate():
        generator = random.Random(3)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            while not is_over.is_set():
                tensors = [torch.empty(generator.randrange(1, 1 << 24), device="cuda") for _ in range(4)]
                del tensors

    thread = threading.Thread(target=allocate)
    thread.start()
    try:
        for i in range(STEPS):
            model, inputs, out, graph = capture_forward("thread_local", 32 + i)
            inputs.fill_(i)
            graph.replay()
            print(f"beside a thread {i}: {out.double().sum().item():.6f}", flush=True)
    finally:
        is_over.set()
        thread.join()


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    for mode in ("global", "thread_local", "relaxed"):
        forward(mode)
        training(mode)
    beside_a_thread()
    torch.cuda.synchronize()
    print("end", flush=True)


main()
