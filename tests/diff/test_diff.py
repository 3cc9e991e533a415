# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Tests of the comparison itself, and of its tables: deviations.py, suite.py and cases.md."""

import concurrent.futures
import pathlib
import re
import sys
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import compare
import deviations
import run
import suite
from deviations import Deviation, Row

ROW = Row("free", "wrong/again", ("split",), "0|2")
DEVIATION = Deviation("what", "why", "none", "kept", "manual", (ROW,))
ROWS = [(DEVIATION, ROW)]


def differ(raw, answer, config="split"):
    return compare.compare({"wrong/again": raw}, {"wrong/again": answer}, config, ROWS)


class CompareTest(unittest.TestCase):
    def test_repeated_questions_get_numbers(self):
        answers = compare.parse_answers("a/b: 1\na/b: 2\na: signal 6\nc/d: x: y\nno colon\n")
        self.assertEqual(answers, {"a/b": "1", "a/b#2": "2", "a": "signal 6", "c/d": "x: y", "no colon": ""})

    def test_a_hang_reported_by_the_program_and_by_its_limit_counts_once(self):
        for text in ("a: hangs\n", "a/outcome: hangs\n", "a/outcome: hangs\na: hangs\n"):
            self.assertEqual(compare.parse_answers(text), {"a/outcome": "hangs"})

    def test_equal_answers_yield_no_difference(self):
        self.assertEqual(differ("1", "1"), [])

    def test_a_difference_is_allowed_only_in_its_configuration_and_with_its_answer(self):
        self.assertEqual(differ("1", "0")[0].deviation, DEVIATION)
        self.assertIsNone(differ("1", "3")[0].deviation)
        self.assertIsNone(differ("1", "0", "binned")[0].deviation)
        self.assertIsNone(differ("1", None)[0].deviation)

    def test_missing_and_additional_answers_are_differences(self):
        self.assertEqual(len(compare.compare({"a": "1"}, {}, "split", ROWS)), 1)
        self.assertEqual(len(compare.compare({}, {"a": "1"}, "split", ROWS)), 1)

    def test_a_row_covers_every_answer_to_a_repeated_question(self):
        raw, answers = ({"wrong/again#3": value} for value in ("1", "2"))
        self.assertEqual(compare.compare(raw, answers, "split", ROWS)[0].row, ROW)

    def test_a_row_for_any_answer_allows_a_missing_answer(self):
        row = Row("free", ".*", ("split",), None)
        rows = [(Deviation("what", "why", "none", "kept", "manual", (row,)), row)]
        self.assertEqual(compare.compare({"a": "1"}, {}, "split", rows)[0].row, row)

    def test_a_row_that_no_difference_matches_is_idle(self):
        self.assertEqual(compare.idle_rows(ROWS, {"split": differ("1", "1")}), [(ROW, "split")])
        self.assertEqual(compare.idle_rows(ROWS, {"split": differ("1", "3")}), [(ROW, "split")])
        self.assertEqual(compare.idle_rows(ROWS, {"split": differ("1", "0")}), [])

    def test_a_row_is_not_idle_if_its_configuration_did_not_run(self):
        self.assertEqual(compare.idle_rows(ROWS, {"none": []}), [])

    def test_a_row_holds_only_on_its_machine_and_in_its_program(self):
        row = Row("query(_.*)?", ".*", ("split",), None, "gpu")
        table = [Deviation("what", "why", "none", "kept", "manual", (row,))]
        self.assertEqual(len(compare.rows_for(table, "query_dlsym", "gpu")), 1)
        self.assertEqual(compare.rows_for(table, "query_dlsym", "sim"), [])
        self.assertEqual(compare.rows_for(table, "queries", "gpu"), [])


def programs():
    """Returns the names of all programs, including the builds that find the driver at run time."""
    names = {path.stem.removeprefix("diff_") for path in HERE.glob("diff_*.c")}
    names |= {f"{name}_dlsym" for name in (HERE / "ways.txt").read_text().split()}
    names |= {f"runtime_{kind}" for kind in ("static", "shared")}
    return names | {"captures"}


class TableTest(unittest.TestCase):
    def rows(self):
        return [(deviation, row) for deviation in deviations.DEVIATIONS for row in deviation.rows]

    def test_rows_name_programs_and_configurations_that_exist(self):
        for deviation, row in self.rows():
            with self.subTest(deviation.what, row=row):
                self.assertLessEqual(set(row.configs), set(suite.CONFIG_NAMES))
                self.assertTrue(any(re.fullmatch(row.program, name) for name in programs()), row.program)
                self.assertIn(row.platform, ("both", "sim", "gpu"))
                re.compile(row.question)
                re.compile(row.answer or "")

    def test_no_row_holds_with_its_switch_on_or_the_library_off(self):
        for deviation, row in self.rows():
            if deviation.switch is None:
                continue
            with self.subTest(deviation.what):
                self.assertIn(deviation.switch, suite.CONFIG_NAMES)
                self.assertNotIn(deviation.switch, row.configs)
                self.assertNotIn("off", row.configs)

    def test_needs_name_configurations_that_exist(self):
        for ways in suite.NEEDS.values():
            self.assertEqual(len({way.name for way in ways}), len(ways))
            for way in ways:
                self.assertLessEqual(set(way.configs), set(suite.CONFIG_NAMES))

    def test_meson_builds_every_program(self):
        text = (HERE / "meson.build").read_text()
        for path in HERE.glob("diff_*.c"):
            name = path.stem.removeprefix("diff_")
            self.assertRegex(text, rf"'{name}'|'diff_{name}\.c'")


# The values of variables that a configuration does not set.
DEFAULTS = {"GPUPOOL_DEBUG": "off"}
WORDS = {"1": "on", "0": "off"}


def manual():
    """Returns gpupool(7) as one line of plain text, and its table as {row: switch or None}."""
    lines = (HERE.parents[1] / "shim" / "gpupool.7").read_text().splitlines()
    table = {}
    for line in lines:
        row = re.fullmatch(r"\.It (.+) Ta (?:Ev (GPUPOOL\S+)(?: No (?:\*|\(\d\)))?|always.*|not \(\d\))", line)
        if row:
            table[row[1]] = row[2]
    text = " ".join(re.sub(r"^\.(Fn|Ev|Cm|Dv|Xr|Pq|Nm) ?", "", line) for line in lines)
    return text, table


class AutoTest(unittest.TestCase):
    def test_auto_runs_wherever_vmm_does_or_else_split(self):
        configs = [config for config in suite.CONFIGS if config.name in ("vmm", "split")]
        for is_brief in (False, True):
            invocation = run.Invocation(pathlib.Path("a.so"), HERE, None, 1, 1, is_brief)
            for program, ways in suite.NEEDS.items():
                for way in ways:
                    like = [config for config in configs if config.name == ("vmm" if "vmm" in way.configs else "split")]
                    wanted = [run.is_wanted(invocation, program, way, config) for config in (*like, suite.AUTO)]
                    self.assertEqual(*wanted, (program, way.name))

    def test_auto_has_the_deviations_of_vmm(self):
        row = Row("program", "wrong/again", ("vmm",), "0|2")
        table = [Deviation("what", "why", "none", "kept", "manual", (row,))]
        texts = {"raw": "wrong/again: 1\n", "auto": "wrong/again: 0\n"}
        with mock.patch.object(deviations, "DEVIATIONS", table):
            found = list(run.judge_program(
                run.Invocation(pathlib.Path("a.so"), HERE, None, 1, 1, False), "program",
                lambda way, config, nth: run.Run(texts[config.name], 0, "", config.is_pooled, 0.0), [suite.AUTO]))
        self.assertEqual([(result.config, result.ok) for result in found], [("raw", True), ("auto", True), ("table", True)])


class RawTest(unittest.TestCase):
    SHORT = suite.Needs(name="short", env={"GPUPOOL_LIMIT": "1MiB"}, configs=("split",))
    OTHER = suite.Needs(name="other", env={"CUDA_LAUNCH_BLOCKING": "1"}, configs=("split",))
    UNWANTED = suite.Needs(name="unwanted", env={"CUDA_VISIBLE_DEVICES": "0"}, configs=("vmm",))

    def judge(self, *ways):
        """The raw runs that were started, by way; and the results."""
        invocation = run.Invocation(pathlib.Path("a.so"), HERE, None, 1, 1, False)
        configs = [config for config in suite.CONFIGS if config.name == "split"]
        started = []

        def once(invocation, program, way, config):
            if config is suite.RAW:
                started.append(way.name)
            return run.Run("a: 1\n", 0, "", config.is_pooled, 0.0)

        with (mock.patch.object(suite, "needs_of", return_value=ways), mock.patch.object(run, "run_once", once),
              concurrent.futures.ThreadPoolExecutor(1) as pool):
            runs = run.start_all(invocation, "program", configs, pool)
            found = list(run.judge_program(invocation, "program", runs, configs))
        return started, [(result.program, result.config) for result in found]

    def test_ways_that_differ_by_the_librarys_variables_share_raw_runs(self):
        started, found = self.judge(suite.Needs(configs=("split",)), self.SHORT)
        self.assertEqual(started, ["", ""])
        self.assertEqual(found, [("program", "raw"), ("program", "split"), ("program.short", "split")])

    def test_a_way_with_other_variables_has_raw_runs_of_its_own(self):
        started, found = self.judge(self.SHORT, self.OTHER)
        self.assertEqual(started, ["short", "short", "other", "other"])
        self.assertEqual(len(found), 4)

    def test_a_way_without_a_wanted_configuration_does_not_run(self):
        self.assertEqual(self.judge(self.UNWANTED), ([], []))


class ManualTest(unittest.TestCase):
    def test_the_manual_describes_each_deviation_and_has_a_row_for_it(self):
        text, table = manual()
        for deviation in deviations.DEVIATIONS:
            with self.subTest(deviation.what):
                self.assertIn(deviation.manual, text)
                self.assertIn(deviation.kept, table)

    def test_the_switch_in_the_manual_takes_the_deviation_back(self):
        _, table = manual()
        for deviation in deviations.DEVIATIONS:
            if deviation.switch in (None, "off"):  # the manual gives GPUPOOL=off, or says why there is no switch
                continue
            with self.subTest(deviation.what):
                name, value = table[deviation.kept].split("=")
                variables = next(c.variables for c in suite.CONFIGS if c.name == deviation.switch)
                given = variables.get(name, DEFAULTS.get(name))
                self.assertIn(value, (given, WORDS.get(given)))

    def test_each_promise_names_tests_that_exist(self):
        _, table = manual()
        promises = (HERE / "cases.md").read_text().partition("# Promises")[2]
        rows = re.findall(r"^\| ([^|]+) \| (`.+) \|$", promises, re.M)
        self.assertEqual([row[0] for row in rows], list(table))
        for row, cell in rows:
            with self.subTest(row):
                self.assertEqual(list(find_lost(cell, read_test)), [])


# The number of cases in each group. The first case of group 1 is T1.1.
CASES = {1: 10, 2: 7, 3: 7, 4: 7, 5: 7, 6: 7, 7: 8, 8: 9, 9: 6, 10: 3, 11: 10}


def find_lost(cell, read):
    """Yields each test that a cell of cases.md names and that does not exist. read returns a file's text, or None."""
    for part in cell.split("; "):
        match = re.fullmatch(r"`([^`]+)` ([^`]+)", part.strip())
        if not match:
            yield part
            continue
        text = read(match[1])
        for name in match[2].split(", "):
            if text is None or not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
                yield f"{match[1]} {name}"


def read_test(name):
    path = HERE.parent / name
    return path.read_text() if path.is_file() else None


class CasesTest(unittest.TestCase):
    def test_each_case_names_tests_that_exist_or_says_why_there_is_none(self):
        rows = re.findall(r"^\| (T\d+\.\d+) \| (.+?) \| (.+) \|$", (HERE / "cases.md").read_text(), re.M)
        wanted = [f"T{group}.{n}" for group, count in CASES.items() for n in range(1, count + 1)]
        self.assertEqual([row[0] for row in rows], wanted)
        for case, _, cell in rows:
            with self.subTest(case):
                lost = [] if cell.startswith("why not: ") else list(find_lost(cell, read_test))
                self.assertEqual(lost, [])

    def test_find_lost_yields_names_that_do_not_exist(self):
        texts = {"a.c": "reuse-two two_streams"}
        self.assertEqual(list(find_lost("`a.c` reuse-two, two_streams", texts.get)), [])
        self.assertEqual(list(find_lost("`a.c` two", texts.get)), ["a.c two"])
        self.assertEqual(list(find_lost("`a.c` reuse-two; `b.c` x", texts.get)), ["b.c x"])
        self.assertEqual(list(find_lost("something", texts.get)), ["something"])


if __name__ == "__main__":
    unittest.main()
