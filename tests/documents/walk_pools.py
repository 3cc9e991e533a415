# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""The statistics of the two pools while 400 bytes are copied to the device through pinned memory, and freed."""

import cuda
import gpupool

cuda.start()
mempool = gpupool.get_default_memory_pool()
pinned_mempool = gpupool.get_default_pinned_memory_pool()


def show(what):
    print(what, mempool.used_bytes(), mempool.total_bytes(), pinned_mempool.n_free_blocks())


a_cpu = bytes(400)
show("start")
a = cuda.array(a_cpu)
print("bytes", a.nbytes)
show("on the device")
a = None
show("freed")
print("free", mempool.n_free_blocks(), mempool.free_bytes())
mempool.free_all_blocks()
pinned_mempool.free_all_blocks()
show("released")
