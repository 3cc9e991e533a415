# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Runs the examples that other memory managers document on the simulated GPU.

Usage: test_documents.py LIBRARY SIMULATOR BATCHES
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

if os.environ.get("GPUPOOL_TEST_EMULATOR"):
    print("skipped: the Python of this machine cannot load a library for another architecture")
    sys.exit(77)

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import walks

LIBRARY, SIMULATOR, PROGRAM = (os.path.abspath(word) for word in sys.argv[1:4])
SMALL_LIMIT = {"GPUPOOL_LIMIT": f"{walks.LIMIT_BATCHES * 4}MiB"}


def run_program(words, variables, library=LIBRARY):
    """The exit status of a program, and its output on stdout and stderr, which must match the expected text."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GPUPOOL", "SIMGPU", "LD_"))}
    env |= {"LD_LIBRARY_PATH": SIMULATOR, "SIMGPU_STRICT": "1"} | ({"LD_PRELOAD": library} if library else {})
    with tempfile.TemporaryDirectory(prefix="gpupool-", dir="/tmp") as directory:
        env |= {"GPUPOOL_RUNTIME_DIR": directory, **variables}
        done = subprocess.run(words, env=env, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False, timeout=60)
    return done.returncode, done.stdout


def run_batches(variables, library=LIBRARY):
    status, text = run_program([PROGRAM, "small"], variables, library)
    return walks.Batches.of(status, text), text


class WalksTest(unittest.TestCase):
    def test_walks_print_the_documented_figures(self):
        for walk in walks.WALKS:
            for kind in walk.kinds:
                with self.subTest(walk=walk.name, kind=kind):
                    status, text = run_program(walk.command(), {**walk.environment(kind), **walk.simulated})
                    self.assertEqual(walks.differences(walk, status, text, devices=2), [])

    def test_error_in_the_deallocation_queue_is_logged_once(self):
        for walk in walks.WALKS:
            if walk.program == "queue_error":
                variables = {**walk.environment("none"), **walk.simulated, "GPUPOOL_LOG": "warn"}
                with self.subTest(walk=walk.name):
                    text = run_program(walk.command(), variables)[1]
                    self.assertEqual(text.count("warn:"), 1, text)
                    self.assertIn("the driver refused to take memory back", text)

    def test_every_difference_of_a_walk_is_reported(self):
        walk = walks.WALKS[0]
        text = walk.expected.replace("Effective", "Effective GPU memory usage: 0.25% (4.000 MiB/1.562 GiB)")
        self.assertEqual(walks.differences(walk, 0, text, 2), [])
        for wrong, count in ((text.replace("8192", "8193"), 1), (text.replace("0.25%", "0.75%"), 4), (text + "more\n", 1),
                             (text.replace("8192\n", ""), 4), ("", 13)):
            self.assertEqual(len(walks.differences(walk, 0, wrong, 2)), count)
        self.assertEqual(walks.differences(walk, 1, text, 2), ["exit status 1"])


class BatchesTest(unittest.TestCase):
    def test_data_set_of_eight_times_the_limit_needs_memory_for_few_batches(self):
        raw, text = run_batches({}, library=None)
        self.assertTrue(raw and raw.is_flat(), text)
        for kind in walks.BATCHES_KINDS:
            with self.subTest(kind=kind):
                batches, text = run_batches({"GPUPOOL_POOL": kind, **SMALL_LIMIT})
                self.assertTrue(batches and batches.is_flat(), text)
                if kind != "none":
                    self.assertLess(batches.ns, raw.ns)

    def test_batches_that_grow_or_count_wrong_are_rejected(self):
        line = "batches n=64 bytes=100 wrong=96 early_bytes={} peak_bytes={} ns=5\n"
        self.assertTrue(walks.Batches.of(0, line.format(300, 300)).is_flat())
        for early, peak in ((300, 401), (601, 601), (0, 0)):
            self.assertFalse(walks.Batches.of(0, line.format(early, peak)).is_flat())
        self.assertIsNone(walks.Batches.of(1, line.format(300, 300)))
        self.assertIsNone(walks.Batches.of(0, line.format(300, 300).replace("96", "95")))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
