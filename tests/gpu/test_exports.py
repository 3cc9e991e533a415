# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Tests of exports.py on canned output, without a GPU."""

import pathlib
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import exports
import programs
import results
from test_run import WithOut

RAW = "blocks/export of 3145728 bytes: 0\nblocks/export of 6291456 bytes: 0\nrefused/no bytes: 1\nsmall_blocks/export of 65536 bytes: 0\n"
SKIPPED = "blocks/skipped: the device exports no dma-buf\nparts/skipped: the device exports no dma-buf\n"
RAW_CONFIG, SPLIT = programs.Config("raw"), programs.Config("split", pathlib.Path("/lib/libgpupool.so"))


class ExportsTest(WithOut):
    def run_with(self, raw, pooled, status=0):
        def run_program(config, words, log, timeout):
            return programs.Run(0 if config is RAW_CONFIG else status, raw if config is RAW_CONFIG else pooled, True)

        with mock.patch.object(programs, "run_program", run_program):
            exports.run(self.results, self.out, pathlib.Path("diff_dmabuf"), [RAW_CONFIG, SPLIT])
        return self.bad()

    def test_equal_answers_pass(self):
        self.assertEqual(self.run_with(RAW, RAW), [])

    def test_an_export_that_succeeds_only_raw_fails(self):
        pooled = RAW.replace("6291456 bytes: 0", "6291456 bytes: 1")
        self.assertEqual(self.run_with(RAW, pooled), ["dma-buf, split: exports what raw exports"])

    def test_exports_of_small_blocks_are_only_counted(self):
        self.assertEqual(self.run_with(RAW, RAW.replace("65536 bytes: 0", "65536 bytes: 1")), [])

    def test_a_program_that_ends_early_fails(self):
        self.assertEqual(len(self.run_with(RAW, RAW.splitlines()[0])), 1)

    def test_a_bad_exit_status_fails(self):
        self.assertEqual(len(self.run_with(RAW, RAW, status=124)), 1)

    def test_a_device_that_claims_support_but_exports_nothing_fails(self):
        none = RAW.replace(": 0", ": 801")
        self.assertEqual(self.run_with(none, none), ["dma-buf, raw: exports ordinary blocks"])

    def test_the_part_reports_a_skip_without_device_support(self):
        self.assertEqual(self.run_with(SKIPPED, SKIPPED), [])
        rows = results.load(self.out, ["streams"])
        self.assertEqual([row["name"] for row in rows], ["dma-buf: skipped, the device exports none"])


if __name__ == "__main__":
    unittest.main()
