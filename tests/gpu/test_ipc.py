# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Tests of part_ipc.py on canned output, without a GPU."""

import os
import pathlib
import sys
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import part_ipc
import programs
from test_run import WithOut

LIBRARY = pathlib.Path("/lib/libgpupool.so")
RIGHT = 'NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n{"answer": "wrong: a 0"}\n'


def preloads(pair):
    """The libraries that the importer and the exporter preload; None: the exporter preloads the importer's, or none."""
    with mock.patch.dict(os.environ, clear=True):
        env = pair.environment("/run", {})
    return env.get("LD_PRELOAD"), env.get("APP_PEER_PRELOAD")


class ProbeTest(unittest.TestCase):
    def test_lines_are_parsed_into_questions_and_answers(self):
        answers = part_ipc.parse_probe("ipc.open: 0 same=0\nipc.garbage.bits: 1: 2\nnoise\n")
        self.assertEqual(answers, {"open": "0 same=0", "garbage.bits": "1: 2"})

    def test_a_different_answer_and_a_missing_answer_are_surprises(self):
        answers = dict(part_ipc.SIMULATED)
        self.assertEqual(part_ipc.surprises(answers), [])
        answers["self_open"] = "1"
        del answers["open"]
        self.assertEqual(len(part_ipc.surprises(answers)), 2)


class PairsTest(unittest.TestCase):
    def test_importer_and_exporter_preload_their_own_libraries(self):
        library = str(LIBRARY)
        both = part_ipc.Pair("both", LIBRARY, "split")
        importer = part_ipc.Pair("importer", LIBRARY, "split", exporter=False)
        exporter = part_ipc.Pair("exporter", LIBRARY, "split", importer=False)
        self.assertEqual(preloads(both), (library, None))
        self.assertEqual(preloads(importer), (library, ""))
        self.assertEqual(preloads(exporter), (None, library))

    def test_a_difference_names_the_scenario_and_its_first_different_line(self):
        raw = {("app", "a"): (0, "x: 1\ny: 2\n"), ("app", "b"): (0, "z: 1\n")}
        found = {("app", "a"): (0, "x: 1\ny: 3\n"), ("app", "b"): (0, "z: 1\n")}
        self.assertEqual(part_ipc.differences(raw, found, "both/split"), ["a: 'y: 3' for 'y: 2'"])

    def test_a_bad_exit_status_is_a_difference(self):
        raw = {("app", "a"): (0, "x: 1\n")}
        self.assertEqual(part_ipc.differences(raw, {("app", "a"): (124, "")}, "both/split"), ["a: status 124"])


class WorksTest(WithOut):
    def judge(self, status=0, text=RIGHT, expected="wrong: a 0", is_pooled=True, name="nccl"):
        (work,) = (work for work in part_ipc.WORKS if work.name == name)
        done = programs.Run(status, text, is_pooled)
        part_ipc.judge(self.results, work, programs.Config("split", LIBRARY), done, expected)
        return len(self.bad())

    def test_right_data_by_the_expected_transport_pass(self):
        self.assertEqual(self.judge(), 0)

    def test_a_bad_exit_status_fails(self):
        self.assertEqual(self.judge(status=1), 1)

    def test_an_answer_that_differs_from_raw_fails(self):
        self.assertEqual(self.judge(expected="refused: no"), 1)

    def test_a_run_without_a_control_socket_fails(self):
        self.assertEqual(self.judge(is_pooled=False), 1)

    def test_data_by_an_unexpected_transport_fail(self):
        self.assertEqual(self.judge(text=RIGHT.replace("P2P/IPC", "SHM/direct/direct")), 1)

    def test_a_missing_answer_fails_even_if_raw_had_none(self):
        self.assertEqual(self.judge(text="via P2P/IPC\n", expected=None), 2)

    def test_every_way_over_cumem_is_the_transport_cumem(self):
        self.assertEqual(self.judge(text=RIGHT.replace("P2P/IPC", "P2P/CUMEM/read"), name="nccl, cumem"), 0)
        self.assertEqual(self.judge(name="nccl, cumem"), 1)

    def test_mpi_must_use_cuda_ipc(self):
        answer = RIGHT.splitlines(keepends=True)[1]
        line = "[1.0] [vm:1 :0]   | 4284..inf | zero-copy read from remote | cuda_ipc/cuda |\n"
        self.assertEqual(self.judge(text=line + answer, name="mpi"), 0)
        self.assertEqual(self.judge(text=line.replace("cuda_ipc/cuda", "sysv/memory") + answer, name="mpi"), 1)

    def test_each_variant_comes_after_a_raw_run(self):
        rows = ((work, types.SimpleNamespace(auto=auto)) for work in part_ipc.WORKS for auto in (False, True))
        with mock.patch.dict(os.environ, GPUPOOL_TEST_MPI="/opt/openmpi"):
            for work, options in rows:
                seen = set()
                for config, variables in part_ipc.work_configs(work, LIBRARY, options):
                    if tuple(variables) not in seen:
                        self.assertIsNone(config.preload)
                    seen.add(tuple(variables))

    def test_a_program_that_cannot_run_is_skipped_with_the_reason(self):
        reasons = {}
        with mock.patch.dict(os.environ, clear=True), mock.patch.object(part_ipc, "count_gpus", return_value=1):
            with mock.patch.object(part_ipc.importlib.util, "find_spec", return_value=True):
                reasons = {work.name: part_ipc.reason_to_skip(work) for work in part_ipc.WORKS}
        self.assertEqual(reasons["torch"], None)
        self.assertEqual(reasons["nccl"], "it needs 2 GPUs")
        self.assertEqual(reasons["mpi"], "GPUPOOL_TEST_MPI names no Open MPI")


if __name__ == "__main__":
    unittest.main()
