# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""gpupool-run --doctor finds what keeps a program from running with gpupool, and says what to do.

Usage: test_doctor.py GPUPOOL-RUN LIBRARY SIM-DIRECTORY PROGRAM-WITH-RUNTIME STATIC-PROGRAM PROGRAM-WITH-STUBS
       DRIVER-THAT-CRASHES [UNITTEST ARGUMENTS]

The driver is the simulated one.
"""

import fcntl
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

RUN = LIBRARY = SIM = LINKED = STATIC = STUBS = CRASH = None
WIDTH = 80


class Doctor(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gpupool-doctor-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith(("GPUPOOL", "PYTHON", "LD_", "SIMGPU"))}
        self.env.update(LD_LIBRARY_PATH=SIM, GPUPOOL_RUNTIME_DIR=str(self.folder / "sockets"))

    def ask(self, *words, run=None, status=None, **env):
        """Runs the doctor. Returns its lines, each with its continuation, as {subject: [(state, text)]}."""
        done = subprocess.run([run or RUN, *words], env={**self.env, **env}, cwd=self.folder, timeout=120, check=False,
                              capture_output=True, text=True)
        self.output = done.stdout
        found = {}
        for line in done.stdout.splitlines():
            if line.startswith(" "):
                found[subject][-1] = (state, found[subject][-1][1] + " " + line.strip())
            elif line.startswith(("good  ", "todo  ")):
                state, subject, text = line.split(maxsplit=2)
                found.setdefault(subject, []).append((state, text))
        is_good = all(state == "good" for rows in found.values() for state, _ in rows)
        if status is None:
            status = 0 if is_good else 1
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return found

    def expect(self, found, subject, state, text):
        self.assertIn(subject, found, self.output)
        self.assertTrue(any(row[0] == state and text in row[1] for row in found[subject]),
                        "expected '%s' and '%s' for %s in: %s" % (state, text, subject, self.output))

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def python(self, *modules):
        """A Python program, for which these modules exist. None of them can be imported."""
        for module in modules:
            (self.folder / "modules" / module).mkdir(parents=True)
            (self.folder / "modules" / module / "__init__.py").write_text("raise SystemExit('imported')\n")
        self.env["PYTHONPATH"] = str(self.folder / "modules")
        return self.script("train.py", "#!%s\n" % sys.executable)

    def test_all_is_good_on_a_machine_with_a_driver(self):
        found = self.ask("--doctor", "env", status=0)
        for subject in ("settings", "versions", "library", "hook", "driver", "preload", "pool", "others", "program",
                        "runtime", "socket", "limits", "container"):
            self.expect(found, subject, "good", "")
        self.expect(found, "driver", "good", "CUDA 13.0, 1 device, the first is: Simulated GPU, 16.0 GiB;")
        self.expect(found, "pool", "good", "served an allocation of 1 MiB")
        self.assertRegex(self.output, r"\nall \d+ are good\n$")

    def test_the_pool_type_that_auto_has_chosen_is_named_with_the_reason(self):
        found = self.ask("--doctor", status=0, GPUPOOL_POOL="auto")
        self.expect(found, "pool", "good", "served an allocation of 1 MiB; pool type vmm on device 0")
        found = self.ask("--doctor", status=0, GPUPOOL_POOL="auto", SIMGPU_LACKS="102")
        self.expect(found, "pool", "good", "pool type split on device 0, since the driver cannot map memory on the")

    def test_the_command_is_optional(self):
        found = self.ask("--doctor", status=0)
        self.assertNotIn("program", found)
        self.assertNotIn("runtime", found)

    def test_lines_fit_into_80_columns(self):
        self.ask("--doctor", self.python("torch", "cupy", "rmm", "numba"), GPUPOOL_LIMIT="x", GPUPOOL_POOL="y")
        for line in self.output.splitlines():
            self.assertTrue(len(line) <= WIDTH or "/" in line, line)

    def test_the_command_is_not_started_and_no_file_is_left(self):
        self.ask("--doctor", "touch", "started", GPUPOOL_RECORD="record", GPUPOOL_LOG="debug", GPUPOOL_LOG_FILE="log",
                 GPUPOOL_REPORT="exit:report", GPUPOOL_OOM_FILE="oom")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["sockets"])
        self.assertEqual(list((self.folder / "sockets").iterdir()), [])

    def test_quiet_leaves_out_good_lines(self):
        self.ask("-q", "--doctor", status=0)
        self.assertEqual(self.output, "")
        self.ask("-q", "--doctor", "no-such-program", status=1)
        self.assertRegex(self.output, r"^todo  program ")
        self.assertNotIn("\ngood", self.output)
        self.assertRegex(self.output, r"\n1 thing to do, \d+ good\n$")

    def test_a_missing_driver_is_reported_with_the_loaders_reason(self):
        (self.folder / "libcuda.so.1").write_text("no library")
        found = self.ask("--doctor", LD_LIBRARY_PATH=str(self.folder))
        self.expect(found, "driver", "todo", "the loader cannot load libcuda.so.1: file too short.")
        self.expect(found, "preload", "good", "")
        self.assertNotIn("pool", found)

    def test_a_stub_is_not_taken_for_a_driver(self):
        (self.folder / "stubs").mkdir()
        shutil.copy(pathlib.Path(SIM) / "libcuda.so.1", self.folder / "stubs")
        found = self.ask("--doctor", LD_LIBRARY_PATH=str(self.folder / "stubs"))
        self.expect(found, "driver", "todo", "/stubs/libcuda.so.1 is the stub")

    def test_an_error_of_the_driver_is_named_with_a_remedy(self):
        found = self.ask("--doctor", SIMGPU_FAULT="cuInit:1+=100")
        self.expect(found, "driver", "todo", "cuInit fails with CUDA_ERROR_NO_DEVICE (100)")
        self.expect(found, "driver", "todo", "Next: run it on a machine with a GPU, and check CUDA_VISIBLE_DEVICES.")
        self.assertNotIn("pool", found)

    def test_an_allocation_that_fails_is_named(self):
        found = self.ask("--doctor", SIMGPU_FAULT="cuMemAlloc_v2:1+=2", GPUPOOL_POOL="none")
        self.expect(found, "pool", "todo", "an allocation of 1 MiB fails with CUDA_ERROR_OUT_OF_MEMORY (2)")

    def test_a_driver_that_crashes_is_reported_and_the_other_lines_follow(self):
        shutil.copy(CRASH, self.folder / "libcuda.so.1")
        found = self.ask("--doctor", LD_LIBRARY_PATH=str(self.folder))
        self.expect(found, "driver", "todo", "a program that asks for the devices ends with 134: ")
        self.expect(found, "container", "good", "")

    def test_a_library_that_is_not_gpupool_is_refused(self):
        (self.folder / "text.so").write_text("no library")
        found = self.ask("--library=text.so", "--doctor")
        self.expect(found, "library", "todo", "text.so: it is not a shared library.")
        self.assertNotIn("preload", found)
        found = self.ask("--library=" + SIM + "/libcuda.so.1", "--doctor")
        self.expect(found, "preload", "todo", "libcuda.so.1: it gives no reason.")

    def test_settings_that_cannot_be_read_or_are_unknown_are_named(self):
        found = self.ask("--doctor", GPUPOOL_LIMIT="4Gx", GPUPOOL_LIMT="4G")
        self.expect(found, "settings", "todo", "GPUPOOL_LIMIT: '4Gx' is not a size")
        self.expect(found, "settings", "todo", "the nearest is GPUPOOL_LIMIT.")

    def test_a_library_that_is_switched_off_is_reported(self):
        found = self.ask("--enable=off", "--doctor")
        self.expect(found, "settings", "todo", "gpupool is switched off by GPUPOOL.")
        self.assertNotIn("pool", found)

    def test_settings_that_keep_memory_from_going_to_the_host_are_reported(self):
        for words, why in (((), "GPUPOOL_POOL=split"), (("--pool=vmm", "--debug=poison"), "GPUPOOL_DEBUG"),
                           (("--pool=vmm", "--backend=managed"), "GPUPOOL_BACKEND=managed"),
                           (("--pool=auto", "--record=record.%p"), "GPUPOOL_RECORD")):
            found = self.ask("--spill=8GiB", *words, "--doctor")
            self.expect(found, "settings", "todo", f"GPUPOOL_SPILL has no effect with {why}")
        self.ask("--doctor", status=0, GPUPOOL_SPILL="8GiB", GPUPOOL_POOL="vmm")
        self.expect(self.ask("--doctor", GPUPOOL_SPILL="much"), "settings", "todo", "'much' is not a size")

    def test_a_recording_that_cannot_be_made_is_reported(self):
        (self.folder / "record").write_text("")
        self.expect(self.ask("--record=record", "--doctor"), "settings", "todo", "cannot record to record: it exists")

    def test_programs_that_cannot_be_preloaded_are_reported(self):
        self.expect(self.ask("--doctor", "no-such-program"), "program", "todo", "was not found in PATH.")
        self.expect(self.ask("--doctor", STATIC), "program", "todo", "is statically linked")
        docker = self.script("docker", "#!/bin/sh\n")
        self.expect(self.ask("--doctor", docker), "program", "todo", "docker may not pass LD_PRELOAD on to CMD")

    def test_the_runtime_of_a_program_is_compared_with_the_driver(self):
        self.expect(self.ask("--doctor", LINKED), "runtime", "good",
                    os.path.basename(LINKED) + " is linked with libcudart.so.13")
        found = self.ask("--doctor", LINKED, SIMGPU_DRIVER_VERSION="12040")
        self.expect(found, "runtime", "todo",
                    os.path.basename(LINKED) + " needs libcudart.so.13, and the driver is for CUDA 12.4.")

    def test_a_program_that_looks_for_the_driver_among_stubs_is_reported(self):
        self.expect(self.ask("--doctor", STUBS), "runtime", "todo", "/nowhere/stubs")

    def test_frameworks_of_the_commands_python_are_named_without_importing_them(self):
        command = self.python("torch", "cupy", "rmm", "numba", "jax")
        found = self.ask("--doctor", command)
        self.expect(found, "JAX", "good", "keeps its own pool")
        self.expect(found, "PyTorch", "todo", "its own pool is in front of gpupool")
        self.expect(found, "CuPy", "todo", "Next: use --own-pools=off")
        self.expect(found, "RMM", "good", "has no pool unless the program asks for one")
        self.expect(found, "Numba", "good", "delays frees")
        found = self.ask("--doctor", command, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
        self.expect(found, "PyTorch", "good", "its own pool is off")
        found = self.ask("--own-pools=off", "--doctor", command)
        for framework in ("PyTorch", "CuPy", "RMM", "Numba"):
            self.expect(found, framework, "good", "its own pool is off")

    def test_a_python_without_frameworks_is_reported_as_good(self):
        python = self.python("nothing")
        found = self.ask("--doctor", python)
        if "frameworks" not in found:
            self.skipTest("a framework is installed")
        self.expect(found, "frameworks", "good", "has none with a pool of its own")

    def test_a_python_that_cannot_be_asked_is_reported(self):
        command = self.script("python3", "#!/bin/sh\nexit 9\n")
        os.symlink("/bin/false", self.folder / "python3.99")
        self.expect(self.ask("--doctor", str(self.folder / "python3.99")), "frameworks", "todo", "cannot be asked")
        self.assertNotIn("frameworks", self.ask("--doctor", command))

    def test_a_switch_that_is_set_otherwise_is_reported(self):
        found = self.ask("--own-pools=off", "--doctor", TF_GPU_ALLOCATOR="cuda_malloc_async")
        self.expect(found, "settings", "todo", "needs TF_GPU_ALLOCATOR=cuda_malloc for TensorFlow")

    def test_settings_that_keep_a_program_from_sleeping_are_reported(self):
        for words, why in ((("--sleep",), "GPUPOOL_POOL=split"), (("--sleep=idle:30s", "--pool=simple"), "GPUPOOL_POOL=simple"),
                           (("--sleep", "--pool=auto", "--backend=managed"), "GPUPOOL_BACKEND=managed"),
                           (("--sleep", "--pool=vmm", "--debug=poison"), "GPUPOOL_DEBUG")):
            self.expect(self.ask(*words, "--doctor"), "settings", "todo", f"GPUPOOL_SLEEP has no effect with {why}")
        for words in (("--sleep", "--pool=vmm"), ("--sleep", "--pool=vmm", "--record=record.%p")):
            self.expect(self.ask(*words, "--doctor"), "settings", "good", "are set, and can be read")

    def test_a_socket_directory_that_is_open_to_others_is_reported(self):
        (self.folder / "sockets").mkdir(mode=0o755)
        (self.folder / "sockets").chmod(0o755)
        found = self.ask("--doctor", XDG_RUNTIME_DIR="", TMPDIR=str(self.folder))
        self.expect(found, "socket", "todo", "is open to other users")
        self.expect(self.ask("--socket=off", "--doctor"), "socket", "good", "off by GPUPOOL_SOCKET")

    def test_other_preloaded_libraries_are_counted_and_missing_ones_reported(self):
        other = str(pathlib.Path(SIM) / "libcuda.so.1")
        self.expect(self.ask("--doctor", LD_PRELOAD=other), "others", "good", "1 more library, after gpupool")
        found = self.ask("--doctor", LD_PRELOAD="/no/such.so")
        self.expect(found, "others", "todo", "/no/such.so in LD_PRELOAD: No such file or directory.")
        self.expect(found, "versions", "good", "")
        found = self.ask("--doctor", LD_PRELOAD="/elsewhere/libgpupool.so")
        self.expect(found, "others", "todo", "is another copy of the library")

    def test_a_limit_of_the_address_space_is_reported(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 46, hard))
        try:
            found = self.ask("--doctor")
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        self.expect(found, "limits", "todo", "Next: ulimit -v unlimited")

    def test_a_tool_of_another_version_is_reported(self):
        (self.folder / "tools").mkdir()
        shutil.copy(RUN, self.folder / "tools")
        self.script("tools/gpupool-stat", "#!/bin/sh\necho gpupool-stat 9.9\n")
        found = self.ask("--library=" + LIBRARY, "--doctor", run=str(self.folder / "tools/gpupool-run"))
        self.expect(found, "versions", "todo", "says: gpupool-stat 9.9")
        (self.folder / "tools/gpupool-stat").unlink()
        found = self.ask("--library=" + LIBRARY, "--doctor", run=str(self.folder / "tools/gpupool-run"))
        self.expect(found, "versions", "good", "without gpupool-stat beside it")

    def test_lines_have_the_width_of_the_terminal(self):
        widths = {}
        for columns in (60, 80, 200):
            main, terminal = os.openpty()
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            with subprocess.Popen([RUN, "--doctor", "env"], env=self.env, cwd=self.folder, stdout=terminal) as program:
                os.close(terminal)
                output = b""
                try:
                    while piece := os.read(main, 4096):
                        output += piece
                except OSError:  # the program has ended
                    pass
            os.close(main)
            self.assertEqual(program.returncode, 0)
            lines = [line for line in output.decode().splitlines() if "/" not in line]  # a path is not broken
            widths[columns] = max(map(len, lines))
            self.assertLessEqual(widths[columns], columns)
        self.assertGreater(widths[200], 80)

    def test_wrong_usage_is_refused(self):
        for words in (["--doctor", "--print-env"], ["--doctor", "--compare", "true"], ["--doctor=x"], ["--doctor", "--limit=4Gx"]):
            self.ask(*words, status=2)
            self.assertEqual(self.output, "")


if __name__ == "__main__":
    RUN, LIBRARY, SIM, LINKED, STATIC, STUBS, CRASH = (os.path.abspath(argument) for argument in sys.argv[1:8])
    unittest.main(argv=sys.argv[:1] + sys.argv[8:])
