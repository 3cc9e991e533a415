# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Collectives over NCCL, with a process for each GPU: over its legacy path, which shares buffers through IPC handles, or, with
NCCL_CUMEM_ENABLE=1, through memory of cuMemCreate. Results are compared with those of the CPU. NCCL prints its transport to
stdout.
"""

import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES = [1, 1000, 1 << 16, 1 << 20, (1 << 22) + 3, 1 << 24]
ROUNDS = 4
VARIABLES = {
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_CUMEM_HOST_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_DEBUG": "INFO",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
}


def part(rank, size, turn):
    """Small whole numbers, so that their sums are exact."""
    return ((torch.arange(size) * 3 + rank * 17 + turn * 5) % 251).float()


def wrong(tensor, expected):
    return int((tensor.cpu() != expected).sum())


def collectives(rank, world, size, turn):
    """The number of wrong elements after each kind of collective."""
    parts = [part(other, size, turn) for other in range(world)]
    own_part = parts[rank].cuda()
    total = own_part.clone()
    dist.all_reduce(total)
    found = {"all_reduce": wrong(total, sum(parts))}
    gathered = [torch.empty(size, device="cuda") for _ in range(world)]
    dist.all_gather(gathered, own_part)
    found["all_gather"] = sum(wrong(a, b) for a, b in zip(gathered, parts))
    root = turn % world
    copy = own_part.clone()
    dist.broadcast(copy, root)
    found["broadcast"] = wrong(copy, parts[root])
    whole = torch.cat(parts).cuda()
    reduced_part = torch.empty(size, device="cuda")
    dist.reduce_scatter_tensor(reduced_part, whole)
    found["reduce_scatter"] = wrong(reduced_part, parts[rank] * world)
    received = torch.empty(size, device="cuda")
    to, source = (rank + 1) % world, (rank - 1) % world
    both = [dist.P2POp(dist.isend, own_part, to), dist.P2POp(dist.irecv, received, source)]
    for request in dist.batch_isend_irecv(both):
        request.wait()
    found["send"] = wrong(received, parts[source])
    return found


def run_rank(rank, world, store, answers):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=world)
    totals = {}
    for turn in range(ROUNDS):
        for size in SIZES:
            for name, found in collectives(rank, world, size, turn).items():
                totals[name] = totals.get(name, 0) + found
        torch.cuda.empty_cache()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    answers.put((rank, totals))


def main():
    os.environ |= {name: value for name, value in VARIABLES.items() if name not in os.environ}
    world = torch.cuda.device_count()
    context = mp.get_context("spawn")
    answers = context.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="gpupool-nccl-") as directory:
        arguments = (world, f"{directory}/store", answers)
        children = mp.spawn(run_rank, arguments, nprocs=world, join=False)
        while not children.join():
            pass
    found = dict(answers.get() for _ in range(world))
    totals = {name: sum(found[rank][name] for rank in found) for name in found[0]}
    answer = "wrong: " + " ".join(f"{name} {total}" for name, total in totals.items())
    print(json.dumps({"answer": answer}), flush=True)
    sys.exit(1 if any(totals.values()) else 0)


if __name__ == "__main__":
    main()
