# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
A pipeline of DALI that scales, turns and crops images of varying sizes on the GPU. Sums of bytes are its answer.
"""

import json
import sys
import time

import numpy
from nvidia.dali import fn, pipeline_def, types

WARM_UP, STEPS, WINDOWS = 5, 60, 3
BATCH, SIZES = 16, 7
OUT = 224


def images():
    """Batches of images of several sizes, in turn."""
    generator = numpy.random.default_rng(2)
    whole = generator.integers(0, 256, (512, 640, 3), dtype=numpy.uint8)
    batches = [[whole[:256 + 32 * ((i + j) % SIZES), :320 + 40 * ((i * j) % SIZES)] for j in range(BATCH)]
               for i in range(SIZES)]
    batches = [[numpy.ascontiguousarray(image) for image in batch] for batch in batches]
    i = 0
    while True:
        yield batches[i % SIZES]
        i += 1


@pipeline_def(batch_size=BATCH, num_threads=4, device_id=0, seed=3, prefetch_queue_depth=2)
def pipeline():
    raw = fn.external_source(images(), dtype=types.UINT8, ndim=3, layout="HWC").gpu()
    scaled = fn.resize(raw, resize_shorter=256.0)
    turned = fn.rotate(scaled, angle=15.0, fill_value=0, keep_size=True)
    cut = fn.crop_mirror_normalize(turned, crop=(OUT, OUT), dtype=types.FLOAT, output_layout="CHW", mean=[127.0] * 3,
                                   std=[64.0] * 3)
    return cut, fn.reductions.sum(fn.cast(turned, dtype=types.INT64), axes=(0, 1, 2))


def main():
    pipe = pipeline()
    pipe.build()
    for _ in range(WARM_UP):
        pipe.run()
    ms, total = [], 0
    for _ in range(WINDOWS):
        start = time.perf_counter()
        for _ in range(STEPS):
            floats, sums = pipe.run()
            total += int(numpy.sum(sums.as_cpu().as_array()))  # this waits for the GPU
        ms.append((time.perf_counter() - start) / STEPS * 1e3)
    answer = f"{total} {floats.as_cpu().as_array().astype(numpy.float64).sum():.6e}"
    print(json.dumps({"ms": ms, "answer": answer, "own_peak_bytes": None}), flush=True)
    sys.stdin.readline()  # the test may observe this process before it ends


if __name__ == "__main__":
    main()
