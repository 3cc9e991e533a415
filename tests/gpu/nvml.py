# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""The memory of the first device, as NVML and nvidia-smi have it."""

import ctypes


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint)]


PROCESSES_MAX = 256


class Device:
    def __init__(self):
        self.nvml, self.handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        error = self.nvml.nvmlInit_v2() or self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle))
        if error:
            raise OSError(f"NVML: error {error}")

    def used_bytes(self):
        memory = Memory()
        error = self.nvml.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(memory))
        return None if error else memory.used

    def bytes_of(self, pid):
        """Bytes of a process; None: it is not listed, as one without memory, or any in a container."""
        count, processes = ctypes.c_uint(PROCESSES_MAX), (Process * PROCESSES_MAX)()
        error = self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.handle, ctypes.byref(count), processes)
        found = [] if error else [process.used for process in processes[:count.value] if process.pid == pid]
        return found[0] if found else None
