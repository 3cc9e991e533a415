# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Turns the memory pools of CuPy and RMM off right after a program has imported them. No variable does that.

The hook imports neither of them, and makes no CUDA call: a program may fork after its imports.
"""

import functools
import sys


def turn_off_cupy(cupy):
    """With None, CuPy allocates each array with cudaMalloc and cudaMallocHost (docs.cupy.dev, set_allocator)."""
    cupy.cuda.set_allocator(None)
    cupy.cuda.set_pinned_memory_allocator(None)


class Unpooled:
    """Stands for a class of pools of RMM. A call returns what the pool would have taken its memory from.

    All else is the class's own: isinstance(), attributes, and classes that derive from it.
    """

    def __init__(self, pool, get_source):
        self._pool = pool
        self._get_source = get_source
        functools.update_wrapper(self, pool, updated=())

    def __call__(self, *args, **kwargs):
        return self._get_source(*args, **kwargs)

    def __instancecheck__(self, instance):
        return isinstance(instance, self._pool)

    def __subclasscheck__(self, subclass):
        return issubclass(subclass, self._pool)

    def __mro_entries__(self, bases):
        return (self._pool,)

    def __getattr__(self, name):
        return getattr(self._pool, name)


def get_upstream(upstream_mr, *args, **kwargs):
    return upstream_mr


def turn_off_rmm(rmm):
    """RMM takes memory from cudaMalloc until the program makes a pool, so the ways to make one return the source.

    RMM's default resource is left alone: to set it would call CUDA.
    """
    for name in ("PoolMemoryResource", "ArenaMemoryResource", "BinningMemoryResource"):
        if hasattr(rmm.mr, name):
            setattr(rmm.mr, name, Unpooled(getattr(rmm.mr, name), get_upstream))
    if hasattr(rmm.mr, "CudaAsyncMemoryResource"):
        make_raw = rmm.mr.CudaMemoryResource
        rmm.mr.CudaAsyncMemoryResource = Unpooled(rmm.mr.CudaAsyncMemoryResource, lambda *args, **kwargs: make_raw())
    reinitialize_pooled = rmm.reinitialize

    @functools.wraps(reinitialize_pooled)
    def reinitialize(pool_allocator=False, managed_memory=False, initial_pool_size=None, maximum_pool_size=None,
                     *args, **kwargs):
        return reinitialize_pooled(False, managed_memory, None, None, *args, **kwargs)

    rmm.reinitialize = reinitialize
    if hasattr(rmm, "rmm"):
        rmm.rmm.reinitialize = reinitialize


# The names are those of the rows of common/own_pools.def that this hook serves.
FRAMEWORKS = {"cupy": turn_off_cupy, "rmm": turn_off_rmm}


def turn_off(name, module):
    try:
        FRAMEWORKS[name](module)
    except Exception as error:  # pylint: disable=broad-except # another version of the framework must still run
        sys.stderr.write("gpupool-run: cannot turn off the memory pool of %s: %s: %s\n"
                         % (name, type(error).__name__, error))


def watch(loader, name):
    """Lets the loader call turn_off() when it has run the module. The loader stays the same object, for its users."""
    attributes = vars(loader)
    before = attributes.get("exec_module")
    run = loader.exec_module

    def exec_module(module):
        del attributes["exec_module"]
        if before:
            attributes["exec_module"] = before
        run(module)
        turn_off(name, module)

    attributes["exec_module"] = exec_module


class Finder:
    """Is the first in sys.meta_path. Asks the finders after it for the frameworks, and watches the loaders found."""

    def find_spec(self, name, path=None, target=None):
        if name not in FRAMEWORKS:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not self else None
            if spec:
                if hasattr(spec.loader, "exec_module") and isinstance(getattr(spec.loader, "__dict__", None), dict):
                    watch(spec.loader, name)
                return spec
        return None


def install():
    sys.meta_path.insert(0, Finder())
