# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Usage: test_bench_traces.py BENCH_TRACES TRACE.gz: tests the replayer with a trace, and with input that is not a trace.
"""

import gzip
import os
import pathlib
import re
import subprocess
import sys
import unittest

PROGRAM, TRACE = sys.argv[1:3]
EMULATOR = os.environ.get("GPUPOOL_TEST_EMULATOR", "").split()
KINDS = {"none", "simple", "binned", "split", "vmm"}
MODES = {"ordered, one stream", "ordered, overlap", "completion only"}
LAGS = {0, 64, 1024}
ROW = re.compile(r"(?P<mode>.*\S) +(?P<lag>\d+)  (?P<kind>\w+) +[\d.]+ +(?P<ratio>[\d.]+) +(?P<driver>\d+)( +\d+){3}")


def replay(text):
    return subprocess.run([*EMULATOR, PROGRAM], input=text, capture_output=True, text=True, timeout=100, check=False)


class TracesTest(unittest.TestCase):
    def test_every_kind_replays_a_trace_in_every_mode_and_at_every_gpu_lag(self):
        done = replay(gzip.decompress(pathlib.Path(TRACE).read_bytes()).decode())
        self.assertEqual(done.returncode, 0, done.stderr)
        title, _, *lines = done.stdout.splitlines()
        self.assertRegex(title, r"^\d+ operations, peak live [\d.]+ MiB$")
        rows = [ROW.fullmatch(line) for line in lines]
        self.assertNotIn(None, rows, lines)
        found = {(row["mode"], int(row["lag"]), row["kind"]) for row in rows}
        self.assertEqual(found, {(mode, lag, kind) for mode in MODES for lag in LAGS for kind in KINDS})
        self.assertTrue(all(float(row["ratio"]) >= 1 and int(row["driver"]) > 0 for row in rows), lines)

    def test_input_that_is_not_a_trace_is_refused(self):
        for text in ("", "a 1000 512\na 1000 512\n", "x 1000 512\n", "f 1000\n"):
            done = replay(text)
            self.assertEqual((done.returncode, done.stdout), (1, ""), text)
            self.assertEqual(done.stderr, "bench_traces: stdin is not a trace\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
