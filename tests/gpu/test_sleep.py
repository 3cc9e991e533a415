# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Usage: test_sleep.py LIBRARY SIMULATOR-DIRECTORY PROGRAM-DIRECTORY

Runs the launches of part_sleep.py on the simulated GPU. Their times say nothing there.
"""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import launches
import part_sleep
import programs
import results
from test_run import WithOut

LIBRARY, SIMULATOR, PROGRAMS = (pathlib.Path(word).resolve() for word in sys.argv[1:4])


class Launches(WithOut):
    def test_launches_run_in_all_ways(self):
        programs.BIN = PROGRAMS
        os.environ["LD_LIBRARY_PATH"] = str(SIMULATOR)
        os.environ["SIMGPU_STRICT"] = "1"
        with programs.private_dir() as directory:
            def start(config, words):
                return part_sleep.Program(config, words, self.out / "log.txt", {}, 60, directory)
            launches.check(self.results, LIBRARY, start, launches=20, rounds=2, visits=1, pairs=1, seconds=0)
        rows = results.load(self.out, ["streams"])
        self.assertTrue(rows[0]["ok"], rows)
        self.assertEqual(sum(row["type"] == "bar" for row in rows), 6)
        self.assertEqual(sum(row["type"] == "check" for row in rows), 3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
