# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Captures chains of CuPy operations as graphs, with CuPy's own pool and without, and launches them while other arrays are
allocated and freed. Prints sums, which must be equal in every configuration.
"""

import cupy

STEPS, SIZE = 12, 1 << 18


def chain(stream):
    a, b, c = (cupy.zeros(SIZE, dtype=cupy.float32) for _ in range(3))
    with stream:
        cupy.multiply(a, 2, out=b)  # compile the kernels before the capture
        cupy.add(b, 1, out=c)
        stream.synchronize()
        stream.begin_capture()
        cupy.multiply(a, 2, out=b)
        cupy.add(b, 1, out=c)
        graph = stream.end_capture()
    return (a, b, c), graph  # a graph holds no memory, so the arrays that it uses have to stay


def run(name):
    stream = cupy.cuda.Stream(non_blocking=True)
    chains = [chain(stream) for _ in range(3)]
    for i in range(STEPS):
        (a, _, c), graph = chains[i % 3]
        with stream:
            a.fill(i)
            graph.launch(stream)
        others = [cupy.full((k + 1) << 16, k, dtype=cupy.float32) for k in range(8)]
        beside = float(sum(float(other[-1]) for other in others))
        del others
        cupy.get_default_memory_pool().free_all_blocks()
        stream.synchronize()
        print(f"{name} {i}: {float(c.sum()):.1f}, {beside:.1f}", flush=True)


def main():
    run("pool")
    cupy.cuda.set_allocator(None)
    run("no pool")
    print("end", flush=True)


main()
