# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
The generated pages of docs/ are those that the result files give, and the generators refuse files that mean nothing.

Usage: test_pages.py ROOT
"""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import benchmarks
import chart
import result_file
import scale_page
import verification

ROOT = pathlib.Path(sys.argv[1]).resolve()
RUN = {"command": "scripts/bench --part pairs", "date": "2026-01-01", "commit": "1234567", "hardware": "a GPU"}
CELLS = [{"group": "one thread", "cell": "window 64 KiB", "peer": peer, "ns": ns}
         for peer, ns in (("split", 80), ("raw", 61234), ("cub", 512))]


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def save(self, part, **members):
        return result_file.save(self.root / benchmarks.DATA, part, {"runs": [RUN], **members})

    def page(self):
        return benchmarks.files(self.root)[self.root / benchmarks.PAGE]

    def refused(self):
        with self.assertRaises(SystemExit) as caught:
            self.page()
        return str(caught.exception)

    def test_committed_pages_are_those_of_the_result_files(self):
        for generator in (benchmarks, scale_page, verification):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                is_same = result_file.update(generator.files(ROOT), True, generator.COMMAND)
            self.assertTrue(is_same, printed.getvalue())

    def test_the_table_of_the_readme_has_the_figures_of_the_result_files(self):
        cells = {"64 KiB": ("pairs", "pingpong 64 KiB"), "1 GiB": ("pairs", "pingpong 1 GiB"),
                 "64 KiB, 32 blocks live": ("pairs", "window 64 KiB"),
                 "the same in 16 threads": ("threads", "window 64 KiB, 16 threads")}
        peers = {"raw": "raw", "`cudaMallocAsync`": "async", "RMM": "rmm", "PyTorch, C++": "torch", "gpupool": "split"}
        documents = result_file.load(ROOT / benchmarks.DATA)
        section = (ROOT / "README.md").read_text().partition("## Performance\n")[2].partition("\n## ")[0]
        head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]]
                          for line in section.splitlines() if line.startswith("|")]
        self.assertEqual((set(head[1:]), {row[0] for row in rows}), (set(peers), set(cells)))
        for row in rows:
            for name, figure in zip(head[1:], row[1:]):
                found = benchmarks.cell_of(documents, *cells[row[0]], peers[name])
                self.assertEqual(int(figure.replace(" ", "")), found, (row[0], name))

    def test_each_package_that_was_tried_has_a_row_with_its_times(self):
        (self.root / "tests").mkdir()
        (self.root / verification.SUITES).write_text((ROOT / verification.SUITES).read_text())
        page = self.root / verification.PAGE
        self.assertNotIn("## Packages", verification.files(self.root)[page])
        result_file.save(self.root / verification.PACKAGES, "packages",
                         {"runs": [RUN], "head": ["system", "install, s"], "rows": [["Debian 12", "1.5"]]})
        words = verification.files(self.root)[page]
        self.assertIn("| system | install, s |\n| --- | --- |\n| Debian 12 | 1.5 |\n", words)
        self.assertIn("| `packages` | `scripts/bench --part pairs` |", words)

    def test_every_chart_in_the_tree_is_made_of_the_result_files(self):
        made = {path.name for path in benchmarks.files(ROOT) if path.suffix == ".svg"}
        self.assertEqual({path.name for path in (ROOT / benchmarks.CHARTS).iterdir()}, made)

    def test_a_changed_figure_changes_the_page_and_is_found(self):
        self.save("pairs", cells=CELLS)
        files = benchmarks.files(self.root)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertFalse(result_file.update(files, True, "generate"))
            self.assertEqual([path for path in files if path.exists()], [])
            result_file.update(files, False, "generate")
            self.assertTrue(result_file.update(benchmarks.files(self.root), True, "generate"))
            self.save("pairs", cells=[{**CELLS[0], "ns": 81}, *CELLS[1:]])
            self.assertFalse(result_file.update(benchmarks.files(self.root), True, "generate"))
        self.assertIn("not what `generate` makes of the result files", printed.getvalue())

    def test_a_row_has_the_figures_of_all_peers_in_the_order_of_the_page(self):
        self.save("pairs", cells=CELLS)
        page = self.page()
        self.assertIn("| | raw | `split`, static runtime | CUB |\n", page)
        self.assertIn("| window of 32 live blocks of 64 KiB | 61\u00a0234 | 80 | 512 |\n", page)
        self.assertIn("| `pairs` | `scripts/bench --part pairs` | | 2026-01-01 | 1234567 | a GPU |\n", page)

    def test_parts_of_one_section_share_a_table(self):
        self.save("pairs", cells=CELLS)
        self.save("streams", cells=[{**CELLS[0], "group": "four streams alive"}])
        self.assertIn("512 |\n| window of 32 live blocks of 64 KiB, four streams alive | | 80 | |\n", self.page())

    def test_programs_have_a_table_of_their_own_with_a_row_for_each(self):
        self.save("async", cells=CELLS)
        for part, program in (("async-jax", "JAX step"), ("async-cupy", "CuPy step")):
            cell = {"group": f"{program}, in stream order", "cell": "step"}
            self.save(part, cells=[{**cell, "peer": peer, "ns": ns} for peer, ns in (("split", 90123), ("raw", 220123))],
                      ratios=[{**cell, "peer": "split", "base": "raw", "median": 0.5, "n": 7}])
        page = self.page()
        self.assertIn("## Allocations in stream order\n", page)
        self.assertIn("| | raw | `split`, static runtime | CUB |\n", page)
        rows = "".join(f"| {program} step | 220\u00a0123 | 90\u00a0123 |\n" for program in ("CuPy", "JAX"))
        self.assertIn(f"| | raw | `split` |\n| --- | --- | --- |\n{rows}", page)
        self.assertIn("".join(f"| {program} step, in stream order | step | `split` | raw | 0.500 | | 7 |\n"
                              for program in ("CuPy", "JAX")), page)

    def test_each_part_of_the_benchmark_has_a_section(self):
        parts = {part for section in benchmarks.SECTIONS for part in section.parts}
        listed = subprocess.run([sys.executable, "-B", ROOT / "tests" / "bench" / "gpu.py", "list"], capture_output=True,
                                text=True, timeout=60, check=True).stdout.split()
        self.assertEqual(set(listed) - parts, set())

    def test_ratios_peaks_values_and_calls_have_tables(self):
        ratio = {"group": "CuPy step", "cell": "step", "peer": "split", "base": "own", "median": 1.0042, "low": 0.99,
                 "high": 1.012, "n": 15}
        self.save("cupy", ratios=[ratio, {**ratio, "peer": "vmm", "low": None, "high": None, "n": 3}],
                  peaks=[{"group": "CuPy step", "peer": peer, "key": "own_peak", "mib": 16} for peer in ("own", "raw")])
        self.save("guest", values=[{"name": "preload without CUDA: wall time", "value": 140.25, "unit": "us"}])
        self.save("steady", calls=[{"name": "pingpong 1 GiB", "peer": "split", "pairs": 4, "calls": {"memory": 0, "fence": 2}}])
        page = self.page()
        self.assertIn("| CuPy step | step | `split` | own pool | 1.004 | 0.990 to 1.012 | 15 |\n", page)
        self.assertIn("| CuPy step | step | `vmm` | own pool | 1.004 | | 3 |\n", page)
        self.assertIn("| CuPy step | own pool | taken by the program's own pool | 16 MiB |\n", page)
        self.assertIn("| CuPy step | raw | taken by the driver's pool | 16 MiB |\n", page)
        self.assertIn("| preload without CUDA: wall time | 140 us |\n", page)
        self.assertIn("| `split`, static runtime | malloc and free, 1 GiB | memory 0, fence 0.5 |\n", page)

    def test_times_of_the_simulated_gpu_are_refused_and_its_traces_are_not(self):
        run = {**RUN, "hardware": benchmarks.SIMULATED}
        value = {"name": "trace a.rec.gz, vmm", "value": 1.1, "unit": "", "kind": "vmm", "trace": "a.rec.gz"}
        result_file.save(self.root / benchmarks.DATA, "traces", {"runs": [run], "values": [value]})
        self.assertIn("| `a` | | | | 1.10 |\n", self.page())
        result_file.save(self.root / benchmarks.DATA, "pairs", {"runs": [run], "cells": CELLS})
        self.assertIn("pairs.json has times of the simulated GPU", self.refused())

    def test_a_part_without_a_section_and_a_file_without_runs_are_refused(self):
        self.save("unheard")
        self.assertIn("no section of docs/benchmarks.md shows unheard", self.refused())
        self.save("unheard", runs=[])
        self.assertIn("names no run", self.refused())
        (self.root / benchmarks.DATA / "unheard.json").write_text('{"schema": "other/1"}')
        self.assertIn("the schema is not gpupool.results/1", self.refused())

    def test_a_saved_file_reads_back_as_the_same_document(self):
        path = self.save("pairs", cells=CELLS, notes=[], result="a | b")
        found = json.loads(path.read_text())
        self.assertEqual(found, {"schema": result_file.SCHEMA, "runs": [RUN], "cells": CELLS, "notes": [], "result": "a | b"})

    def test_a_run_is_described_by_command_date_commit_and_hardware(self):
        run = result_file.describe_run(self.root, "scripts/bench", rounds="2 runs")
        self.assertEqual((run["command"], run["rounds"], run["commit"]), ("scripts/bench", "2 runs", result_file.UNKNOWN))
        self.assertRegex(run["date"], r"^\d{4}-\d\d-\d\d$")
        self.assertTrue(run["hardware"])

    def test_results_of_a_part_are_counted_and_failures_are_named(self):
        rows = [{"type": "check", "name": "first", "ok": True}, {"type": "bar", "name": "second", "ok": False},
                {"type": "note", "name": "third"}]
        self.assertEqual(verification.result_words(rows[:1]), "1 of 1 checks")
        self.assertEqual(verification.result_words(rows), "1 of 2 checks; failed: second")


    def test_a_table_stands_between_its_marks_and_nothing_else_changes(self):
        document = {"head": ["a", "b"], "rows": [["1", "2"]]}
        page = f"before\n{verification.TABLE_BEGIN}old\n{verification.TABLE_END}after\n"
        wanted = page.replace("old\n", "\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n")
        self.assertEqual(verification.with_table(page, document), wanted)
        self.assertEqual(verification.with_table(wanted, document), wanted)
        for lacking in (verification.TABLE_BEGIN, verification.TABLE_END):
            with self.assertRaises(SystemExit) as caught:
                verification.with_table(page.replace(lacking, ""), document)
            self.assertIn(f"lacks the mark {lacking.strip()}", str(caught.exception))


class Charts(unittest.TestCase):
    def check(self, svg):
        """The chart is XML, and every mark is inside of it."""
        root = xml.etree.ElementTree.fromstring(svg)
        width, height = float(root.get("width")), float(root.get("height"))
        self.assertEqual(root.get("viewBox"), f"0 0 {width:g} {height:g}")
        marks = [node for node in root.iter() if node.tag.endswith(("}circle", "}rect", "}text", "}line"))]
        self.assertGreater(len(marks), 5)
        for node in marks:
            x = float(node.get("x") or node.get("cx") or node.get("x2"))
            y = float(node.get("y") or node.get("cy") or node.get("y2"))
            self.assertTrue(0 <= x <= width and 0 <= y <= height, node.attrib)
        self.assertIn("prefers-color-scheme: dark", svg)
        return root

    def test_words_of_a_chart_are_escaped(self):
        axis = chart.Axis(0, 10, [(0, "0"), (10, "10")])
        root = self.check(chart.bars("a < b & c", '"about"', [chart.Row("<x>", [5], "5 & more")], axis))
        self.assertIn("<x>", [node.text for node in root.iter()])

    def test_a_logarithmic_axis_places_powers_at_equal_distances(self):
        axis = chart.Axis(10, 1000, [], True)
        self.assertAlmostEqual(axis.x(100) - axis.x(10), axis.x(1000) - axis.x(100), places=0)

    def test_charts_of_the_tree_are_valid_and_name_their_figures(self):
        for path in (ROOT / benchmarks.CHARTS).iterdir():
            self.assertIn(": ", self.check(path.read_text()).get("aria-label"), path)

    def test_a_missing_value_has_no_mark(self):
        axis = chart.Axis(1, 8, [], True)
        both, one = (chart.dots("t", ("a", "b"), [chart.Row("r", [2, value])], axis) for value in (3, None))
        self.assertEqual(both.count("<circle") - one.count("<circle"), 1)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    unittest.main(argv=sys.argv[:1])
