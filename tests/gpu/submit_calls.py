# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Checks that libraries submit work only by functions that are in a header, and that gpupool can therefore see
(shim/driver/submit.def). Runs functions of each library under PyTorch's profiler, which names the function behind each
kernel, copy and memset. Prints a line for each library: submit_calls name=... works=... by=... with the functions of
the runtime and of the driver.
"""

import collections
import importlib.util
import json
import pathlib
import tempfile

import torch
import work_torch
from torch.profiler import ProfilerActivity, profile

WORK = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")


def nn_step(net, shape):
    net, x = net.cuda(), torch.randn(*shape, device="cuda", requires_grad=True)

    def step():
        y = net(x)
        (y[0] if isinstance(y, tuple) else y).sum().backward()

    return step


def matrices():
    a = torch.rand(200, 200, device="cuda") + 200 * torch.eye(200, device="cuda")
    sparse = torch.eye(200, device="cuda").to_sparse_csr()

    def step():
        torch.linalg.inv(a)
        torch.linalg.svd(a)
        sparse @ a

    return step


def vectors():
    x = torch.rand(1 << 20, device="cuda")

    def step():
        torch.fft.fft(x)
        torch.sort(x)
        torch.unique(x)
        torch.multinomial(x, 100)

    return step


def training():
    step = work_torch.training()
    return lambda: step(0)


def chain():
    import work_cupy

    work_cupy.set_pool(False)
    return work_cupy.chain()


LIBRARIES = {
    "training": training,
    "convolution": lambda: nn_step(torch.nn.Conv2d(3, 8, 3), (8, 3, 64, 64)),
    "recurrence": lambda: nn_step(torch.nn.LSTM(64, 64, 2), (16, 8, 64)),
    "matrices": matrices,
    "vectors": vectors,
}


def profile_step(step):
    """The amount of work, and the functions that submitted it; None stands for work without a function."""
    for _ in range(2):
        step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "trace.json"
        found.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    calls = {e["args"].get("correlation"): e["name"] for e in events if e.get("cat") in CALLS}
    works = [e for e in events if e.get("cat") in WORK]
    return len(works), collections.Counter(calls.get(e["args"].get("correlation")) for e in works)


def main():
    libraries = dict(LIBRARIES)
    if importlib.util.find_spec("cupy"):
        libraries["cupy"] = chain
    for name, make in libraries.items():
        works, by = profile_step(make())
        print(f"submit_calls name={name} works={works} by={','.join(sorted(map(str, by)))}", flush=True)


main()
