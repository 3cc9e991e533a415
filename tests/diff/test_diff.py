# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Tests of the comparison itself, and of what its tables say."""

import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import compare
import deviations
import suite
from deviations import Deviation, Row

ROW = Row("free", "wrong/again", ("split",), "0|2")
DEVIATION = Deviation("what", "why", "none", "kept", "manual", (ROW,))
ROWS = [(DEVIATION, ROW)]


def differ(raw, answer, config="split"):
    return compare.compare({"wrong/again": raw}, {"wrong/again": answer}, config, ROWS)


class CompareTest(unittest.TestCase):
    def test_questions_that_come_again_are_told_apart(self):
        answers = compare.parse_answers("a/b: 1\na/b: 2\na: signal 6\nc/d: x: y\nno colon\n")
        self.assertEqual(answers, {"a/b": "1", "a/b#2": "2", "a": "signal 6", "c/d": "x: y", "no colon": ""})

    def test_a_hang_is_one_whoever_noticed(self):
        for text in ("a: hangs\n", "a/outcome: hangs\n", "a/outcome: hangs\na: hangs\n"):
            self.assertEqual(compare.parse_answers(text), {"a/outcome": "hangs"})

    def test_equal_answers_are_no_difference(self):
        self.assertEqual(differ("1", "1"), [])

    def test_a_difference_is_meant_in_its_configuration_with_its_answer_only(self):
        self.assertEqual(differ("1", "0")[0].deviation, DEVIATION)
        self.assertIsNone(differ("1", "3")[0].deviation)
        self.assertIsNone(differ("1", "0", "binned")[0].deviation)
        self.assertIsNone(differ("1", None)[0].deviation)

    def test_missing_and_additional_answers_are_differences(self):
        self.assertEqual(len(compare.compare({"a": "1"}, {}, "split", ROWS)), 1)
        self.assertEqual(len(compare.compare({}, {"a": "1"}, "split", ROWS)), 1)

    def test_the_nth_answer_to_a_question_is_meant_as_the_first(self):
        raw, answers = ({"wrong/again#3": value} for value in ("1", "2"))
        self.assertEqual(compare.compare(raw, answers, "split", ROWS)[0].row, ROW)

    def test_no_answer_can_be_meant(self):
        row = Row("free", ".*", ("split",), None)
        rows = [(Deviation("what", "why", "none", "kept", "manual", (row,)), row)]
        self.assertEqual(compare.compare({"a": "1"}, {}, "split", rows)[0].row, row)

    def test_a_row_that_nothing_matches_is_idle(self):
        self.assertEqual(compare.idle_rows(ROWS, {"split": differ("1", "1")}), [(ROW, "split")])
        self.assertEqual(compare.idle_rows(ROWS, {"split": differ("1", "3")}), [(ROW, "split")])
        self.assertEqual(compare.idle_rows(ROWS, {"split": differ("1", "0")}), [])

    def test_a_row_is_not_idle_where_its_configuration_did_not_run(self):
        self.assertEqual(compare.idle_rows(ROWS, {"none": []}), [])

    def test_a_row_holds_at_its_place_and_in_its_program(self):
        row = Row("query(_.*)?", ".*", ("split",), None, "gpu")
        table = [Deviation("what", "why", "none", "kept", "manual", (row,))]
        self.assertEqual(len(compare.rows_for(table, "query_dlsym", "gpu")), 1)
        self.assertEqual(compare.rows_for(table, "query_dlsym", "sim"), [])
        self.assertEqual(compare.rows_for(table, "queries", "gpu"), [])


def programs():
    """The names of all programs, with those of the ways in which they are built."""
    names = {path.stem.removeprefix("diff_") for path in HERE.glob("diff_*.c")}
    names |= {f"{name}_dlsym" for name in (HERE / "ways.txt").read_text().split()}
    names |= {f"runtime_{kind}" for kind in ("static", "shared")}
    return names | {"captures"}


class TableTest(unittest.TestCase):
    def rows(self):
        return [(deviation, row) for deviation in deviations.DEVIATIONS for row in deviation.rows]

    def test_rows_speak_of_programs_and_configurations_that_there_are(self):
        for deviation, row in self.rows():
            with self.subTest(deviation.what, row=row):
                self.assertLessEqual(set(row.configs), set(suite.CONFIG_NAMES))
                self.assertTrue(any(re.fullmatch(row.program, name) for name in programs()), row.program)
                self.assertIn(row.where, ("both", "sim", "gpu"))
                re.compile(row.question)
                re.compile(row.answer or "")

    def test_no_row_holds_where_its_switch_or_none_of_the_library_is_on(self):
        for deviation, row in self.rows():
            if deviation.switch is None:
                continue
            with self.subTest(deviation.what):
                self.assertIn(deviation.switch, suite.CONFIG_NAMES)
                self.assertNotIn(deviation.switch, row.configs)
                self.assertNotIn("off", row.configs)

    def test_needs_speak_of_configurations_that_there_are(self):
        for ways in suite.NEEDS.values():
            self.assertEqual(len({way.name for way in ways}), len(ways))
            for way in ways:
                self.assertLessEqual(set(way.configs), set(suite.CONFIG_NAMES))

    def test_programs_are_built(self):
        text = (HERE / "meson.build").read_text()
        for path in HERE.glob("diff_*.c"):
            name = path.stem.removeprefix("diff_")
            self.assertRegex(text, rf"'{name}'|'diff_{name}\.c'")


# What holds if a configuration does not say.
DEFAULTS = {"GPUPOOL_DEBUG": "off"}
WORDS = {"1": "on", "0": "off"}


def manual():
    """gpupool(7) as one line of plain text, and the rows of its table: the switch of each, or None."""
    lines = (HERE.parents[1] / "shim" / "gpupool.7").read_text().splitlines()
    table = {}
    for line in lines:
        row = re.fullmatch(r"\.It (.+) Ta (?:Ev (GPUPOOL\S+)(?: No (?:\*|\(\d\)))?|always.*|not \(\d\))", line)
        if row:
            table[row[1]] = row[2]
    text = " ".join(re.sub(r"^\.(Fn|Ev|Cm|Dv|Xr|Pq|Nm) ?", "", line) for line in lines)
    return text, table


class ManualTest(unittest.TestCase):
    def test_each_deviation_is_told_and_has_a_row(self):
        text, table = manual()
        for deviation in deviations.DEVIATIONS:
            with self.subTest(deviation.what):
                self.assertIn(deviation.manual, text)
                self.assertIn(deviation.kept, table)

    def test_the_switch_of_a_row_is_that_which_takes_its_deviations_back(self):
        _, table = manual()
        for deviation in deviations.DEVIATIONS:
            if deviation.switch in (None, "off"):  # of those the manual says that GPUPOOL=off is one, or why there is none
                continue
            with self.subTest(deviation.what):
                name, value = table[deviation.kept].split("=")
                variables = next(c.variables for c in suite.CONFIGS if c.name == deviation.switch)
                given = variables.get(name, DEFAULTS.get(name))
                self.assertIn(value, (given, WORDS.get(given)))

    def test_every_row_names_the_tests_that_show_it(self):
        _, table = manual()
        promises = (HERE / "cases.md").read_text().partition("# Promises")[2]
        rows = re.findall(r"^\| ([^|]+) \| (`.+) \|$", promises, re.M)
        self.assertEqual([row[0] for row in rows], list(table))
        for row, cell in rows:
            with self.subTest(row):
                self.assertEqual(list(find_lost(cell, read_test)), [])


# How many cases there are of each group, which begin with T1.1.
CASES = {1: 8, 2: 7, 3: 7, 4: 7, 5: 7, 6: 7, 7: 8, 8: 9, 9: 6, 10: 3, 11: 5}


def find_lost(cell, read):
    """What a cell of cases.md names that is not there. read: the text of a file, or None."""
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
    def test_every_case_is_shown_by_tests_that_exist_or_says_why_not(self):
        rows = re.findall(r"^\| (T\d+\.\d+) \| (.+?) \| (.+) \|$", (HERE / "cases.md").read_text(), re.M)
        wanted = [f"T{group}.{n}" for group, count in CASES.items() for n in range(1, count + 1)]
        self.assertEqual([row[0] for row in rows], wanted)
        for case, _, cell in rows:
            with self.subTest(case):
                lost = [] if cell.startswith("why not: ") else list(find_lost(cell, read_test))
                self.assertEqual(lost, [])

    def test_a_name_that_is_not_there_is_lost(self):
        texts = {"a.c": "reuse-two two_streams"}
        self.assertEqual(list(find_lost("`a.c` reuse-two, two_streams", texts.get)), [])
        self.assertEqual(list(find_lost("`a.c` two", texts.get)), ["a.c two"])
        self.assertEqual(list(find_lost("`a.c` reuse-two; `b.c` x", texts.get)), ["b.c x"])
        self.assertEqual(list(find_lost("something", texts.get)), ["something"])


if __name__ == "__main__":
    unittest.main()
