# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""gpupool-run --own-pools=off turns the pools of CuPy and RMM off in Python programs, and changes nothing else there.

Usage: test_own_pools.py GPUPOOL-RUN OWN_POOLS.DEF [UNITTEST ARGUMENTS]

The frameworks are stand-ins that record calls. They have the functions and classes of CuPy 14 and RMM 26 that the hook
uses.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

RUN = TABLE = None

CUPY = """
from cupy import cuda
cuda.set_allocator("pool")
cuda.set_pinned_memory_allocator("pinned pool")
"""

CUPY_CUDA = """
def set_allocator(allocator=None):
    global allocator_now
    allocator_now = allocator
def set_pinned_memory_allocator(allocator=None):
    global pinned_now
    pinned_now = allocator
"""

RMM = """
from rmm import mr
from rmm.rmm import reinitialize
"""

RMM_RMM = """
calls = []
def reinitialize(pool_allocator=False, managed_memory=False, initial_pool_size=None, maximum_pool_size=None, devices=0,
                 logging=False, log_file_name=None):
    calls.append((pool_allocator, managed_memory, initial_pool_size, maximum_pool_size, devices, logging))
"""

RMM_MR = """
class DeviceMemoryResource:
    pass
class CudaMemoryResource(DeviceMemoryResource):
    pass
class PoolMemoryResource(DeviceMemoryResource):
    made = 0
    def __init__(self, upstream_mr, initial_pool_size=None, maximum_pool_size=None):
        PoolMemoryResource.made += 1
class ArenaMemoryResource(PoolMemoryResource):
    pass
class CudaAsyncMemoryResource(DeviceMemoryResource):
    pass
"""

FILES = {"cupy/__init__.py": CUPY, "cupy/cuda.py": CUPY_CUDA,
         "rmm/__init__.py": RMM, "rmm/rmm.py": RMM_RMM, "rmm/mr.py": RMM_MR}

ALLOCATORS = "import cupy; print(cupy.cuda.allocator_now, cupy.cuda.pinned_now)\n"
POOLED, RAW = "pool pinned pool\n", "None None\n"


class OwnPools(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gpupool-own-pools-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in FILES.items():
            self.write("frameworks/" + name, text)
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith(("GPUPOOL", "PYTHON", "LD_PRELOAD"))}
        self.env.update(PYTHONPATH=str(self.folder / "frameworks"), PYTHONDONTWRITEBYTECODE="1")

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run_python(self, *words, python=sys.executable, options=("--own-pools=off",), **env):
        """Returns the output of a Python program, under gpupool-run unless options is None."""
        start = [] if options is None else [RUN, "-q", *options]
        done = subprocess.run([*start, python, *words], env={**self.env, **env}, capture_output=True, text=True,
                              timeout=60, check=False)
        self.errors = done.stderr
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def run_code(self, code, **kwargs):
        return self.run_python("-c", code, **kwargs)

    def test_pools_of_cupy_are_off_after_its_import(self):
        self.assertEqual(self.run_code(ALLOCATORS), RAW)
        self.assertEqual(self.errors, "")

    def test_pools_of_cupy_stay_on_without_the_option(self):
        self.assertEqual(self.run_code(ALLOCATORS, options=()), POOLED)
        self.assertEqual(self.run_code(ALLOCATORS, options=["--own-pools=on"]), POOLED)

    def test_the_variable_turns_the_pools_off_like_the_option(self):
        self.assertEqual(self.run_code(ALLOCATORS, options=(), GPUPOOL_OWN_POOLS="off"), RAW)

    def test_an_import_of_a_submodule_turns_the_pools_off(self):
        self.assertEqual(self.run_code("import cupy.cuda as c; print(c.allocator_now, c.pinned_now)"), RAW)

    def test_an_allocator_that_the_program_sets_stays(self):
        code = "import cupy; cupy.cuda.set_allocator('mine'); print(cupy.cuda.allocator_now)"
        self.assertEqual(self.run_code(code), "mine\n")

    def test_a_reload_turns_the_pools_off_again(self):
        self.assertEqual(self.run_code("import cupy, importlib; importlib.reload(cupy)\n" + ALLOCATORS), RAW)

    def test_the_hook_imports_no_framework(self):
        code = "import sys; print([name for name in ('cupy', 'rmm') if name in sys.modules])"
        self.assertEqual(self.run_code(code), "[]\n")

    def test_child_processes_inherit_the_hook(self):
        script = self.write("child.py", ALLOCATORS)
        self.assertEqual(self.run_code("import subprocess, sys; subprocess.run([sys.executable, %r], check=True)" % str(script)), RAW)
        spawn = self.write("spawn.py", """
import multiprocessing
def child(queue):
    import cupy
    queue.put((cupy.cuda.allocator_now, cupy.cuda.pinned_now))
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    print(*queue.get(timeout=50))
    process.join()
""")
        self.assertEqual(self.run_python(str(spawn)), RAW)

    def test_a_child_can_keep_the_pools(self):
        code = "import os, subprocess, sys; os.environ['GPUPOOL_OWN_POOLS'] = 'on'; subprocess.run([sys.executable, '-c', %r], check=True)"
        self.assertEqual(self.run_code(code % ALLOCATORS), POOLED)

    def test_pools_of_rmm_are_replaced_by_their_source(self):
        code = """
import rmm
raw = rmm.mr.CudaMemoryResource()
print(rmm.mr.PoolMemoryResource(raw, initial_pool_size=2**30) is raw, rmm.mr.ArenaMemoryResource(raw) is raw,
      type(rmm.mr.CudaAsyncMemoryResource(1, 2)) is rmm.mr.CudaMemoryResource, rmm.mr.PoolMemoryResource.made)
"""
        self.assertEqual(self.run_code(code), "True True True 0\n")

    def test_a_pool_class_of_rmm_still_serves_as_a_class(self):
        code = """
import rmm
print(isinstance(rmm.mr.CudaMemoryResource(), rmm.mr.PoolMemoryResource), rmm.mr.PoolMemoryResource.__name__)
class Mine(rmm.mr.PoolMemoryResource):
    pass
print(isinstance(Mine(None), rmm.mr.PoolMemoryResource), issubclass(Mine, rmm.mr.PoolMemoryResource))
"""
        self.assertEqual(self.run_code(code), "False PoolMemoryResource\nTrue True\n")

    def test_rmm_reinitialize_makes_no_pool(self):
        code = """
import rmm, rmm.rmm
rmm.reinitialize(pool_allocator=True, initial_pool_size=2**30, devices=[1])
rmm.rmm.reinitialize(True, True, 1, 2, 3, logging=True)
print(rmm.rmm.calls)
"""
        self.assertEqual(self.run_code(code),
                         "[(False, False, None, None, [1], False), (False, True, None, None, 3, True)]\n")

    def test_a_framework_that_the_hook_does_not_know_runs_with_a_message(self):
        self.write("frameworks/cupy/__init__.py", "")
        self.write("frameworks/rmm/__init__.py", "")
        self.assertEqual(self.run_code("import cupy, rmm; print('runs')"), "runs\n")
        self.assertRegex(self.errors, "^gpupool-run: cannot turn off the memory pool of cupy: AttributeError: ")
        self.assertIn("\ngpupool-run: cannot turn off the memory pool of rmm: AttributeError: ", self.errors)

    def test_a_missing_framework_is_missing_as_before(self):
        code = "import importlib.util; print(importlib.util.find_spec('cupy'))\ntry:\n  import cupy\nexcept ImportError as e: print(e)"
        before = self.run_code(code, options=None, PYTHONPATH="")
        if "No module named" not in before:
            self.skipTest("CuPy is installed")
        self.assertEqual(self.run_code(code, PYTHONPATH=""), before)

    def test_the_import_leaves_the_loader_as_it_was(self):
        code = "import cupy, inspect; l = cupy.__spec__.loader; print(type(l), sorted(vars(l)), 'set_allocator' in inspect.getsource(cupy))"
        self.assertEqual(self.run_code(code), self.run_code(code, options=None))

    def test_the_programs_module_path_is_as_without_gpupool(self):
        code = "import sys; print(sys.path)"
        for path in ("", "a", "a:b", "a::b", str(self.folder)):
            self.assertEqual(self.run_code(code, PYTHONPATH=path), self.run_code(code, options=None, PYTHONPATH=path))

    def test_the_next_sitecustomize_runs(self):
        self.write("frameworks/sitecustomize.py", "mine = 42\n")
        code = "import sitecustomize; print(sitecustomize.mine); " + ALLOCATORS
        self.assertEqual(self.run_code(code), "42\n" + RAW)

    def test_an_error_in_the_next_sitecustomize_is_reported_as_before(self):
        for error in ("1 / 0", "import no_such_module"):
            self.write("frameworks/sitecustomize.py", error + "\n")
            self.run_code(ALLOCATORS, options=None)
            before = self.errors
            self.assertEqual(self.run_code(ALLOCATORS), RAW)
            self.assertIn(before.splitlines()[-1], self.errors)

    def test_isolated_pythons_keep_their_pools_and_start_without_a_message(self):
        code = "import sys; sys.path.insert(0, %r); %s" % (self.env["PYTHONPATH"], ALLOCATORS)
        for option in ("-I", "-E", "-S"):
            self.assertEqual(self.run_python(option, "-c", code), POOLED)
            self.assertEqual(self.errors, "")

    def test_virtual_environments_are_served(self):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.folder / "venv"], check=True, timeout=60)
        code = "import sys; print(sys.prefix != sys.base_prefix); " + ALLOCATORS
        self.assertEqual(self.run_code(code, python=str(self.folder / "venv/bin/python")), "True\n" + RAW)

    def test_python_writes_no_file_beside_the_hook(self):
        archive = self.run_code("import os; print(os.environ['PYTHONPATH'].split(':')[0])").strip()
        self.run_code(ALLOCATORS, PYTHONDONTWRITEBYTECODE="")
        self.assertTrue(os.path.isfile(archive), archive)
        self.assertFalse(os.path.exists(os.path.join(os.path.dirname(archive), "__pycache__")))

    def test_the_hook_serves_the_frameworks_of_the_table(self):
        rows = re.findall(r'OWN_POOL\("[^"]+", "(\w+)",[^)]*\bPYTHON\b', pathlib.Path(TABLE).read_text())
        code = "import gpupool_own_pools; print(sorted(gpupool_own_pools.FRAMEWORKS))"
        self.assertEqual(self.run_code(code), "%s\n" % sorted(rows))


if __name__ == "__main__":
    RUN, TABLE = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
