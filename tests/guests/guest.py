# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""A Python program that uses the driver's functions through ctypes, as some programs do.

Usage: guest.py SCENARIO. The output is the same with and without a library preloaded.
"""

import concurrent.futures
import ctypes
import gc
import multiprocessing
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

MIB = 1 << 20
ROUNDS = 32

cu = None


def load():
    """Loads the driver as ctypes does, with dlopen and dlsym."""
    global cu
    cu = ctypes.CDLL("libcuda.so.1")
    for name in ("cuMemFree_v2", "cuMemFreeHost"):
        getattr(cu, name).argtypes = [ctypes.c_uint64 if name == "cuMemFree_v2" else ctypes.c_void_p]
    cu.cuMemAlloc_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    cu.cuMemsetD8_v2.argtypes = [ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t]
    cu.cuMemcpyDtoH_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t]
    cu.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]


def must(code):
    if code:
        raise RuntimeError("code %d" % code)


context = ctypes.c_void_p()


def start():
    load()
    must(cu.cuInit(0))
    must(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    must(cu.cuCtxSetCurrent(context))


class Block:
    """Device memory that is freed with its last reference."""

    def __init__(self, size):
        self.ptr = ctypes.c_uint64()
        must(cu.cuMemAlloc_v2(ctypes.byref(self.ptr), size))
        self.size = size

    def __del__(self):
        if self.ptr:
            must(cu.cuMemFree_v2(self.ptr))

    def fill(self, value):
        must(cu.cuMemsetD8_v2(self.ptr, value, self.size))

    def read(self):
        host = ctypes.create_string_buffer(self.size)
        must(cu.cuMemcpyDtoH_v2(host, self.ptr, self.size))
        return host.raw


def use(seed=0):
    """Returns the number of blocks whose contents were not the bytes written to them."""
    wrong = 0
    held = []
    for i in range(ROUNDS):
        block = Block((64 << 10) << (i + seed) % 3)
        block.fill((i + seed) % 256)
        wrong += block.read() != bytes([(i + seed) % 256]) * block.size
        held = held[-3:] + [block]
    return wrong


def report_calls():
    """Reports facts on descriptor 3, like the programs in C."""
    count = getattr(cu, "simgpu_calls", None)
    if not count:
        return
    count.restype = ctypes.c_uint64
    for name in ("cuMemAlloc_v2", "cuMemHostAlloc"):
        os.write(3, ("%s %d\n" % (name, count(name.encode()))).encode())
    races = cu.simgpu_races
    races.restype = ctypes.c_uint64
    os.write(3, ("races %d\n" % races()).encode())


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def is_listening(fd):
    """True for a socket that listens, such as the library's control socket."""
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
        with socket.socket(fileno=os.dup(fd)) as copy:
            return copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 0
    except OSError:
        return False


AT_START = {fd for fd in range(64) if is_open(fd)}
MOVE_LIMIT_S = 60


def stays_open(fd):
    """
    True if the descriptor belongs to the program. The library's socket listens at a low number until the server's
    thread moves it to 512 or above, so a listening socket that the program did not inherit is waited for.
    """
    deadline = time.monotonic() + MOVE_LIMIT_S
    while fd not in AT_START and is_listening(fd):
        if time.monotonic() > deadline:
            sys.exit("descriptor %d: expected the library's socket to move to 512 or above within %d s, but it still "
                     "listens here" % (fd, MOVE_LIMIT_S))
        time.sleep(0.001)
    return is_open(fd)


def descriptors():
    """Returns the open descriptors below the library's, without that of the listing itself."""
    return [fd for fd in range(64) if stays_open(fd)]


def plain():
    start()
    print("wrong", use())
    report_calls()


def threads():
    start()

    def work(seed):
        must(cu.cuCtxSetCurrent(context))
        return use(seed)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        print(list(pool.map(work, range(16))))
    gc.collect()
    report_calls()
    print(threading.active_count(), descriptors())


def use_in_worker(seed):
    start()
    return use(seed)


def workers(method):
    """Uses CUDA in new processes, which may be children of a process that uses it, too."""
    with multiprocessing.get_context(method).Pool(2) as pool:
        print(pool.map(use_in_worker, range(4), chunksize=2))
        pool.close()
        pool.join()


def fork_before():
    workers("fork")
    start()
    print("parent", use())


def spawn():
    start()
    print("parent", use())
    workers("spawn")
    print("parent", use())


def forkserver():
    start()
    print("parent", use())
    workers("forkserver")


def refused(queue):
    """Runs in a forked child of a process that uses CUDA: every call must return an error."""
    ptr = ctypes.c_uint64(0x5A5A)
    queue.put([cu.cuMemAlloc_v2(ctypes.byref(ptr), MIB), cu.cuMemFree_v2(ptr), ptr.value])


def fork_after():
    start()
    kept = Block(MIB)
    kept.fill(7)
    fork = multiprocessing.get_context("fork")
    for _ in range(4):
        queue = fork.SimpleQueue()
        child = fork.Process(target=refused, args=(queue,))
        child.start()
        print(queue.get())
        child.join()
        print(child.exitcode)
    print("kept", kept.read() == b"\7" * MIB, use())


def children():
    start()
    print("before", use(), descriptors())
    again = [sys.executable, __file__, "plain"]
    for options in ({}, {"close_fds": False}, {"start_new_session": True}, {"preexec_fn": os.getpid}):
        result = subprocess.run(again, capture_output=True, text=True, check=False, **options)
        print(result.returncode, result.stdout.strip(), result.stderr)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.execv(sys.executable, again)
    print(os.waitpid(child, 0)[1])
    print(os.WEXITSTATUS(os.system("exit 3")))
    print(subprocess.check_output("echo $((6 * 7)); ls /proc/self/fd | wc -l", shell=True, text=True))
    print("after", use(), descriptors())


def handlers():
    """Python's own handlers run, and one of them raises an exception."""
    start()
    print([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD)])
    print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
    counted = []
    signal.signal(signal.SIGUSR1, lambda number, frame: counted.append(use()))
    for _ in range(8):
        os.kill(os.getpid(), signal.SIGUSR1)
    print(counted)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        use()
    except KeyboardInterrupt:
        print("interrupted")


held_at_exit = []


def ends():
    """Python destroys or forgets objects at its end, and an exception is not caught."""
    start()
    held_at_exit.extend(Block(MIB) for _ in range(8))
    held_at_exit.append(held_at_exit)
    use()
    print("ends", flush=True)
    raise SystemExit(4)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
