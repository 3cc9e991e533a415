# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Tests of the runner on canned output of the programs, without a GPU."""

import contextlib
import io
import itertools
import json
import os
import pathlib
import random
import select
import socket
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ctl
import launches
import memory_watch
import part_async
import part_backends
import part_captures
import part_contexts
import part_debug
import part_devices
import part_documents
import part_frameworks
import part_host
import part_regions
import part_samples
import part_patterns
import part_python
import part_semantics
import part_sleep
import part_spill
import part_streams
import part_tools
import programs
import results
import run
import submissions
import turns

SUMMARY = {
    "mode": "fill", "bytes": "65536", "players": "2", "rounds": "2000", "reused": "1990",
    "inflight": "1900", "exposed": "1500", "wrong_rounds": "0", "wrong_exposed": "0",
    "wrong_bytes": "0", "wrong_reads": "0", "stray": "0", "oom": "0", "seconds": "2.5",
}  # fmt: skip


class WithOut(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.out = pathlib.Path(directory.name)
        self.printed = io.StringIO()
        redirect = contextlib.redirect_stdout(self.printed)
        redirect.__enter__()
        self.addCleanup(redirect.__exit__, None, None, None)
        self.results = results.Results(self.out, "streams")

    def bad(self):
        return [row["name"] for row in results.load(self.out, ["streams"]) if results.is_bad(row)]


class ResultsTest(WithOut):
    def test_each_kind_of_row_has_its_verdict(self):
        self.results.bar("under", 1.0, "ns", "<", 2)
        self.results.bar("at", 2.0, "ns", "<", 2)
        self.results.bar("unmeasured", None, "ns", "<", 2)
        self.results.check("right", True)
        self.results.check("wrong", False)
        self.results.note("value", 3)
        verdicts = [results.verdict(row) for row in results.load(self.out, ["streams"])]
        self.assertEqual(verdicts, ["ok", "MISSED", "MISSED", "ok", "FAILED", ""])

    def test_the_report_passes_only_if_every_part_ended_well(self):
        self.results.check("right", True)
        self.assertTrue(results.report(self.out, {"streams": 0})[1])
        lines, ok = results.report(self.out, {"streams": 124})
        self.assertFalse(ok)
        self.assertTrue(any("ran out of time" in line for line in lines))

    def test_a_report_without_rows_fails(self):
        self.assertFalse(results.report(self.out, {"streams": 0})[1])

    def test_failed_rows_are_shown_even_among_too_many_rows(self):
        self.results.check("the bad one", False)
        for i in range(100):
            self.results.check(f"good {i}", True)
        lines, ok = results.report(self.out, {"streams": 0})
        self.assertFalse(ok)
        self.assertLessEqual(len(lines), 58)
        self.assertTrue(any("the bad one" in line and "FAILED" in line for line in lines))
        self.assertIn("101 checks and bars, 1 failed", lines[-1])

    def test_results_json_holds_every_row(self):
        self.results.note("raw | a question", 1.5, "ns")
        self.results.check("right", True)
        results.report(self.out, {"streams": 0})
        document = json.loads((self.out / "results.json").read_text())
        self.assertEqual(document["schema"], results.SCHEMA)
        self.assertEqual([row["name"] for row in document["rows"]], ["raw | a question", "right"])

    def test_notes_of_several_configs_make_a_matrix(self):
        self.results.note("raw | pingpong", 45000.0)
        self.results.note("split | pingpong", 70.25)
        self.results.note("split | window", 80.0)
        lines = results.matrix(results.load(self.out, ["streams"]), lambda question: True)
        self.assertEqual(lines[0].split(), ["raw", "split"])
        self.assertEqual(lines[1].split(), ["pingpong", "45000", "70.25"])
        self.assertEqual(lines[2].split(), ["window", "-", "80"])

    def test_a_bundle_leaves_three_files(self):
        self.results.check("right", True)
        (self.out / "streams").mkdir()
        (self.out / "streams" / "a.txt").write_text("text")
        results.report(self.out, {"streams": 0})
        run.bundle(self.out)
        names = sorted(path.name for path in self.out.iterdir())
        self.assertEqual(names, ["details.tar.gz", "results.json", "tables.txt"])


class DebugTest(WithOut):
    def run_with(self, text, messages):
        def run_program(config, words, log, timeout, pass_fds=()):
            log.parent.mkdir(parents=True, exist_ok=True)
            log.with_suffix(".err").write_text("".join(line + "\n" for line in messages))
            return programs.Run(0, text, True)

        with mock.patch("programs.run_program", run_program):
            part_debug.check_wrong(self.results, self.out, pathlib.Path("library"))
            part_debug.check_innocent(self.results, self.out, pathlib.Path("library"))
        return self.bad()

    def test_a_wrong_program_needs_two_reports_of_the_right_kind(self):
        bad = self.run_with("", ["gpupool[7]: error: write past the end of 0x1 (5 bytes)", "gpupool[7]: error:   freed"] * 2)
        self.assertFalse([name for name in bad if "past-end" in name])
        self.assertEqual(sum("after-free" in name for name in bad), 3 * len(part_debug.KINDS))
        self.assertEqual(sum("correct program" in name for name in bad), 2 * len(part_debug.KINDS))

    def test_a_correct_program_that_gets_a_report_fails(self):
        bad = self.run_with("wrong words: 0\n", [])
        self.assertFalse([name for name in bad if "correct program" in name])
        self.assertEqual(sum(name.endswith("is reported") for name in bad), 6 * 2 + 8 * 2)
        self.assertEqual(sum("capture" in name for name in bad), len(part_debug.KINDS))


class BackendsTest(WithOut):
    """A fake of a program's run, with the given output and log."""

    ANSWERS = {"words": "wrong words: 0\n", "reuse": "loops: 200\n",
               "export": "legacy handle: 1\nhandle once more: 1\nfree: 0\n", "ends": "end: 0\n"}
    FACTS = {"reuse": "misses 1\n", "ends": "MiB missing after contexts 2\nMiB missing after resets 500\n"}

    def play(self, answers=None, facts=None, messages=part_backends.REFUSED):
        def run_program(config, words, log, timeout):
            scenario = words[4]
            log.with_suffix(".err").write_text(messages if scenario == "export" else "")
            words[5].write_text((self.FACTS | (facts or {})).get(scenario, ""))
            return programs.Run(0, (self.ANSWERS | (answers or {}))[scenario], bool(config.preload))

        with mock.patch("programs.run_program", run_program):
            for check in (part_backends.check_words, part_backends.check_reuse, part_backends.check_export,
                          part_backends.check_ends):
                check(self.results, self.out, pathlib.Path("library"))
        return self.bad()

    def test_expected_answers_pass_and_memory_left_by_a_reset_is_noted(self):
        self.assertEqual(self.play(), [])

    def test_each_unexpected_answer_of_a_backend_fails(self):
        for more, count in (({"answers": {"words": "wrong words: 1\n"}}, 8), ({"facts": {"reuse": "misses 200\n"}}, 2),
                            ({"answers": {"export": "legacy handle: 0\nhandle once more: 0\nfree: 0\n"}}, 2),
                            ({"messages": ""}, 2),
                            ({"facts": {"ends": "MiB missing after contexts 300\n"}}, 3)):
            before = len(self.bad())
            self.assertEqual(len(self.play(**more)) - before, count, more)


class RegionsTest(WithOut):
    """Fakes scenarios with the expected facts and lines, except for one."""

    def play(self, fact=None, status=0, text=None):
        def run_program(config, words, log, timeout):
            expected = part_regions.SCENARIOS[words[4]]
            facts = expected.facts | ({fact: 7} if fact in expected.facts else {})
            words[5].write_text("".join(f"{name} {value}\n" for name, value in facts.items()))
            log.with_suffix(".err").write_text("")
            return programs.Run(status, (expected.text or "") if text is None else text, bool(config.preload))

        with mock.patch("programs.run_program", run_program):
            for name in part_regions.CONFIGS:
                for scenario in part_regions.SCENARIOS:
                    part_regions.play(self.results, self.out, pathlib.Path("library"), name, scenario)
        return self.bad()

    def test_expected_scenarios_pass_and_each_unexpected_fact_text_or_status_fails(self):
        configs, scenarios = len(part_regions.CONFIGS), len(part_regions.SCENARIOS)
        for more, count in (({}, 0), ({"fact": "wrong words"}, 1), ({"fact": "total"}, 3), ({"text": "in b: 2\n"}, scenarios - 1),
                            ({"status": 1}, scenarios)):
            before = len(self.bad())
            self.assertEqual(len(self.play(**more)) - before, count * configs, more)


class ToolsTest(WithOut):
    """Fakes tools with the expected output, except for one run."""

    def play(self, wrong=None, change=None):
        def run_program(config, words, log, timeout, more=None):
            name = f"{config.name} {words[-1]}" if words[0] == "sanitizer" else config.name
            if words[0] == "sanitizer":
                is_found = words[-1] == "beyond" and config.name in part_tools.SEES_BLOCKS
                return programs.Run(change if name == wrong else part_tools.FOUND * is_found, "", True)
            numbers = {"answer": "1", "kernels": 90, "mallocs": 0 if config.name in ("split", "vmm") else 7, "frees": 7}
            return programs.Run(0, json.dumps(numbers | (change if name == wrong else {})), True)

        with mock.patch("programs.run_program", run_program), \
                mock.patch("part_tools.find_sanitizer", lambda: "sanitizer"), \
                mock.patch("importlib.util.find_spec", lambda name: True):
            part_tools.run_sanitizer(self.results, self.out, pathlib.Path("library"))
            part_tools.run_profiler(self.results, self.out, pathlib.Path("library"))
        return len(self.bad())

    def test_expected_answers_of_tools_pass_and_each_other_answer_fails(self):
        before = self.play()
        self.assertEqual(before, 0)
        for wrong, change, count in (("split within", 9, 1), ("split beyond", 9, 1), ("raw beyond", 0, 1),
                                     ("split", {"kernels": 89}, 1), ("vmm", {"answer": "2"}, 1),
                                     ("split, no runtime layer", {"frees": 6}, 1)):
            bad = self.play(wrong, change)
            self.assertEqual(bad - before, count, wrong)
            before = bad


class DocumentsTest(WithOut):
    BATCHES = "batches n=64 bytes=67108864 wrong=96 early_bytes={} peak_bytes={} ns={}\n"

    def play(self, wrong=""):
        def run_program(config, words, log, timeout):
            if words[0] == part_documents.PROGRAM:
                ns = 2 * 10**9 if config.name in ("raw", "none") else 10**9
                return programs.Run(0, self.BATCHES.format(3 << 26, 3 << 26, ns), bool(config.preload))
            walk = next(w for w in part_documents.walks.WALKS if w.command() == words and config.name in w.kinds
                        and w.environment(config.name) == config.variables)
            lines = walk.expected.replace("device 1 2147483648\n", "")
            lines = lines.replace("Effective", "Effective GPU memory usage: 0.25% (4.000 MiB/1.562 GiB)")
            return programs.Run(0, lines.replace(wrong, "?") if wrong else lines, True)

        library = pathlib.Path("library")
        with mock.patch("programs.run_program", run_program):
            part_documents.walk_all(self.results, self.out, library, 1)
            part_documents.run_batches(self.results, self.out, library)
        return self.bad()

    def test_walks_that_see_documented_behaviour_pass(self):
        self.assertEqual(self.play(), [])
        names = [row["name"] for row in results.load(self.out, ["streams"])]
        self.assertIn("simple: status", names)
        self.assertNotIn("none: queue_error SIMGPU", " ".join(names))

    def test_each_walk_that_sees_other_behaviour_fails(self):
        self.assertEqual(self.play("8192\n"), ["simple: status", "binned: status", "none: status"])

    def test_batches_that_take_more_memory_or_time_than_allowed_fail(self):
        raw = part_documents.walks.Batches(2, 2, 100)
        for early, most, ns, count in ((2, 2, 99, 0), (2, 4, 99, 1), (2, 2, 100, 1), (7, 7, 200, 2)):
            before = len(self.bad())
            done = programs.Run(0, self.BATCHES.format(early << 26, most << 26, ns), True)
            part_documents.judge_batches(self.results, "split", done, raw)
            self.assertEqual(len(self.bad()) - before, count)
        before = len(self.bad())
        self.assertIsNone(part_documents.judge_batches(self.results, "split", programs.Run(0, "", True), raw))
        self.assertEqual(len(self.bad()) - before, 1)


class RunTest(unittest.TestCase):
    def test_parts_are_chosen_by_number_or_name(self):
        self.assertEqual([run.part_name("1"), run.part_name("streams")], ["patterns", "streams"])
        for word in ["0", str(len(run.PARTS) + 1), "nothing", ""]:
            with self.assertRaises(SystemExit):
                run.part_name(word)

    def listed(self, *words, auto=False):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            run.step_list(types.SimpleNamespace(words=words, auto=auto))
        return printed.getvalue().split()

    def test_all_parts_that_can_run_with_auto_are_chosen_without_a_name(self):
        self.assertEqual(self.listed(), list(run.PARTS))
        self.assertEqual(self.listed(auto=True), list(run.AUTO_PARTS))
        self.assertEqual(self.listed("ipc", auto=True), ["ipc"])
        with self.assertRaisesRegex(SystemExit, "not for python"):
            self.listed("ipc", "python", auto=True)

    def test_auto_takes_the_place_of_the_pool_types(self):
        usual, auto = ([config.name for config in programs.pool_configs("a.so", types.SimpleNamespace(auto=is_auto))]
                       for is_auto in (False, True))
        self.assertEqual(usual, ["raw", *programs.KINDS, "split/orde", "split/comp"])
        self.assertEqual(auto, ["raw", "auto", "auto/orde", "auto/comp"])

    def test_without_a_gpu_the_runner_prints_a_line_and_exits_with_77(self):
        printed = io.StringIO()
        with mock.patch("programs.reason_to_skip", return_value="no driver"):
            with contextlib.redirect_stdout(printed), self.assertRaises(SystemExit) as end:
                run.step_check(None)
        self.assertEqual(end.exception.code, 77)
        self.assertIn("skipped: no driver", printed.getvalue())


class PatternsTest(WithOut):
    def take(self, kind, *lines):
        for line in lines:
            for word, pairs in programs.parse_lines(line):
                part_patterns.take_line(self.results, programs.Config(kind), word, pairs, "static")

    def test_a_fast_pair_keeps_the_bar_and_a_slow_one_misses_it(self):
        self.take("split", "pair pattern=pingpong bytes=512 ns=70.5")
        self.take("split", "pair pattern=window bytes=65536 ns=600.0")
        self.assertEqual(self.bad(), ["split, static: window 64 KiB"])

    def test_large_blocks_and_other_patterns_and_kinds_have_no_bar(self):
        self.take("split", "pair pattern=pingpong bytes=1073741824 ns=9000")
        self.take("split", "pair pattern=batch bytes=512 ns=9000")
        self.take("raw", "pair pattern=pingpong bytes=512 ns=45000")
        self.take("raw", "threads n=16 bytes=65536 ns=5000")
        self.assertEqual(self.bad(), [])

    def test_a_slow_loop_misses_its_bar(self):
        self.take("split", "loop bytes=1073741824 inside_ns=4.0 hoisted_ns=2.0 ratio=2.000")
        self.assertEqual(len(self.bad()), 1)


class StreamsTest(WithOut):
    def judge(self, config_name, **changes):
        library = None if config_name == "raw" else pathlib.Path("library")
        config = programs.Config(config_name, library)
        part_streams.judge(self.results, config, {**SUMMARY, **changes})
        return self.bad()

    def test_a_matrix_run_without_wrong_rounds_passes(self):
        self.assertEqual(self.judge("split/ordered"), [])
        self.assertEqual(self.judge("raw", reused="0", inflight="0", exposed="0"), [])

    def test_wrong_and_stray_rounds_fail(self):
        name = "split/ordered: fill 64 KiB: wrong rounds"
        self.assertEqual(self.judge("split/ordered", wrong_rounds="1"), [name])
        self.assertEqual(len(self.judge("split/ordered", stray="1")), 2)

    def test_a_matrix_run_without_reuse_fails(self):
        bad = self.judge("binned/ordered", exposed="0", inflight="0")
        self.assertEqual(bad, ["binned/ordered: fill 64 KiB: reused under unfinished work"])

    def test_mode_completed_must_reuse_but_never_under_work(self):
        self.assertEqual(self.judge("simple/completed", exposed="0", inflight="0"), [])
        bad = self.judge("simple/completed", exposed="0", inflight="0", reused="0")
        self.assertEqual(bad, ["simple/completed: fill 64 KiB: reused"])

    def test_failed_requests_of_a_matrix_run_are_reported(self):
        self.assertEqual(len(self.judge("split/ordered", oom="3")), 1)

    def test_a_defective_build_that_is_not_detected_fails(self):
        before = 0
        for name in part_streams.DEFECTIVE:
            self.assertEqual(len(self.judge(name, wrong_rounds="1400", wrong_exposed="1300")), before)
            self.assertEqual(len(self.judge(name, wrong_rounds="100", wrong_exposed="100")), before + 1)
            self.assertEqual(len(self.judge(name, exposed="0", wrong_exposed="0")), before + 2)
            before += 2


class SubmissionsTest(WithOut):
    ALL = [row for n in range(35) for row in (("nothing", 0), (f"family {n}", 1))]

    def judge(self, found, is_whole=True):
        submissions.judge(self.results, "split: submissions", found, is_whole)
        return len(self.bad())

    def test_a_fence_after_each_family_and_none_without_work_passes(self):
        self.assertEqual(self.judge(self.ALL), 0)

    def test_a_family_without_a_fence_fails(self):
        self.assertEqual(self.judge([*self.ALL, ("fill", 0)]), 1)

    def test_a_fence_without_work_fails(self):
        self.assertEqual(self.judge([*self.ALL, ("nothing", 1)]), 1)

    def test_a_program_that_did_not_end_or_printed_too_little_fails(self):
        self.assertEqual(self.judge(self.ALL, is_whole=False), 1)
        self.assertEqual(self.judge(self.ALL[:20]), 2)
        self.assertEqual(self.judge([]), 4)

    def test_each_build_of_the_program_is_checked(self):
        self.assertIn("submissions", programs.SUBMISSIONS)
        self.assertTrue((programs.SOURCES / "submissions.cu").exists())


def diff_row(config, **changes):
    row = {"program": "free", "config": config, "ok": True, "note": "", "answers": 7, "meant": 1}
    return {**row, "unexpected": [], "lines": [], "seconds": 1.0, **changes}


class SemanticsTest(WithOut):
    def test_equal_answers_of_the_runner_pass(self):
        part_semantics.take(self.results, [diff_row("raw"), diff_row("split"), diff_row("table")])
        self.assertEqual(self.bad(), [])
        rows = results.load(self.out, ["streams"])
        self.assertIn(("split | free", "7:1:0"), [(row["name"], row["value"]) for row in rows])

    def test_a_difference_and_an_unused_deviation_fail_and_are_shown_once(self):
        difference = {"ok": False, "unexpected": [["wrong/again", "1", "0"]]}
        rows = [diff_row("none", **difference), diff_row("split", **difference)]
        rows.append(diff_row("table", ok=False, lines=["split: no answer differs as this row says: a row"]))
        part_semantics.take(self.results, rows)
        self.assertEqual(len(self.bad()), 3)
        part_semantics.print_unexpected(rows)
        text = self.printed.getvalue()
        self.assertIn("free: wrong/again: none, split", text)
        self.assertIn("split: no answer differs as this row says: a row", text)

    def test_a_skipped_program_has_a_note(self):
        self.assertEqual(part_semantics.cell(diff_row("all", note="SKIP needs 2 devices")), "skipped")

    def test_a_skipped_program_neither_passes_nor_fails(self):
        skipped = diff_row("all", note="SKIP needs the simulator", answers=0)
        part_semantics.take(self.results, [diff_row("none"), skipped])
        self.assertEqual(self.bad(), [])

    def test_each_program_belongs_to_a_part(self):
        parts = {name: part_semantics.part_of(name) for name in ("free", "waits", "deadlock", "first")}
        parts |= {name: part_semantics.part_of(name) for name in ("deadlock_devices", "first_alone")}
        parts |= {name: part_semantics.part_of(name) for name in ("capture", "capture_ends", "unpooled")}
        parts |= {name: part_semantics.part_of(name) for name in ("fill", "fill_runtime", "runtime_static", "free_dlsym")}
        self.assertEqual(parts, {
            "capture": "captures", "capture_ends": "captures", "unpooled": "captures",
            "free": "semantics", "waits": "deadlocks", "deadlock": "deadlocks", "first": "devices",
            "deadlock_devices": "devices", "first_alone": "lives", "fill": "lives", "fill_runtime": "lives",
            "runtime_static": "ways", "free_dlsym": "ways",
        })  # fmt: skip

    def test_each_program_has_a_recipe(self):
        with mock.patch.object(part_semantics, "toolkit", return_value=pathlib.Path("/cuda")):
            sources = [part_semantics.DIFF / f"diff_{name}.c" for name in ("free", "host", "runtime")]
            names = [row[0] for source in sources for row in part_semantics.recipes(source)]
        self.assertEqual(names, ["free", "free_dlsym", "free_getproc", "free_perthread", "host",
                                 "runtime_static", "runtime_static_perthread",
                                 "runtime_shared", "runtime_shared_perthread"])


class CapturesTest(WithOut):
    def test_the_largest_number_of_addresses_counts_and_none_fails(self):
        self.assertIsNone(part_captures.addresses_of(self.out))
        (self.out / "a.facts").write_text("addresses after a race 9\nraces 99\n")
        (self.out / "b.facts").write_text("addresses after a reset 12\naddresses after an end 3\n")
        self.assertEqual(part_captures.addresses_of(self.out), 12)

    def test_each_graph_script_exists_and_runs_raw_first(self):
        for _, _, script, configs in part_captures.GRAPHS:
            self.assertTrue((programs.SOURCES / script).exists())
            self.assertEqual(configs[0], "raw")


class ContextsTest(unittest.TestCase):
    def test_answers_are_compared_group_by_group(self):
        expected = part_contexts.parse("# why\n== a\nx: 1\ny: 2\n== b\nz: 3\n")
        self.assertEqual(expected, {"a": ["x: 1", "y: 2"], "b": ["z: 3"]})
        found = {"a": ["x: 1", "y: 0"], "c": ["new: 1"]}
        changed = dict(part_contexts.differences(expected, found))
        self.assertEqual(changed, {"a": ["-y: 2", "+y: 0"], "b": ["-z: 3"]})
        self.assertEqual(list(part_contexts.differences(expected, expected)), [])

    def test_the_stored_answers_match_the_groups_of_the_programs(self):
        text = "".join((programs.SOURCES / f"{name}.c").read_text() for name in part_contexts.PROBES)
        groups = part_contexts.parse(part_contexts.EXPECTED.read_text())
        self.assertGreater(len(groups), 10)
        for group, lines in groups.items():
            self.assertIn(f'{{"{group}", ', text)
            self.assertTrue(lines)


class HostTest(unittest.TestCase):
    """The answers of a driver that agrees with all facts, and of one that does not."""

    @staticmethod
    def answers():
        found = {"unregistered.unregister": "713", "ends.unregister": "713", "ends.register_again": "0",
                 "copy.across_two_registrations": "1", "busy.allocate": "ms=1 is_over=0",
                 "busy.register": "ms=1 is_over=0"}
        flags = {f"allocated_{asked}": f"0 {2 | asked & 1}" for asked in range(4)} | {"registered_3": "0 3"}
        for name, answer in flags.items():
            found |= {f"{name}.attribute.{number}": "0 7" for number in part_host.ATTRIBUTES}
            found |= {f"{name}.flags": answer, f"{name}.device_pointer": "0 base+4096", f"{name}.unregister": "1",
                      f"{name}.free_inside": "1", f"{name}.free_as_device_memory": "1",
                      f"{name}.unregister_inside": "1", f"{name}.fork.child_sees": "23",
                      f"{name}.fork.parent_sees": "2 3 4", f"{name}.mapping.VmFlags": "rd wr sh"}
            again = "712" if name == "registered_3" else "1"
            found |= {f"{name}.register_again.flags_0": again, f"{name}.register_part": again}
        return found

    def test_a_driver_that_answers_as_expected_agrees_with_every_fact(self):
        self.assertEqual([fact for fact, is_true in part_host.facts(self.answers()) if not is_true], [])

    def test_a_missing_or_another_answer_is_a_disagreement(self):
        self.assertFalse(any(is_true for _, is_true in part_host.facts({})))
        for question, answer in (("registered_3.flags", "0 1"), ("registered_3.attribute.1", "1 0"),
                                 ("allocated_0.fork.child_sees", "-11"), ("busy.register", "ms=400 is_over=1")):
            found = [is_true for _, is_true in part_host.facts(self.answers() | {question: answer})]
            self.assertEqual(found.count(False), 1, question)

    def test_answers_are_read_by_question(self):
        text = "host.a.flags: 0 3\nhost.a.mapping.VmFlags: rd wr\nother: 1\n"
        self.assertEqual(part_host.parse(text), {"a.flags": "0 3", "a.mapping.VmFlags": "rd wr"})
        self.assertEqual(part_host.flags_of(part_host.parse(text), "a"), 3)
        self.assertIsNone(part_host.flags_of({"a.flags": "1 0"}, "a"))


class DevicesTest(WithOut):
    TEXT = """copied/wrong words: 16384, handed out early: 3
both_ways/wrong words: 0, handed out early: 2
imported/wrong words: 5
pinned/wrong words: 0, handed out early: 0
copied_late/wrong words: 0, handed out early: 0
"""

    def judge(self, status, text):
        config = programs.Config("alone/split")
        part_devices.judge_alone(self.results, config, "first", status, text)
        return self.bad()

    def test_a_defect_that_shows_in_all_scenarios_passes(self):
        self.assertEqual(self.judge(0, self.TEXT), [])

    def test_a_scenario_in_which_the_defect_does_not_show_fails(self):
        text = self.TEXT + "filled/wrong words: 0, handed out early: 0\n"
        self.assertEqual(self.judge(0, text), ["alone/split: first: the defect is found"])

    def test_early_blocks_without_wrong_words_fail(self):
        self.assertEqual(len(self.judge(0, "both_ways/wrong words: 0, handed out early: 2\n")), 1)

    def test_a_program_without_output_or_with_a_bad_status_fails(self):
        self.assertEqual(len(self.judge(0, "")), 2)
        self.assertEqual(len(self.judge(124, self.TEXT)), 3)


class PythonTest(WithOut):
    def outcome(self, **changes):
        fields = {"ms": 10.0, "answer": "1.5", "own_peak": None, "outside_peak": 900 << 20}
        fields |= {"outside_end": 900 << 20, "pool_peak": None, "pool_total": None}
        return part_python.Outcome(**{**fields, **changes})

    def judge(self, own=None, pool=None):
        own = {"own_peak": 400 << 20, **(own or {})}
        pool = {"pool_peak": 400 << 20, "pool_total": 300 << 20, **(pool or {})}
        outcomes = {"own": [self.outcome(**own)], "gpupool": [self.outcome(**pool)]}
        part_python.judge(self.results, part_python.WORKS[0], outcomes)
        return self.bad()

    def test_equal_runs_pass_every_bar(self):
        self.assertEqual(self.judge(), [])

    def test_each_difference_between_runs_fails_its_own_row(self):
        for change, row in [
            ({"ms": 11.1}, "torch: time of a step, gpupool over own pool"),
            ({"pool_peak": 501 << 20}, "torch: peak memory, gpupool over own pool"),
            ({"answer": "1.6"}, "torch: the same answer in every configuration"),
            ({"pool_total": 901 << 20}, "torch: total_bytes is at most the memory in use on the device"),
        ]:
            self.assertNotIn(row, self.bad())
            self.assertIn(row, self.judge(pool=change))

    def test_a_run_that_failed_passes_no_bar(self):
        part_python.judge(self.results, part_python.WORKS[0], {})
        self.assertIn("torch: time of a step, gpupool over own pool", self.bad())


class FrameworksTest(WithOut):
    def outcome(self, answer="7", hits=9):
        return part_frameworks.Outcome(2.0, answer, 5 << 20, hits, 1, {"ms": [2.0], "answer": answer, "kept": 3})

    def play(self, start, seconds=60, **more):
        framework = part_frameworks.Framework("Any", ["/bin/any"], 2, **more)
        runs = part_frameworks.Runs(self.results, framework, start)
        part_frameworks.collect([runs], 1.0, part_frameworks.Clock(seconds))
        part_frameworks.judge(self.results, framework, runs.outcomes)
        return {row["name"]: row.get("value") for row in results.load(self.out, ["streams"])}

    def test_each_way_has_its_command(self):
        framework = part_frameworks.Framework("Any", ["/a"], 1, off_words=["/b", "x"])
        commands = {way.name: part_frameworks.command_of(framework, way, "run", "/lib") for way in part_frameworks.WAYS}
        self.assertEqual(commands, {
            "raw": ["/a"],
            "split below": ["run", "--summary", "--pool=split", "--library=/lib", "/a"],
            "vmm below": ["run", "--summary", "--pool=vmm", "--library=/lib", "/a"],
            "split": ["run", "--summary", "--pool=split", "--library=/lib", "--own-pools=off", "/b", "x"],
            "vmm": ["run", "--summary", "--pool=vmm", "--library=/lib", "--own-pools=off", "/b", "x"],
            "cudaMalloc": ["run", "-q", "--enable=off", "--library=/lib", "--own-pools=off", "/b", "x"],
        })

    def test_equal_answers_of_all_ways_pass(self):
        ways = []

        def start(framework, way, seconds):
            del framework, seconds
            ways.append(way.name)
            return self.outcome()

        rows = self.play(start)
        names = [way.name for way in part_frameworks.WAYS]
        self.assertEqual(ways, [*names, *(name for name in names if name != "cudaMalloc")])
        self.assertEqual(self.bad(), [])
        self.assertEqual((rows["vmm | Any runs"], rows["vmm | Any time relative to raw"]), (2, 1.0))
        self.assertEqual((rows["vmm | Any peak on the device MiB"], rows["vmm | Any allocations served"]), (5, 10))
        self.assertEqual(rows["vmm | Any kept"], 3)

    def test_another_answer_and_an_absent_gpupool_fail(self):
        self.play(lambda framework, way, seconds: self.outcome("8" if way.name == "vmm" else "7"))
        self.assertEqual(self.bad(), ["Any: the same answer in every way"])
        self.play(lambda framework, way, seconds: self.outcome(hits=None))
        self.assertIn("Any, split: gpupool was there", self.bad())

    def test_a_failed_way_runs_once_and_fails_unless_it_may(self):
        def start(framework, way, seconds):
            del framework, seconds
            if way.name == "split":
                raise programs.Trouble("CUDA error")
            return self.outcome()

        rows = self.play(start, may_fail=("split",))
        self.assertEqual(self.bad(), [])
        self.assertEqual(rows["Any, split: run 1 failed"], "CUDA error")
        rows = self.play(start)
        self.assertEqual(self.bad(), ["Any, split: run 1"])
        self.assertNotIn("split | Any runs", rows)

    def test_a_table_has_a_line_for_each_framework_that_ran(self):
        def start(framework, way, seconds):
            del framework, seconds
            if way.name == "split":
                raise programs.Trouble("CUDA error")
            return part_frameworks.Outcome(3.0 if way.name == "vmm" else 2.0, "7", 5 << 20, 1, 1, {})

        self.play(start, may_fail=("split",))
        there = [part_frameworks.Framework(name, ["/bin/any"], 2) for name in ("Other", "Any")]
        with mock.patch("part_frameworks.frameworks", return_value=there):
            head, rows = part_frameworks.table(results.load(self.out, ["streams"]))
        self.assertEqual(head[:3], ["program", "without gpupool", "on, above `split`"])
        self.assertEqual(rows, [["Any", "1.00, 5 MiB", "1.00, 5 MiB", "1.00, 5 MiB", "fails", "1.50, 5 MiB", "1.00, 5 MiB",
                                 "1 to 2"]])

    def test_ways_for_which_there_is_no_time_are_named(self):
        rows = self.play(lambda *_: self.outcome(), seconds=0)
        self.assertEqual(rows["vmm | Any runs"], "no time")
        self.assertEqual(self.bad(), ["Any: the same answer in every way"])

    def test_a_framework_that_is_not_there_is_named_and_passes_nothing(self):
        absent = [part_frameworks.Framework("A", [sys.executable], 1, ("no_such_module",)),
                  part_frameworks.Framework("B", [str(self.out / "no_such_program")], 1),
                  part_frameworks.Framework("C", [sys.executable], 1, ("no_such_package.module",))]
        with mock.patch("programs.preload_library", return_value="/lib"), \
                mock.patch("part_frameworks.find_gpupool_run", return_value="run"):
            part_frameworks.run(self.results, self.out, types.SimpleNamespace(scale=1.0), lambda: absent)
        rows = results.load(self.out, ["streams"])
        self.assertEqual([row["name"] for row in rows], [
            "A: not there: this machine lacks the Python package no_such_module",
            "B: not there: this machine lacks no_such_program",
            "C: not there: this machine lacks the Python package no_such_package.module",
        ])
        self.assertEqual({row["type"] for row in rows}, {"note"})

    def test_a_program_starts_when_the_memory_of_the_one_before_is_free(self):
        values = [100 << 20, 900 << 20, 800 << 20, 90 << 20]
        reader = types.SimpleNamespace(read=lambda: values.pop(0))
        part_frameworks.Idle(reader).wait()
        self.assertEqual(values, [])
        stuck = iter([100 << 20])
        part_frameworks.Idle(types.SimpleNamespace(read=lambda: next(stuck, 900 << 20)), 0).wait()
        part_frameworks.Idle(None).wait()

    def run_python(self, text, seconds=60):
        log = self.out / "log.txt"
        return part_frameworks.run_once([sys.executable, "-c", text], part_frameworks.base_environment(self.out), log, seconds)

    def test_a_program_waits_until_it_has_been_observed(self):
        text = "print('starting', flush=True); print('{\"ms\": [3, 1, 2], \"answer\": \"7\"}', flush=True); input()"
        outcome = self.run_python(text)
        self.assertEqual((outcome.ms, outcome.answer, outcome.hits), (2, "7", None))

    def test_a_program_that_fails_or_hangs_is_reported_with_its_last_error(self):
        with self.assertRaisesRegex(programs.Trouble, "^ValueError: of the program$"):
            self.run_python("raise ValueError('of the program')")
        with self.assertRaisesRegex(programs.Trouble, "^no result within 0 s$"):
            self.run_python("import time; time.sleep(60)", 0.2)
        with self.assertRaisesRegex(programs.Trouble, "^exit status 3: "):
            self.run_python("print('{\"ms\": [1], \"answer\": \"7\"}', flush=True); raise SystemExit(3)")


class SocketTest(unittest.TestCase):
    def test_a_process_reports_its_devices_over_the_socket(self):
        with programs.private_dir() as directory:
            server = socket.socket(socket.AF_UNIX)
            self.addCleanup(server.close)
            server.bind(f"{directory}/77.123.sock")
            server.listen()
            devices = [{"peak_total_bytes": 5}, {"peak_total_bytes": 6}, {}]

            def serve():
                connection, _ = server.accept()
                with connection:
                    request = connection.makefile("rb").readline().decode()
                    answer = {"schema": "x/1", "devices": devices, "request": request}
                    connection.sendall(json.dumps(answer).encode() + b"\n")

            thread = threading.Thread(target=serve)
            thread.start()
            self.assertIsNone(ctl.ask_process(directory, 7, "status"))
            found = ctl.ask_process(directory, 77, "status")
            thread.join()
        self.assertEqual(found["request"], "status\n")
        self.assertEqual(ctl.device_sum(found, "peak_total_bytes"), 11)


class DefectTest(unittest.TestCase):
    def test_each_defect_compiles_outside_of_the_tree(self):
        defects = sorted(path.stem for path in (programs.ROOT / "tests" / "broken").glob("*.h"))
        self.assertIn("reuse", defects)
        with tempfile.TemporaryDirectory() as directory:
            (pathlib.Path(directory) / "probe.c").write_text("int main(void) { return 0; }\n")
            for defect in defects:
                command = ["cc", "-std=gnu11", "-D_GNU_SOURCE", *programs.defect_arguments(defect), "-fsyntax-only", "probe.c"]
                self.assertEqual(subprocess.run(command, cwd=directory, check=False).returncode, 0, defect)


class SamplesTest(WithOut):
    TEXT = "\nProcessing 0x7f12a0 in 1.5e-3 s\n\nTest passed on 2 devices\n"

    def judged(self, more=(), **found):
        """The failed checks. found: the run of each configuration that does not end as the raw ones."""
        names = [part_samples.RAW, part_samples.RAW_AGAIN, *part_samples.KINDS]
        good = programs.Run(0, self.TEXT, True)
        part_samples.judge(self.results, part_samples.Sample("some", *more), {**dict.fromkeys(names, good), **found})
        return self.bad()

    def test_lines_are_compared_without_numbers_and_in_any_order(self):
        text = "Test passed on 1 devices\n\nProcessing 0x99 in 12 s\n"
        self.assertEqual(self.judged(split=programs.Run(0, text, True)), [])

    def test_another_line_a_missing_line_or_another_status_fails(self):
        for run_of_vmm in [programs.Run(0, self.TEXT.replace("passed", "failed"), True),
                           programs.Run(0, "Test passed on 2 devices\n", True),
                           programs.Run(0, self.TEXT + "Test passed on 2 devices\n", True),
                           programs.Run(0, "", True), programs.Run(0, "\n" + self.TEXT.replace("passed", "failed"), True),
                           programs.Run(1, self.TEXT, True), programs.Run(124, "", True)]:
            self.results.path.write_text("")
            self.assertEqual(self.judged(vmm=run_of_vmm), ["some, vmm"])

    def test_a_run_that_is_not_under_gpupool_fails_unless_the_sample_allocates_nothing(self):
        run_of_none = programs.Run(0, self.TEXT, False)
        self.assertEqual(self.judged(none=run_of_none), ["some, none"])
        self.results.path.write_text("")
        self.assertEqual(self.judged((1, (), None, False, False), none=run_of_none), [])

    def test_a_folder_without_samples_is_refused(self):
        with mock.patch.dict(os.environ, {"GPUPOOL_TEST_SAMPLES": str(self.out)}):
            with self.assertRaisesRegex(programs.Trouble, "has no folder Samples"):
                part_samples.build()

    def test_a_sample_that_fails_raw_is_skipped_visibly(self):
        for status, why in ((2, "needs something"), (1, "raw status 1")):
            self.assertEqual(self.judged(raw=programs.Run(status, "", False)), [])
            self.assertIn(why, results.load(self.out, ["streams"])[-1]["name"])

    def test_if_raw_runs_print_different_lines_only_the_status_counts(self):
        again = {part_samples.RAW_AGAIN: programs.Run(0, "other\n", False)}
        self.assertEqual(self.judged(**again, split=programs.Run(0, "third\n", True)), [])
        self.results.path.write_text("")
        self.assertEqual(self.judged(**again, split=programs.Run(3, "third\n", True)), ["some, split"])
        self.results.path.write_text("")
        is_random = (1, (), None, False, True, True)
        self.assertEqual(self.judged(is_random, split=programs.Run(0, "third\n", True)), [])


class ProgramTest(WithOut):
    def test_a_program_is_preloaded_only_in_pool_configurations(self):
        words = ["/bin/sh", "-c", "echo preload=$LD_PRELOAD pool=$GPUPOOL_POOL; exit 3"]
        with mock.patch.dict("os.environ", {"GPUPOOL_POOL": "from outside"}):
            done = programs.run_program(programs.Config("raw"), words, self.out / "raw.txt", 10)
        self.assertEqual((done.status, done.text, done.is_pooled), (3, "preload= pool=\n", False))
        config = programs.Config("split", pathlib.Path("/nowhere.so"), {"GPUPOOL_POOL": "split"})
        done = programs.run_program(config, words, self.out / "split.txt", 10)
        self.assertEqual(done.text, "preload=/nowhere.so pool=split\n")

    def test_a_program_that_hangs_is_killed(self):
        words = ["/bin/sh", "-c", "kill -STOP $$"]
        done = programs.run_program(programs.Config("raw"), words, self.out / "a.txt", 0.2)
        self.assertEqual(done.status, 124)

    def test_a_socket_in_the_directory_is_detected(self):
        watch = programs.SocketWatch(str(self.out))
        watch.start()
        (self.out / "1.2.sock").touch()
        watch.join(10)
        self.assertTrue(watch.is_seen)


class MemoryTest(unittest.TestCase):
    def test_the_peak_is_relative_to_memory_in_use_before(self):
        values = iter([100, 130, 180])
        seen = threading.Event()

        def read():
            value = next(values, None)
            if value is None:
                seen.set()
            return value if value is not None else 120

        reader = types.SimpleNamespace(read=read)
        with mock.patch("memory_watch.find_reader", return_value=reader):
            with memory_watch.MemoryWatch() as watch:
                self.assertTrue(seen.wait(10))
        self.assertEqual(watch.peak(), 80)

    def test_the_peak_is_none_if_memory_in_use_cannot_be_read(self):
        with mock.patch("memory_watch.find_reader", return_value=None):
            with memory_watch.MemoryWatch() as watch:
                self.assertIsNone(watch.now())
        self.assertIsNone(watch.peak())


class SaveTest(WithOut):
    def test_results_of_finished_parts_are_saved_with_their_command(self):
        self.results.check("first", True)
        options = types.SimpleNamespace(out=self.out, save=self.out / "saved", scale=0.01, auto=True)
        run.save(options, {"streams": 0, "contexts": 0, "python": 124})
        (path,) = (self.out / "saved").iterdir()
        found = json.loads(path.read_text())
        self.assertEqual((path.name, found["result"]), ("streams.json", "1 of 1 checks"))
        self.assertEqual(found["runs"][0]["command"], "scripts/gpu-test --part streams --scale 0.01 --auto")
        self.assertIn("contexts has no results to save", self.printed.getvalue())

    def test_results_of_frameworks_are_saved_with_their_versions(self):
        found = results.Results(self.out, "frameworks")
        there = part_frameworks.Framework("Any", ["/bin/any"], 1, package="any")
        outcome = part_frameworks.Outcome(2.0, "7", None, None, None, {})
        with mock.patch("importlib.metadata.version", return_value="1.2"):
            part_frameworks.judge(found, there, {"raw": [outcome]})
        part_frameworks.judge(found, part_frameworks.Framework("Other", ["/bin/any"], 1, package="no-such-package"),
                              {"raw": [outcome]})
        options = types.SimpleNamespace(out=self.out, save=self.out / "saved", scale=1, auto=False)
        with mock.patch("result_file.describe_run", return_value={"software": "driver 1"}):
            run.save(options, {"frameworks": 0})
        saved = json.loads((self.out / "saved" / "frameworks.json").read_text())
        self.assertEqual(saved["runs"], [{"software": "driver 1, Any 1.2"}])


class Sleep(WithOut):
    ROUND = ("round {}: asleep in {} s, {} GiB/s; free memory +16.01 GiB; awake in 0.330 s, 48.5 GiB/s; "
             "resident -2.0 MiB\n")

    def play(self, text, status=0):
        return mock.patch.object(programs, "run_program", return_value=programs.Run(status, text, True))

    def names(self, is_ok):
        return [row["name"] for row in results.load(self.out, ["streams"]) if row.get("ok") is is_ok]

    def test_times_of_kept_memory_are_those_of_the_later_rounds(self):
        text = self.ROUND.format(0, "1.400", "11.4") + self.ROUND.format(1, "0.336", "47.6")
        with self.play(text):
            part_sleep.check_times(self.results, pathlib.Path("lib"), self.out, 16 << 10, True, 25)
        values = {row["name"]: row["value"] for row in results.load(self.out, ["streams"])}
        self.assertEqual(values["16 GiB, kept: first sleep"], 11.4)
        self.assertEqual(values["16 GiB, kept: sleep with pinned memory"], 47.6)
        self.assertEqual(self.names(False), [])

    def test_a_slow_sleep_misses_its_bar_and_a_missing_round_fails(self):
        with self.play(self.ROUND.format(0, "8.000", "2.0")):
            part_sleep.check_times(self.results, pathlib.Path("lib"), self.out, 16 << 10, False, 25)
        self.assertEqual(self.names(False), ["16 GiB, cold: first sleep"])
        with self.play("", 124):
            part_sleep.check_times(self.results, pathlib.Path("lib"), self.out, 16 << 10, False, 25)
        self.assertIn("16 GiB, cold: content is right", self.names(False))

    def test_a_wrong_graph_fails(self):
        with self.play("content after sleeps   right\na graph after sleeps   WRONG\n1 wrong\n", 1):
            part_sleep.check_programs(self.results, pathlib.Path("lib"), self.out, 256)
        wrong = [f"{name}: {what}" for name in ("sleep_turns", "sleep_probe") for what in ("a graph after sleeps", "finished")]
        self.assertEqual(self.names(False), wrong)

    def test_a_program_that_did_not_sleep_or_has_another_result_fails(self):
        work = part_sleep.Work("static", ["sleep_steps"])
        for sleeps, digest, wrong in (([5, 5], "a", 0), ([5, 0], "a", 1), ([], "a", 1), ([5], "b", 1), ([5], None, 1)):
            self.results = results.Results(self.out, "streams")
            outcomes = {True: (digest, sleeps, "why"), False: ("a", [], "")}
            with mock.patch.object(part_sleep, "works", return_value=[work]), mock.patch.object(
                    part_sleep, "run_work", side_effect=lambda w, c, log, is_slept, o=outcomes: o[is_slept]):
                part_sleep.check_works(self.results, None, self.out, 2)
            self.assertEqual(len(self.names(False)), wrong, (sleeps, digest))

    def test_a_program_that_cannot_run_is_left_out(self):
        work = part_sleep.Work("nodes", ["sleep_steps", "conditional", 100])
        with mock.patch.object(part_sleep, "works", return_value=[work]), mock.patch.object(
                part_sleep, "run_work", return_value=("skip: conditional nodes need CUDA 12.4", [], "")):
            part_sleep.check_works(self.results, None, self.out, 2)
        self.assertEqual(self.names(False), [])
        notes = {row["name"]: row["value"] for row in results.load(self.out, ["streams"])}
        self.assertEqual(notes["nodes: left out"], "conditional nodes need CUDA 12.4")

    def test_a_deep_sleep_is_left_out_without_gpupool_stat(self):
        with mock.patch.object(programs, "stat_program", return_value=None):
            part_sleep.check_deep(self.results, pathlib.Path("lib"), self.out, 64, 5)
        rows = results.load(self.out, ["streams"])
        self.assertEqual([(row["type"], row["value"]) for row in rows], [("note", "Jansson is missing")])


class Launches(WithOut):
    """The arithmetic of launches.py, with programs whose times are known."""

    def rounds(self, hooks, jitters=(1.0, 0.97, 1.03, 1.01, 0.99)):
        """Rounds in which the hook of a way takes hooks[name] times as long as the driver. jitters: of the processes of a way."""
        def cost(name, nth):
            ns = 4000.0 * jitters[(nth + launches.WAYS.index(name)) % len(jitters)]
            return launches.Cost(ns * hooks.get(name, 1), ns, hooks.get(name, 1))
        return [{how: {name: cost(name, nth) for name in launches.WAYS} for how in launches.HOWS} for nth in range(len(jitters))]

    def start(self, order, answers, first=None):
        """A function that starts programs. answers: (name, line) -> the time of its next turn; first: its first lines."""
        @contextlib.contextmanager
        def started(name):
            order.append(("start", name))
            lines = list(first or [launches.UNHOOKED if name == launches.RAW else launches.HOOKED, "content   right"])

            def tell(line):
                order.append((line, name))
                lines.append(f"launch {answers(name, line)}")
            yield types.SimpleNamespace(tell=tell, line=lambda: lines.pop(0))
        return started

    def judged(self, rounds):
        launches.judge(self.results, rounds, 16)
        return {row["name"]: row["value"] for row in results.load(self.out, ["streams"])}

    def test_a_way_is_the_median_of_its_processes_and_its_spread_is_shown(self):
        rounds = self.rounds({})
        rounds[0]["back"]["vmm"] = launches.Cost(9000.0, 4000.0, 2.25)  # one process does not count for more than its place
        values = self.judged(rounds)
        self.assertEqual(values["launches: processes of each way"], 5)
        self.assertEqual(values["launches: pairs of turns of a process"], 16)
        self.assertEqual(values["launches back to back, vmm"], "4.000 (3.880 to 9.000)")
        self.assertEqual(values["launches direct back to back, vmm"], "4.000 (3.880 to 4.040)")
        self.assertEqual(values["launches each with a wait, raw"], "4.000 (3.880 to 4.120)")
        self.assertEqual(values["launches back to back: vmm, hook over driver"], 1)

    def test_a_hook_of_half_a_per_cent_is_shown_to_cost_at_most_one_though_processes_differ_by_more(self):
        values = self.judged(self.rounds({launches.GATED: 1.005}))
        self.assertAlmostEqual(values["launches back to back: vmm, sleep, hook over driver"], 1.005)
        self.assertEqual(values["launches back to back: vmm, sleep, hook over driver, 95%"], "1.0050 to 1.0050; at most 1%: shown")
        self.assertIn("1.0050 (0.9", values["launches back to back: processes of vmm, sleep over vmm, 95%"])
        self.assertEqual(self.bad(), [])

    def test_a_hook_of_three_per_cent_misses_the_bars_of_its_way_only(self):
        self.judged(self.rounds({launches.GATED: 1.03}))
        self.assertEqual(self.bad(), [f"launches {what}: vmm, sleep, hook over driver" for what in launches.HOWS.values()])

    def test_a_way_that_is_slower_without_its_hook_misses_no_bar(self):
        rounds = self.rounds({})
        for one in rounds:
            one["back"]["vmm"] = launches.Cost(5000.0, 5000.0, 1.0)
        self.judged(rounds)
        self.assertEqual(self.bad(), [])

    def test_a_control_that_is_not_1_fails(self):
        self.judged(self.rounds({launches.RAW: 0.99}))
        self.assertEqual(self.bad(), [f"launches {what}: the control is 1" for what in launches.HOWS.values()])

    def test_an_interval_shows_denies_or_leaves_open(self):
        self.assertEqual(launches.saying(0.99, 1.01), "at most 1%: shown")
        self.assertEqual(launches.saying(1.011, 1.02), "at most 1%: denied")
        self.assertEqual(launches.saying(0.99, 1.02), "at most 1%: neither shown nor denied")

    def test_an_interval_of_the_control_includes_1_or_is_near_it(self):
        self.assertTrue(launches.is_one(0.98, 1.02))
        self.assertTrue(launches.is_one(1.001, 1.004))
        self.assertFalse(launches.is_one(1.001, 1.006))
        self.assertFalse(launches.is_one(0.994, 0.999))

    def test_an_interval_is_that_of_rounds_drawn_again(self):
        even = self.rounds({"vmm": 1.02}, [1.0] * 9)
        uneven = [*self.rounds({"vmm": 0.98}, [1.0] * 4), *even[4:]]
        for figure in (launches.within("back", "vmm"), launches.across("back", "vmm", "raw")):
            self.assertEqual([round(bound, 9) for bound in launches.interval_of(even, figure)], [1.02, 1.02])
            low, high = launches.interval_of(uneven, figure)
            self.assertEqual((round(low, 9), round(high, 9)), (0.98, 1.02))
            self.assertEqual(launches.interval_of(uneven, figure), (low, high))  # the same draws again

    def test_each_round_starts_new_processes_in_an_order_that_the_seed_gives(self):
        def order_of(seed):
            order = []
            found = launches.take_rounds(launches.WAYS, self.start(order, lambda name, line: 5.0), 3, 2, 1, 0, seed)
            return order, found
        order, found = order_of(1)
        self.assertEqual(order, order_of(1)[0])
        self.assertNotEqual(order, order_of(2)[0])
        self.assertEqual(len(found), 3)
        self.assertEqual(sorted(name for what, name in order if what == "start"), sorted(3 * launches.WAYS))
        for how in launches.HOWS:
            visits = [name for what, name in order if what.endswith(how)][::3]
            self.assertEqual([sorted(visits[at:at + 4]) for at in range(0, 24, 4)], 6 * [sorted(launches.WAYS)])

    def test_a_pair_is_two_neighbouring_turns_one_of_each_function_in_either_order(self):
        order = []
        with self.start(order, lambda name, line: 5.0)("raw") as program:
            launches.begin("raw", program)
            launches.take_pairs("raw", program, "back", 20, random.Random(1))
        lines = [line for line, _ in order[2:]]  # after the start, and the turn that does not count
        pairs = [tuple(lines[at:at + 2]) for at in range(0, 40, 2)]
        self.assertEqual(set(pairs), {("back", "direct back"), ("direct back", "back")})

    def test_a_process_is_the_median_ratio_of_its_pairs_though_the_machine_drifts(self):
        clock = itertools.count()

        def drifting(name, line):
            return (1000.0 + 100 * (next(clock) // 3)) * (1 if line.startswith("direct") else 1.02)
        one = launches.take_round(["raw"], self.start([], drifting), 5, 1, random.Random(1))
        for how in launches.HOWS:
            self.assertAlmostEqual(one[how]["raw"].ratio, 1.02)

    def test_the_first_turn_of_a_visit_does_not_count(self):
        times = iter([100.0, 2.0, 2.0, 100.0, 3.0, 3.0])  # back and wait
        one = launches.take_round(["raw"], self.start([], lambda name, line: next(times)), 1, 1, random.Random(1))
        self.assertEqual(one, {"back": {"raw": launches.Cost(2, 2, 1)}, "wait": {"raw": launches.Cost(3, 3, 1)}})

    def test_no_round_begins_once_the_time_is_up_but_some_are_taken_in_any_case(self):
        order = []
        found = launches.take_rounds(["raw"], self.start(order, lambda name, line: 5.0), 40, 1, 1, 75, 1,
                                     lambda: 10 * order.count(("start", "raw")))
        self.assertEqual(len(found), 8)
        found = launches.take_rounds(["raw"], self.start([], lambda name, line: 5.0), 40, 1, 1, 0, 1)
        self.assertEqual(len(found), launches.ROUNDS_MIN)

    def test_a_program_that_fails_ends_the_measurement_with_its_last_line(self):
        right = "content   right"
        for name, first, answer, why in (
                ("raw", [launches.UNHOOKED, right], "", "raw: launch"),
                ("raw", [""], 5.0, "raw: ended"),
                ("raw", [launches.UNHOOKED, "content   WRONG"], 5.0, "raw: content   WRONG"),
                ("raw", [launches.HOOKED, right], 5.0, f"raw: {launches.HOOKED}"),
                ("vmm", [launches.UNHOOKED, right], 5.0, "vmm: hooked none"),
                ("vmm", ["hooked cuLaunchKernel", right], 5.0, "vmm: hooked cuLaunchKernel")):
            with self.subTest(why):
                start = self.start([], lambda name, line, answer=answer: answer, first)
                with self.assertRaises(launches.Failed) as failed:
                    launches.take_rounds([name], start, 2, 1, 1, 0, 1)
                self.assertEqual(str(failed.exception).strip(), why)

    def test_a_measurement_that_fails_is_a_failed_check(self):
        start = self.start([], None, ["hooked none"])
        launches.check(self.results, pathlib.Path("lib"), lambda config, words: start(config.name))
        rows = results.load(self.out, ["streams"])
        self.assertEqual([(row["ok"], "hooked none" in row["value"]) for row in rows], [(False, True)])


class Turns(WithOut):
    """The arithmetic of turns.py: the first process makes 10 steps a second alone, and the second one 20."""

    PLAN = turns.Plan(40 << 10, 56 << 10, 30, 2, 10)
    OUT = ("gpupool[1]: info: asleep: 40960 MiB of device memory have gone back to the driver in 1050 ms: 20 ms until nothing "
           "used it, 30 ms to get host memory, 1000 ms to move")
    INTO = ("gpupool[2]: info: awake: 40960 MiB of device memory are back in 1900 ms: 950 ms until it was free, 50 ms to take "
            "it, 900 ms to move")

    def outcome(self, seconds, steps=(290, 580), wrong=0):
        """Two turns of 30 s, one of which is a check."""
        found = [turns.Turn(2.0, 1.0, 29.0, n, wrong) for n in steps]
        alone = ([turns.Turn(0.0, 1.0, 9.0, 90, 0), turns.Turn(0.0, 1.0, 11.0, 110, 0)], [turns.Turn(5.0, 1.0, 10.0, 200, 0)])
        return turns.Outcome(alone, found, [turns.Switch(0.0) for _ in found], seconds)

    def judged(self, outcome, is_over=False, plan=PLAN):
        turns.judge(self.results, plan, outcome, is_over, "why")
        return {row["name"]: row["value"] for row in results.load(self.out, ["streams"])}

    def test_turns_are_compared_with_the_same_steps_one_after_the_other(self):
        values = self.judged(self.outcome(64))
        self.assertAlmostEqual(values["turns: share of the time of one after the other"], 60 / 64)
        self.assertAlmostEqual(values["turns: seconds in all, lost to switches"], 4)
        self.assertAlmostEqual(values["turns: seconds in all, lost to slower work"], 0)
        self.assertEqual(self.bad(), [])

    def test_steps_that_are_slower_than_alone_are_lost_time_and_not_that_of_switches(self):
        values = self.judged(self.outcome(64, steps=(261, 580)))
        self.assertAlmostEqual(values["turns: share of the time of one after the other"], (60 - 2.9) / 64)
        self.assertAlmostEqual(values["turns: seconds in all, lost to slower work"], 2.9)
        self.assertEqual(values["turn 1: steps, and their speed over that alone"], "261 0.900")
        self.assertEqual(self.bad(), ["turns: share of the time of one after the other"])

    def test_turns_that_take_too_long_miss_the_bar(self):
        self.judged(self.outcome(68))
        self.assertEqual(self.bad(), ["turns: share of the time of one after the other"])

    def test_shorter_phases_have_the_bar_of_the_switches(self):
        values = self.judged(self.outcome(64), plan=turns.Plan(1, 1, 10, 2))
        self.assertAlmostEqual(values["turns: share of work in phases of 30 s"], 30 / 32)

    def test_turns_that_are_missing_or_wrong_fail(self):
        self.judged(self.outcome(64, wrong=1))
        self.assertEqual(self.bad(), ["turns: all are done, and no word is wrong"])
        self.results = results.Results(self.out, "streams")
        self.judged(self.outcome(32, steps=(290,)))
        self.assertEqual(self.bad(), ["turns: all are done, and no word is wrong"])
        self.results = results.Results(self.out, "streams")
        self.judged(turns.Outcome())
        self.assertEqual(self.bad(), ["turns: all are done, and no word is wrong"])

    def test_turns_for_which_the_time_is_up_are_left_out(self):
        plan = turns.Plan(1, 1, 30, 6)
        values = self.judged(self.outcome(64), is_over=True, plan=plan)
        self.assertEqual((self.bad(), values["turns: left out, as the time was up"]), ([], 4))
        self.assertTrue(plan.has_time(280 - 20 - 3 - 36))
        self.assertFalse(plan.has_time(281 - 20 - 3 - 36))

    def test_a_line_of_a_turn_is_parsed_and_a_missing_one_is_none(self):
        self.assertEqual(turns.Turn.of("turn 1.250 0.500 28.000 40 0"), turns.Turn(1.25, 0.5, 28.0, 40, 0))
        self.assertIsNone(turns.Turn.of(""))

    def test_a_switch_is_taken_from_the_logs_of_both_processes_after_it_began(self):
        waker = [(1.0, self.INTO), (10.5, "gpupool[2]: info: waking: asked process 1, idle for 0 s"), (11.9, self.INTO)]
        switch = turns.Switch.of(10.0, [(2.0, self.OUT), (11.6, self.OUT)], waker)
        self.assertEqual((switch.asked, switch.slept, switch.woke), (10.5, 11.6, 11.9))
        self.assertAlmostEqual(switch.overlap(), 11.6 - (11.9 - 0.95))
        self.assertEqual(switch.text(), "asked after 0.50 s; out 1.05 s: quiet 0.02, host memory 0.03, move 1.00, 38.8 GiB/s; "
                                        "in 0.95 s after 0.95: take 0.05, move 0.90, 42.1 GiB/s; both 0.65 s")
        self.assertEqual(turns.Switch.of(10.0, [], []).text(), "nothing was logged")

    def test_processes_take_turns_until_the_time_is_up(self):
        def process(name):
            return types.SimpleNamespace(tell=lambda: told.append(name), line=lambda: "turn 1 1 1 5 0", said=lambda: [])
        told, times = [], iter([True, True, True, False])
        outcome = turns.Outcome()
        turns.take_turns(turns.Plan(1, 1, 1, 6), (process("first"), process("second")), outcome, lambda: next(times), lambda: None)
        self.assertEqual((told, len(outcome.turns)), (["first", "second", "first"], 3))

    def test_each_process_is_measured_alone_before_the_turns_and_after_them(self):
        told = []

        def start(config, name, words, seconds):
            lines = ["ready 0.000 1 0"]

            def tell(alone=""):
                told.append((name, alone))
                lines.append("turn 1.0 1.0 29.0 290 0")
            return types.SimpleNamespace(tell=tell, line=lambda: lines.pop(0), said=lambda: [])
        turns.check(self.results, pathlib.Path("lib"), start, turns.Plan(1, 1, 30, 2, 10), lambda: 0, lambda name: "")
        first, second = "turns first", "turns second"
        self.assertEqual(told, [(first, 10), (second, 10), (first, ""), (second, ""), (second, 10), (first, 10)])
        self.assertTrue(results.load(self.out, ["streams"])[1]["ok"])

    def test_host_memory_is_touched_if_the_plan_says_so_and_the_row_says_how_fast(self):
        def start(config, name, words, seconds):
            return types.SimpleNamespace(tell=lambda *words: None, line=lambda: "", said=lambda: [])
        with mock.patch.object(turns, "GIB", 1 << 20):
            plan = turns.Plan(1, 1, 30, 2, 10, touched_gib=3)
            turns.check(self.results, pathlib.Path("lib"), start, plan, lambda: 0, lambda name: "")
        self.assertRegex(results.load(self.out, ["streams"])[0]["value"], r"^3 GiB, [0-9.]+ GiB/s$")


class Spill(WithOut):
    TEXT = ("8192 MiB are left, 10240 MiB are needed, in 80 blocks\n"
            "link read=50.00 write=40.00 both=38.00\nfull where=native ms=8.000\nlight where=native passes=24 ms=140.000\n"
            "light where=native passes=1 ms=10.000\ncontent without the ballast    right\nspilled gib=2.000 touched=0.200 of=10.000\n"
            "a part is in the host          right\nfull where=spilled ms={full}\nlight where=spilled passes=24 ms={light}\n"
            "light where=spilled passes=1 ms=15.000\nback seconds=2.20\nfull where=back ms=8.000\n"
            "light where=back passes=24 ms=140.000\n0 wrong\n")
    LIGHT = "8 GiB: light step of 140.0 ms, share of native speed"
    HOT = "8 GiB: hot: share of what the link allows"

    def play(self, text, status=0):
        with mock.patch.object(programs, "run_program", return_value=programs.Run(status, text, True)):
            measured = part_spill.check_spill(self.results, pathlib.Path("lib"), self.out, 8192, True)
        rows = results.load(self.out, ["streams"])
        return measured, {row["name"]: row["value"] for row in rows}, [row["name"] for row in rows if row.get("ok") is False]

    def test_a_bar_of_the_link_is_computed_of_the_slower_direction_of_the_same_run(self):
        measured, values, bad = self.play(self.TEXT.format(full="64.000", light="145.000"))
        self.assertAlmostEqual(values[self.HOT], (8 * 0.8 + 2 / 40 * 1000) / 64)
        self.assertAlmostEqual(values["8 GiB: hot: share of native speed"], 8 / 64)
        self.assertEqual((measured.full["spilled"], bad), (64.0, []))

    def test_each_length_of_a_light_step_has_a_row_and_the_longest_one_the_bar(self):
        values = self.play(self.TEXT.format(full="64.000", light="145.000"))[1]
        self.assertAlmostEqual(values[self.LIGHT], 140 / 145)
        self.assertAlmostEqual(values["8 GiB: light step of 10.0 ms, share of native speed"], 10 / 15)
        self.assertAlmostEqual(values["8 GiB: shortest light step at 0.9 of native speed"], 45)

    def test_a_slow_step_misses_its_bar(self):
        self.assertEqual(self.play(self.TEXT.format(full="90.000", light="145.000"))[2], [self.HOT])
        self.assertEqual(self.play(self.TEXT.format(full="64.000", light="170.000"))[2], [self.HOT, self.LIGHT])

    def test_wrong_content_and_a_run_that_was_cut_off_fail(self):
        text = self.TEXT.format(full="64.000", light="145.000")
        self.assertEqual(self.play(text.replace("host          right", "host          WRONG"), 1)[2],
                         ["8 GiB: a part is in the host", "8 GiB: finished"])
        measured, _, bad = self.play(text.partition("spilled gib")[0], 124)
        self.assertEqual((measured, bad.count("8 GiB: finished")), (None, 2))

    def test_a_device_that_is_too_small_leaves_a_note(self):
        measured, values, bad = self.play("skipped: 100 MiB of the device are free, 11264 MiB are needed\n", 77)
        self.assertEqual((measured, bad), (None, []))
        self.assertEqual(values["8 GiB: left out"], "100 MiB of the device are free, 11264 MiB are needed")

    def test_a_program_that_does_not_run_out_without_spilling_fails(self):
        for text, status, count in (("block 64 of 80: error 2\n", 1, 0), ("block 64 of 80: error 999\n", 1, 1), ("0 wrong\n", 0, 1)):
            before = len(self.bad())
            with mock.patch.object(programs, "run_program", return_value=programs.Run(status, text, True)):
                part_spill.check_without(self.results, pathlib.Path("lib"), self.out, 8192)
            self.assertEqual(len(self.bad()) - before, count)

    def test_wrong_content_of_a_context_fails(self):
        text = "content of two contexts, first      right\ncontent of two contexts after writes      WRONG\n"
        with mock.patch.object(programs, "run_program", return_value=programs.Run(1, text, True)):
            part_spill.check_contexts(self.results, pathlib.Path("lib"), self.out, 8192)
        names = [row["name"] for row in results.load(self.out, ["streams"]) if row.get("ok") is False]
        self.assertEqual(names, ["8 GiB, contexts: content of two contexts after writes", "8 GiB, contexts: finished"])

    def test_managed_memory_is_compared_with_the_steps_of_spilled_memory(self):
        spill = part_spill.Measured(self.TEXT.format(full="64.000", light="145.000"))
        text = ("full where=managed ms=8.000\nadvised gib=2.000\nfull where=advised ms=80.000\n"
                "light where=advised passes=24 ms=150.000\na block is in the host by advice       right\n")
        with mock.patch.object(programs, "run_program", return_value=programs.Run(0, text, True)):
            part_spill.check_managed(self.results, pathlib.Path("lib"), self.out, 8192, spill)
        values = {row["name"]: row["value"] for row in results.load(self.out, ["streams"])}
        self.assertAlmostEqual(values["managed in the host: time of spilled over its time"], 0.8)
        self.assertAlmostEqual(
            values["managed in the host: light step of 140.0 ms, share"], 140 / 150)


class Async(WithOut):
    STATUS = {"devices": [{"stream_allocs": 7}, {"stream_allocs": 3}],
              "async": {"left": [{"name": "capture", "count": 0}, {"name": "green-context", "count": 2}]}}

    def play(self, line, status):
        """The names of the rows that failed, and the values of all."""
        program = mock.MagicMock()
        program.__enter__.return_value.line.return_value = line
        program.__enter__.return_value.ask.return_value = status
        with mock.patch.object(part_async.part_sleep, "Program", return_value=program):
            part_async.check(self.results, self.out, "static", programs.Config("split", pathlib.Path("lib")))
        rows = results.load(self.out, ["streams"])
        return [row["name"] for row in rows if row["ok"] is False], [row["value"] for row in rows]

    def test_allocations_that_the_pool_serves_pass(self):
        self.assertEqual(self.play("allocations=10 wrong=0", self.STATUS)[0], [])

    def test_allocations_that_are_left_to_the_driver_fail_and_say_why(self):
        bad, values = self.play("allocations=12 wrong=0", self.STATUS)
        self.assertEqual((bad, values[1]), (["split, static runtime: the pool serves all allocations"],
                                            "10 served, 2 left: green-context"))
        self.assertEqual(self.play("allocations=10 wrong=0", {"error": "no control socket"})[1][3], "0 served")

    def test_wrong_content_and_a_program_that_ended_early_fail(self):
        self.assertEqual(self.play("allocations=10 wrong=1", self.STATUS)[0], ["split, static runtime: the content is right"])
        self.assertEqual(len(self.play("", self.STATUS)[0]), 3)


FAKE_PYTHON = """#!/bin/sh
# Stands for Python in scripts/gpu-test and scripts/bench: lists one part, which starts a program and waits for it.
for word in "$@"; do
	case $word in
	list) echo some ;;
	part)
		sleep 100 &
		echo started > /proc/self/fd/"$PIPE"
		wait
		;;
	esac
done
"""


class Scripts(WithOut):
    def test_the_programs_of_a_part_end_with_the_script(self):
        python = self.out / "python"
        python.write_text(FAKE_PYTHON)
        python.chmod(0o755)
        for name in ("gpu-test", "bench"):
            with self.subTest(name):
                reader, writer = os.pipe()
                script = subprocess.Popen([programs.ROOT / "scripts" / name, "--out", self.out], pass_fds=[writer],
                                          env={**os.environ, "PYTHON": str(python), "PIPE": str(writer)})
                os.close(writer)
                with open(reader) as pipe:
                    self.assertEqual(pipe.readline(), "started\n")
                    script.terminate()
                    self.assertEqual(script.wait(30), 143)
                    # The pipe ends with the last process that has inherited it.
                    self.assertTrue(select.select([pipe], [], [], 30)[0])
                    self.assertEqual(pipe.read(), "")


if __name__ == "__main__":
    unittest.main()
