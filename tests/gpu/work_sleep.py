# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
A deterministic program of PyTorch, CuPy or JAX that knows nothing of sleep: work_sleep.py torch|cupy|jax. It prints a
line after every ten steps and waits for one, so that a test can put it to sleep there. The last line has a digest of all
results, to the last digit.
"""

import hashlib
import sys

STEPS, STEPS_A_PAUSE = 60, 10


def torch_step():
    import torch

    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.GELU()) for _ in range(8)]).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)

    def step(i):
        x = torch.randn(256 + i % 3 * 128, 2048, generator=generator).cuda()
        loss = (net(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach().cpu().numpy().tobytes()

    def digest():
        return b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in net.parameters())

    return step, digest


def cupy_step():
    import cupy

    state = {"a": cupy.linspace(0, 1, 1 << 22, dtype=cupy.float32).reshape(2048, 2048)}

    def step(i):
        b = cupy.sin(state["a"]) + i
        state["a"] = cupy.tanh(b @ b.T / 2048)
        return float(state["a"][i, -1 - i]).hex().encode()

    return step, lambda: cupy.asnumpy(state["a"]).tobytes()


def jax_step():
    import jax
    import jax.numpy as jnp
    import numpy

    run = jax.jit(lambda a, i: jnp.tanh((jnp.sin(a) + i) @ (jnp.sin(a) + i).T / a.shape[0]))
    state = {"a": jnp.linspace(0, 1, 1 << 22).reshape(2048, 2048)}

    def step(i):
        state["a"] = run(state["a"], float(i))
        return float(state["a"][i, -1 - i]).hex().encode()

    return step, lambda: numpy.asarray(state["a"]).tobytes()


def main():
    step, digest = {"torch": torch_step, "cupy": cupy_step, "jax": jax_step}[sys.argv[1]]()
    found = hashlib.sha256()
    for i in range(1, STEPS + 1):
        found.update(step(i))
        if i % STEPS_A_PAUSE == 0:
            print(f"step {i}", flush=True)
            sys.stdin.readline()
    found.update(digest())
    print(f"digest {found.hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
