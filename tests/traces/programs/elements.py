# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Finite elements without a matrix. A load is applied in steps, the mesh is refined between them, and each step is
solved by conjugate gradients. Vectors of one mesh live together, and grow from mesh to mesh.
"""

import cupy

MESHES = [48 + 37 * i for i in range(14)]  # elements along an edge; refined and, towards the end, coarsened again
ITERATIONS = 12


def stiffness():
    """Returns the matrix of a square element of four nodes, for the Laplace operator."""
    return cupy.array([[4, -1, -2, -1], [-1, 4, -1, -2], [-2, -1, 4, -1], [-1, -2, -1, 4]], dtype=cupy.float64) / 6


def connections(n):
    first = (cupy.arange(n)[:, None] * (n + 1) + cupy.arange(n)[None, :]).ravel()
    return cupy.stack([first, first + 1, first + n + 2, first + n + 1], axis=1)


def apply(element, nodes, u):
    """Gathers, multiplies and scatters. Arrays of four values per element are allocated and freed."""
    out = cupy.zeros_like(u)
    cupy.add.at(out, nodes, u[nodes] @ element)
    return out


def solve(element, nodes, inside, load, u):
    r = (load - apply(element, nodes, u)) * inside
    p, rr = r, float(r @ r)
    for _ in range(ITERATIONS):
        ap = apply(element, nodes, p) * inside
        alpha = rr / float(p @ ap)
        u, r = u + alpha * p, r - alpha * ap
        rr, before = float(r @ r), rr
        p = r + (rr / before) * p
    return u, rr


def refined(u, old, new):
    """Returns values at the nodes of the new mesh: those of the nearest node of the old one."""
    at = (cupy.arange(new + 1) * old + new // 2) // new
    return u.reshape(old + 1, old + 1)[at[:, None], at[None, :]].ravel()


def main():
    cupy.cuda.set_allocator(None)
    cupy.cuda.set_pinned_memory_allocator(None)
    element, u, before = stiffness(), None, None
    for n in [*MESHES, *MESHES[-4::-3]]:
        nodes = connections(n)
        inside = cupy.pad(cupy.ones((n - 1, n - 1)), 1).ravel()
        u = refined(u, before, n) if before else cupy.zeros((n + 1) ** 2)
        for step in range(3):
            load = cupy.full((n + 1) ** 2, (step + 1) / n**2)
            u, rest = solve(element, nodes, inside, load, u)
        before = n
    print(f"elements: {n} along an edge, rest {rest:.3e}, sum {float(u.sum()):.6e}")


main()
