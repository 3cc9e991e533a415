# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Samples the memory in use on the first device continuously, from a process other than the one under test.
"""

import os
import shutil
import subprocess
import threading

try:
    import pynvml
except ImportError:
    pynvml = None

INTERVAL_S = 0.01


def device_index():
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return int(first) if first.isdigit() else 0


class NvmlReader:
    def __init__(self):
        pynvml.nvmlInit()
        self.device = pynvml.nvmlDeviceGetHandleByIndex(device_index())

    def read(self):
        return pynvml.nvmlDeviceGetMemoryInfo(self.device).used


class SmiReader:
    """Samples by nvidia-smi, which is much slower: a process for each sample."""

    WORDS = ("--query-gpu=memory.used", "--format=csv,noheader,nounits")

    def read(self):
        words = ["nvidia-smi", *self.WORDS, "-i", str(device_index())]
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True)
        return int(done.stdout.split()[0]) << 20


def find_reader():
    if pynvml:
        try:
            return NvmlReader()
        except pynvml.NVMLError:
            pass
    return SmiReader() if shutil.which("nvidia-smi") else None


class MemoryWatch:
    """Bytes above those in use when the watch began, or None if they cannot be read."""

    def __init__(self):
        self.reader = find_reader()
        self.highest = 0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._loop, daemon=True)

    def __enter__(self):
        if self.reader:
            self.base = self.reader.read()
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        if self.reader:
            self.thread.join()

    def _loop(self):
        while not self.is_over.wait(INTERVAL_S):
            self.highest = max(self.highest, self.now())

    def now(self):
        return self.reader.read() - self.base if self.reader else None

    def peak(self):
        return self.highest if self.reader else None
