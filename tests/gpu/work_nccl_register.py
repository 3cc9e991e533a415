# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Collectives of NCCL on buffers that the program has registered (ncclCommRegister): tensors of PyTorch and memory of
ncclMemAlloc, with a process for each GPU. Each turn frees its buffers, so that the next turn gets the same addresses.
Results are compared with those of the CPU. NCCL prints its transport to stdout.
"""

import ctypes
import json
import os
import sys

import torch
import torch.multiprocessing as mp

COUNTS = [1024, (1 << 18) + 32, 1 << 22]
TURNS = 4
FLOAT32, SUM = 7, 0
VARIABLES = {
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_CUMEM_HOST_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_DEBUG": "INFO",
}


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


def must(result, name):
    if result:
        raise RuntimeError(f"{name}: error {result}")


class Nccl:
    """The functions of the library that PyTorch has loaded. Arguments are addresses and numbers."""

    def __init__(self):
        self.functions = ctypes.CDLL("libnccl.so.2")
        self.functions.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]

    def call(self, name, *arguments):
        words = [ctypes.c_void_p(word) if isinstance(word, int) and word > 1 << 31 else word for word in arguments]
        must(getattr(self.functions, name)(*words), name)


class Mine:
    """Memory of ncclMemAlloc, and its content as a tensor on the CPU."""

    def __init__(self, nccl, count):
        self.nccl, self.count, self.driver = nccl, count, ctypes.CDLL("libcuda.so.1")
        address = ctypes.c_void_p()
        nccl.call("ncclMemAlloc", ctypes.byref(address), ctypes.c_size_t(4 * count))
        self.address = address.value

    def write(self, tensor):
        must(self.driver.cuMemcpyHtoD_v2(ctypes.c_void_p(self.address), ctypes.c_void_p(tensor.data_ptr()),
                                         ctypes.c_size_t(4 * self.count)), "cuMemcpyHtoD")

    def read(self):
        tensor = torch.empty(self.count)
        must(self.driver.cuMemcpyDtoH_v2(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_void_p(self.address),
                                         ctypes.c_size_t(4 * self.count)), "cuMemcpyDtoH")
        return tensor

    def free(self):
        self.nccl.call("ncclMemFree", self.address)


class OfTorch:
    """Memory of PyTorch's allocator."""

    def __init__(self, nccl, count):
        self.tensor = torch.zeros(count, device="cuda")
        self.address = self.tensor.data_ptr()

    def write(self, tensor):
        self.tensor.copy_(tensor)

    def read(self):
        return self.tensor.cpu()

    def free(self):
        del self.tensor


def part(rank, count, turn):
    """Small whole numbers, so that their sums are exact."""
    return ((torch.arange(count) * 3 + rank * 17 + turn * 5) % 251).float()


def wrong(buffer, expected):
    return int((buffer.read() != expected).sum())


def collectives(nccl, comm, kind, rank, world, count, turn):
    """The number of wrong elements after each kind of collective on registered buffers."""
    parts = [part(other, count, turn) for other in range(world)]
    own, result, gathered = kind(nccl, count), kind(nccl, count), kind(nccl, count * world)
    buffers, handles = [own, result, gathered], []
    for buffer, length in zip(buffers, (count, count, count * world)):
        handle = ctypes.c_void_p()
        nccl.call("ncclCommRegister", comm, buffer.address, ctypes.c_size_t(4 * length), ctypes.byref(handle))
        handles.append(handle)
    own.write(parts[rank])
    torch.cuda.synchronize()
    stream = torch.cuda.current_stream().cuda_stream
    n = ctypes.c_size_t(count)
    found = {}
    nccl.call("ncclAllReduce", own.address, result.address, n, FLOAT32, SUM, comm, ctypes.c_void_p(stream))
    torch.cuda.synchronize()
    found["all_reduce"] = wrong(result, sum(parts))
    nccl.call("ncclAllGather", own.address, gathered.address, n, FLOAT32, comm, ctypes.c_void_p(stream))
    torch.cuda.synchronize()
    found["all_gather"] = wrong(gathered, torch.cat(parts))
    to, source = (rank + 1) % world, (rank - 1) % world
    nccl.call("ncclGroupStart")
    nccl.call("ncclSend", own.address, n, FLOAT32, to, comm, ctypes.c_void_p(stream))
    nccl.call("ncclRecv", result.address, n, FLOAT32, source, comm, ctypes.c_void_p(stream))
    nccl.call("ncclGroupEnd")
    torch.cuda.synchronize()
    found["send"] = wrong(result, parts[source])
    for handle in handles:
        nccl.call("ncclCommDeregister", comm, handle)
    for buffer in buffers:
        buffer.free()
    return found


def run_rank(rank, world, ids, answers):
    torch.cuda.set_device(rank)
    torch.zeros(1, device="cuda")
    nccl, unique, comm = Nccl(), UniqueId(), ctypes.c_void_p()
    if rank == 0:
        nccl.call("ncclGetUniqueId", ctypes.byref(unique))
        for _ in range(world):
            ids.put(bytes(unique))
    unique = UniqueId.from_buffer_copy(ids.get())
    must(nccl.functions.ncclCommInitRank(ctypes.byref(comm), world, unique, rank), "ncclCommInitRank")
    totals = {}
    for turn in range(TURNS):
        for kind in (OfTorch, Mine):
            for count in COUNTS:
                for name, found in collectives(nccl, comm, kind, rank, world, count, turn).items():
                    totals[name] = totals.get(name, 0) + found
        torch.cuda.empty_cache()
    nccl.call("ncclCommDestroy", comm)
    answers.put((rank, totals))


def main():
    os.environ |= {name: value for name, value in VARIABLES.items() if name not in os.environ}
    world = torch.cuda.device_count()
    context = mp.get_context("spawn")
    ids, answers = context.SimpleQueue(), context.SimpleQueue()
    children = mp.spawn(run_rank, (world, ids, answers), nprocs=world, join=False)
    while not children.join():
        pass
    found = dict(answers.get() for _ in range(world))
    totals = {name: sum(found[rank][name] for rank in found) for name in found[0]}
    print(json.dumps({"answer": "wrong: " + " ".join(f"{name} {total}" for name, total in totals.items())}), flush=True)
    sys.exit(1 if any(totals.values()) else 0)


if __name__ == "__main__":
    main()
