# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Usage: test_bench.py LIBRARY PROGRAMS SIM

Tests of the benchmarks: with canned figures, and for about a second over the stub driver and on the simulated GPU.
"""

import concurrent.futures
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import bars
import book as books
import extras
import figures
import gpu_parts
import limits
import player
import programs
import saved
from player import Cell, Group, Peer, Stage

LIBRARY, PROGRAMS, SIM = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
STUB = {"LD_LIBRARY_PATH": f"{PROGRAMS}:{SIM}"}
STAT = PROGRAMS.parents[1] / "tools" / "gpupool-stat"
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "bench"
TRACES = pathlib.Path(__file__).resolve().parents[1] / "traces"
CELL = Cell("window 64 KiB", {"pattern": "window", "bytes": 65536, "live": 32})


def filled(**peers):
    """A book with one cell, and the given times of each peer in each round."""
    book = books.Book()
    for name, values in peers.items():
        for nth, ns in enumerate(values):
            book.sample("group", CELL, name, nth, {"ns": ns, "cpu_ns": ns / 2})
    return book


class Quiet(unittest.TestCase):
    def setUp(self):
        self.printed = io.StringIO()
        redirect = contextlib.redirect_stdout(self.printed)
        redirect.__enter__()
        self.addCleanup(redirect.__exit__, None, None, None)


class SavedTest(Quiet):
    def test_a_result_file_has_medians_quartiles_ratios_and_peaks(self):
        book = filled(own=[2, 4, 8, 2, 2, 2], split=[1, 2, 3, 1, 1, 1])
        book.sample("group", CELL, "split", 6, {"ns": 1, "pool_peak": 3 << 20})
        book.value("trace a.gz, vmm", 1.5, kind="vmm", trace="a.gz")
        book.calls("loop", "split", 4, {"memory": 0})
        found = saved.document(book, {"command": "scripts/bench"})
        times = {cell["peer"]: (cell["ns"], cell["n"]) for cell in found["cells"]}
        self.assertEqual(times, {"own": (2, 6), "split": (1, 7)})
        (ratio,) = found["ratios"]
        self.assertEqual((ratio["peer"], ratio["base"], ratio["median"], ratio["low"], ratio["high"], ratio["n"]),
                         ("split", "own", 0.5, 0.375, 0.5, 6))
        self.assertEqual(found["peaks"], [{"group": "group", "peer": "split", "key": "pool_peak", "mib": 3}])
        self.assertEqual(found["values"], [{"name": "trace a.gz, vmm", "value": 1.5, "unit": "", "kind": "vmm", "trace": "a.gz"}])
        self.assertEqual(found["calls"], [{"name": "loop", "peer": "split", "pairs": 4, "calls": {"memory": 0}}])

    def test_only_programs_that_took_turns_in_stream_order_are_compared_with_the_driver_s_pool(self):
        book = books.Book()
        for group in ("JAX step, in stream order", "in stream order", "JAX step, in stream order, alone"):
            for peer, ns in (("raw", 4), ("split", 2)):
                book.sample(group, CELL, peer, 0, {"ns": ns})
        kept = saved.document(book, {})
        found = [(row["group"], row["peer"], row["base"], row["median"]) for row in kept["ratios"]]
        self.assertEqual(found, [("JAX step, in stream order", "split", "raw", 0.5)])
        self.assertEqual({row["group"] for row in kept["cells"]}, {"JAX step, in stream order", "in stream order"})

    def test_a_result_file_has_no_empty_members(self):
        self.assertEqual(saved.document(books.Book(), {"command": "scripts/bench"}), {"runs": [{"command": "scripts/bench"}]})


class PairsCountedTest(unittest.TestCase):
    def test_hits_and_misses_of_both_runtimes_run_under_the_preload(self):
        for runtime in ("static", "shared"):
            for case in ("hit", "miss", "stream", "blocking", "legacy", "pool"):
                program = PROGRAMS / f"pairs_counted_{runtime}"
                variables = {**os.environ, **STUB, "LD_PRELOAD": str(LIBRARY), "GPUPOOL_ASYNC": "on"}
                done = subprocess.run([program, case, "20"], env=variables, capture_output=True, text=True, timeout=60,
                                      check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), (runtime, case))


class FiguresTest(unittest.TestCase):
    def test_a_figure_has_the_median_and_the_quartiles(self):
        found = figures.figure([5, 1, 2, 4, 3])
        self.assertEqual((found.n, found.median, found.low, found.high, found.least, found.most), (5, 3, 2, 4, 1, 5))
        self.assertAlmostEqual(found.spread, 1 / 3)
        self.assertIsNone(figures.figure([]))

    def test_ratios_use_only_rounds_that_both_peers_have(self):
        self.assertEqual(figures.paired_ratios({0: 2, 1: 9, 3: 8}, {0: 1, 2: 5, 3: 4}), [2, 2])

    def test_the_interval_of_a_median_needs_at_least_six_values(self):
        self.assertIsNone(figures.median_interval([1, 2, 3, 4, 5]))
        self.assertEqual(figures.median_interval([6, 5, 4, 3, 2, 1]), (1, 6))

    def test_the_interval_of_fifteen_values_is_the_fourth_to_the_twelfth(self):
        self.assertEqual(figures.median_interval(list(range(1, 16))), (4, 12))


class BookTest(Quiet):
    def test_a_ratio_is_taken_for_each_round_and_not_of_medians(self):
        book = filled(raw=[10, 20, 40], split=[20, 40, 80])
        self.assertEqual(book.ratios("group", CELL.name, "split", "raw"), [2, 2, 2])
        self.assertIn("2 ±0%", books.ratio_table(book, "group", "raw")[1])

    def test_a_table_has_a_column_for_each_peer_with_figures(self):
        book = filled(raw=[10, 10], split=[3, 3])
        book.miss("group", "", "rmm", "is not installed")
        lines = books.time_table(book, "group")
        self.assertEqual(lines[0].split(), ["group,", "ns", "raw", "split"])
        self.assertEqual(lines[1].split(), ["window", "64", "KiB", "10", "±0%", "3", "±0%"])
        self.assertEqual(books.missing_lines(book), ["no figure: rmm: is not installed (group)"])

    def test_the_summary_also_names_peers_without_figures(self):
        book = filled(raw=[10, 10])
        book.miss("group", "", "rmm", "is not installed")
        self.assertEqual([(row["peer"], row["missing"]) for row in books.summary(book)],
                         [("raw", None), ("rmm", "is not installed")])
        json.dumps(books.summary(book))

    def test_a_book_file_is_read_back_unchanged(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.jsonl"
            book = books.Book(path)
            book.sample("group", CELL, "raw", 0, {"ns": 1.5})
            book.value("a value", 2)
            self.assertEqual(books.load(path).rows, book.rows)

    def test_driver_calls_are_reported_for_each_pair(self):
        book = books.Book()
        book.calls("window", "split", 100, {"memory": 0, "fence": 50})
        self.assertEqual(books.calls_table(book)[1].split(), ["split:", "window", "0", "0.5"])


class BarsTest(Quiet):
    def judged(self, book, what):
        return next(row for row in bars.judge(book) if row["what"] == what)

    def of_windows(self, **peers):
        """A book with the given time of each peer in every window."""
        book = books.Book()
        for size in bars.UP_TO_1_MIB:
            for name, ns in peers.items():
                for nth in range(3):
                    book.sample("one thread", Cell(f"window {size}", {}), name, nth, {"ns": ns})
        return book

    def of_programs(self, ratios):
        book = books.Book()
        for nth, ratio in enumerate(ratios):
            book.sample("PyTorch training", Cell("step", {}), "own", nth, {"ns": 10.0})
            book.sample("PyTorch training", Cell("step", {}), "split", nth, {"ns": 10.0 * ratio})
        return book

    def test_a_bar_without_a_figure_is_not_measured(self):
        self.assertEqual({row["verdict"] for row in bars.judge(books.Book())}, {"not measured"})

    def test_each_loop_is_compared_on_the_device_once_both_ways_are_measured(self):
        book = books.Book()
        for name, mib in (("transformer, auto", 90.0), ("transformer, expandable", 100.0), ("gpt, auto", 110.0)):
            book.value(f"peak on the device under it, {name}", mib, "MiB")

        def found(loop):
            row = self.judged(book, f"smallest memory of the loop {loop} on the device: auto over expandable segments")
            return row["value"], row["verdict"]

        self.assertEqual((found("transformer"), found("gpt")), ((0.9, "reached"), (None, "not measured")))
        book.value("peak on the device under it, gpt, expandable", 100.0, "MiB")
        self.assertEqual((found("transformer"), found("gpt")), ((0.9, "reached"), (1.1, "NOT REACHED")))

    def test_the_slowest_pair_in_stream_order_counts_and_no_cell_may_be_missing(self):
        what, book = "pair in stream order, vmm, shared runtime: the slowest", books.Book()
        for ns, cell in enumerate(bars.ASYNC_CELLS[1:], 56):
            book.sample("in stream order", Cell(cell, {}), "vmm, shared", 0, {"ns": ns})
        self.assertEqual(self.judged(book, what)["verdict"], "not measured")
        book.sample("in stream order", Cell(bars.ASYNC_CELLS[0], {}), "vmm, shared", 0, {"ns": 50})
        self.assertEqual((self.judged(book, what)["value"], self.judged(book, what)["verdict"]), (60, "reached"))
        book.sample("in stream order", Cell(bars.ASYNC_CELLS[0], {}), "vmm, shared", 1, {"ns": 80})
        self.assertEqual((self.judged(book, what)["value"], self.judged(book, what)["verdict"]), (65, "NOT REACHED"))

    def of_stream_order(self, times, **more):
        """A book of JAX with pairs of times: the driver's, and those of split."""
        book, group = books.Book(), "JAX step, in stream order"
        for nth, pair in enumerate(times):
            for peer, ns in zip(("raw", "split"), pair):
                book.sample(group, Cell("step", {}), peer, nth, {"ns": ns, **more.get(peer, {})})
        return book

    def test_programs_in_stream_order_are_compared_by_pairs_of_runs_and_not_by_their_medians(self):
        what = "JAX step, in stream order, split over the driver: time, median"
        drifting = [(10.0 + nth, 10.0 + nth) for nth in range(4)] + [(4.0, 8.0), (3.0, 6.0), (2.0, 4.0)]
        row = self.judged(self.of_stream_order(drifting), what)
        self.assertEqual((row["value"], row["verdict"], row["note"]), (1.0, "reached", "7 pairs of runs, interval 1.0000 to 2.0000"))
        self.assertEqual(self.judged(self.of_stream_order(drifting[:6]), what)["verdict"], "not measured")

    def test_the_peak_in_stream_order_is_compared_with_the_driver_s_pool(self):
        what = "JAX step, in stream order, split over the driver: peak memory"
        book = self.of_stream_order([(1.0, 1.0)], raw={"own_peak": 100}, split={"pool_peak": 180, "beside": 70})
        self.assertEqual((self.judged(book, what)["value"], self.judged(book, what)["verdict"]), (1.1, "NOT REACHED"))
        for peer, peak in (("raw", 1000), ("split", 900)):
            book.sample("JAX step, in stream order, alone", Cell("step", {}), peer, 0, {"ns": 1.0, "outside_peak": peak})
        self.assertEqual(self.judged(book, what)["note"], "in use on the device: 0.900")

    def test_an_answer_that_differs_from_the_driver_s_misses_the_bar(self):
        what = "JAX step, in stream order: number of different answers"
        book = self.of_stream_order([(1.0, 1.0)], raw={"answer": "1.5"}, split={"answer": "1.5"})
        self.assertEqual(self.judged(book, what)["verdict"], "not measured")
        for answer, verdict in (("1.5", "reached"), ("1.25", "NOT REACHED")):
            book.sample("JAX step, in stream order", Cell("step", {}), "vmm", 0, {"ns": 1.0, "answer": answer})
            self.assertEqual(self.judged(book, what)["verdict"], verdict)

    def test_a_figure_equal_to_its_limit_reaches_the_bar(self):
        what = "window of 32, up to 1 MiB, one thread, static"
        self.assertEqual(self.judged(self.of_windows(split=60), what)["verdict"], "reached")
        self.assertEqual(self.judged(self.of_windows(split=61), what)["verdict"], "NOT REACHED")

    def test_the_best_peer_is_compared_and_absent_peers_are_named(self):
        row = self.judged(self.of_windows(split=10, cub=90, torch=45), "window of 32, up to 1 MiB, one thread: best peer over gpupool")
        self.assertEqual((row["value"], row["verdict"]), (4.5, "reached"))
        self.assertEqual(row["note"], "not compared with async, torch expandable, torch async, rmm")

    def test_a_bar_on_time_uses_the_upper_end_and_needs_fifteen_runs(self):
        what = "PyTorch training over its own cache: time, upper end"
        ratios = [0.99] * 11 + [1.01, 1.03, 1.03, 1.03]
        self.assertEqual(self.judged(self.of_programs(ratios), what)["value"], 1.01)
        self.assertEqual(self.judged(self.of_programs(ratios[:14]), what)["verdict"], "not measured")

    def test_memory_of_other_libraries_is_not_counted_in_pytorchs_peak(self):
        what, book = "peak memory: split over PyTorch's native", books.Book()
        book.sample("PyTorch training", Cell("step", {}), "own", 0, {"ns": 10.0, "own_peak": 1000})
        book.sample("PyTorch training", Cell("step", {}), "split", 0, {"ns": 10.0, "pool_peak": 1100, "beside": 200})
        self.assertEqual((self.judged(book, what)["value"], self.judged(book, what)["verdict"]), (0.9, "reached"))

    def test_a_peak_comes_from_runs_alone_if_runs_in_turn_lack_it(self):
        what, book = "peak memory: vmm over its expandable segments", books.Book()
        group, step = "PyTorch training, alone", Cell("step", {})
        book.sample(group, step, "expandable", 0, {"ns": 10.0, "own_peak": 1000})
        self.assertEqual(self.judged(book, what)["verdict"], "not measured")
        book.sample(group, step, "vmm", 0, {"ns": 10.0, "pool_peak": 1190, "beside": 200})
        self.assertEqual(self.judged(book, what)["value"], 0.99)
        for name, found in (("expandable", {"own_peak": 500}), ("vmm", {"pool_peak": 700, "beside": 100})):
            book.sample("PyTorch training", step, name, 0, {"ns": 10.0, **found})
        self.assertEqual(self.judged(book, what)["value"], 1.2)

    def test_a_driver_call_in_the_steady_state_misses_the_bar_but_a_record_does_not(self):
        what = "driver calls in the steady state, without event records"
        for calls, verdict in [({"memory": 0, "fence": 0, "record": 9}, "reached"), ({"memory": 1}, "NOT REACHED")]:
            book = books.Book()
            book.calls("window", "split", 9, calls)
            self.assertEqual(self.judged(book, what)["verdict"], verdict)


    def test_traces_are_compared_with_another_pool_and_the_worst_ratio_counts(self):
        what = "traces, vmm: that ratio over PyTorch's expandable segments"
        for vmm, expandable, verdict, value in [
                ({"a": 9.0}, {"b": 1.0}, "not measured", None),
                ({"a": 1.2, "b": 1.0, "c": 9.0}, {"a": 1.6, "b": 1.0}, "reached", 1.0),
                ({"a": 1.2, "b": 1.5}, {"a": 1.6, "b": 1.0}, "NOT REACHED", 1.5)]:
            book = books.Book()
            for kind, ratios in (("vmm", vmm), ("torch expandable", expandable)):
                for trace, ratio in ratios.items():
                    book.value(f"trace {trace}, {kind}", ratio, kind=kind, trace=trace)
            self.assertEqual(self.judged(book, what)["verdict"], verdict)
            self.assertEqual(self.judged(book, what)["value"], value)


class PlayersTest(Quiet):
    def play(self, cells, peers, **more):
        book = books.Book()
        with open("/dev/null", "w") as log:
            Stage(book, peers, log, rounds=2, ms=1).run([Group("group", cells)])
        return book

    def test_each_fifth_of_a_comparison_has_new_players(self):
        pids = []

        class Watched(Stage):
            def open(self, group, stack):
                players = super().open(group, stack)
                pids.extend(running.process.pid for running in players.values())
                return players

        book = books.Book()
        peer = Peer("split", [PROGRAMS / "player_driver"], LIBRARY, STUB, kind="split")
        with open("/dev/null", "w") as log:
            stage = Watched(book, [peer], log, rounds=7, ms=1, before=LIBRARY)
            stage.run([Group("group", [Cell("many", {"pattern": "window", "bytes": 65536, "live": 32})])])
        self.assertEqual((len(pids), len(set(pids))), (10, 10))
        for name in ("split", "split, before"):
            self.assertEqual([row["round"] for row in book.rows if row["peer"] == name], list(range(7)))

    def test_players_share_two_processors_in_cells_of_one_thread(self):
        peers = [Peer(name, [PROGRAMS / "player_driver"], LIBRARY, STUB, kind="split") for name in ("one", "two")]
        window = {"pattern": "window", "bytes": 65536, "live": 32}
        for request, rounds in ((window, [0, 1]), ({**window, "threads": 2}, [])):
            with unittest.mock.patch("player.share_processors", side_effect=player.share_processors) as share:
                self.play([Cell("some", request)], peers)
            self.assertEqual([(len(call.args[0]), call.args[1]) for call in share.call_args_list],
                             [(2, nth) for nth in rounds])

    def test_memory_of_libraries_other_than_the_allocator_is_reported(self):
        peer = Peer("split", [PROGRAMS / "player_driver"], LIBRARY, STUB, kind="split")
        with player.programs.private_dir() as directory, open("/dev/null", "w") as log:
            running = player.start(peer, directory, log)
            with contextlib.closing(running):
                player.turn(running, Cell("many", {"pattern": "window", "bytes": 65536, "live": 32}), 1)
                self.assertGreater(running.bytes_of_libraries(["libnone", "player"]), 0)
                self.assertEqual(running.bytes_of_libraries(["libnone"]), 0)
                found = {"ns": 1.0, "own_peak": 5}
                gpu_parts.add_peaks(found, running)
                self.assertGreater(found["pool_peak"], 0)
                self.assertEqual((found["beside"], "own_peak" in found), (0, False))

    def test_the_peak_of_a_pool_of_the_driver_is_read(self):
        program = f"""
import ctypes, sys
sys.path.insert(0, {str(SCRIPT.parents[1] / "tests" / "bench")!r})
import play
block, of_block = ctypes.c_void_p(4096), None
if sys.argv[1:]:
    runtime = ctypes.CDLL(sys.argv[1])
    assert not runtime.cudaMallocAsync(ctypes.byref(block), ctypes.c_size_t(5 << 20), None)
    of_block = play.peak_of_pool_of(block.value)
    assert not runtime.cudaFreeAsync(block, None)
    assert not runtime.cudaDeviceSynchronize()
print(play.default_pool_peak(), of_block, play.peak_of_pool_of(block.value))
"""
        runtime = next(SIM.glob("libcudart.so.*"))
        for words, library in (([runtime], f"{SIM}"), ([], f"{PROGRAMS}")):  # the driver without pools has no such peak
            done = subprocess.run([sys.executable, "-B", "-c", program, *words], capture_output=True, text=True, timeout=60,
                                  check=False, env={**os.environ, "LD_LIBRARY_PATH": library})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            peak, of_block, of_none = done.stdout.split()
            self.assertEqual((of_block, of_none), (peak, "None"))
            if words:
                self.assertGreaterEqual(int(peak), 5 << 20)
            else:
                self.assertEqual(peak, "None")

    def test_programs_in_stream_order_run_alone_once_and_jax_is_the_first(self):
        found = []
        setup = unittest.mock.Mock()
        setup.script.side_effect = lambda name, *_, **__: Peer(name, [])
        with unittest.mock.patch.object(gpu_parts, "run_alone", lambda *words: found.append(words[3:])):
            gpu_parts.PARTS["async-memory"](None, setup, None, None)
        self.assertEqual([group.partition(",")[0] for group, *_ in found],
                         ["JAX step", "CuPy step", "PyTorch training", "RMM step", "RMM step over the default pool"])
        self.assertEqual({runs for *_, runs in found}, {1})
        self.assertEqual([peer.name for peer in found[0][1]], ["raw", "split", "vmm"])

    def test_peers_take_turns_over_the_stub_driver(self):
        words = [PROGRAMS / "player_driver"]
        peers = [Peer("raw", words, variables=STUB), Peer("split", words, LIBRARY, STUB, kind="split")]
        handover = Cell("handover", {"pattern": "handover", "bytes": 512, "threads": 2}, duration_factor=20)
        book = self.play([CELL, handover], peers)
        self.assertEqual(books.missing_lines(book), [])
        order = [(row["round"], row["peer"]) for row in book.samples() if row["cell"] == CELL.name]
        self.assertEqual(order, [(0, "raw"), (0, "split"), (1, "split"), (1, "raw")])
        self.assertTrue(all(row["found"]["ns"] > 0 for row in book.samples()))

    def test_a_peer_that_cannot_run_is_named_with_the_reason(self):
        words = [PROGRAMS / "player_driver"]
        unknown = Cell("unknown", {"pattern": "unknown"})
        peers = [Peer("raw", words, variables=STUB), Peer("gone", [PROGRAMS / "nothing"]),
                 Peer("absent", ["/absent"]), Peer("missing", [], why_missing="is not installed"),
                 Peer("other", words, LIBRARY, {**STUB, "GPUPOOL_POOL": "split"}, kind="binned")]
        book = self.play([CELL, unknown], peers)
        lines = books.missing_lines(book)
        for line in ("raw: pattern, error 0", "gone: ended with 0", "absent: [Errno 2]", "missing: is not installed",
                     "other: this library has no pool of the kind binned"):
            self.assertTrue(any(line in found for found in lines), (line, lines))
        self.assertEqual(book.peers("group"), ["raw"])

    def test_the_stub_driver_counts_its_calls(self):
        book, cells = books.Book(), [CELL]
        with open("/dev/null", "w") as log:
            extras.steady_calls(book, Peer("raw", [PROGRAMS / "player_driver"], variables=STUB), cells, log, 1)
        (row,) = book.rows
        self.assertEqual(row["calls"]["memory"], 2 * row["pairs"])
        self.assertEqual(row["calls"]["record"], 0)

    def test_the_growth_of_a_recording_is_reported_for_each_event(self):
        book, peer = books.Book(), Peer("split", [PROGRAMS / "player_driver"], LIBRARY, STUB, kind="split")
        with open("/dev/null", "w") as log:
            extras.recording_growth(book, peer, [CELL], log, 1)
        (row,) = book.rows
        self.assertEqual((row["name"], row["unit"]), ("recording, window 64 KiB: growth", "B an event"))
        # At least a tag, a time and an address; at most all fields of a record.
        self.assertTrue(3 <= row["value"] <= 100, row)

    def test_a_peer_is_watched_only_during_its_turns(self):
        seen = []

        @contextlib.contextmanager
        def around(running):
            seen.append((running.peer.name, "begins"))
            yield
            seen.append((running.peer.name, "ends"))

        words = [PROGRAMS / "player_driver"]
        self.play([CELL], [Peer("raw", words, variables=STUB), Peer("other", words, variables=STUB, around=around)])
        self.assertEqual(seen, [("other", "begins"), ("other", "ends")] * 3)

    def test_startup_of_a_process_without_cuda_is_measured(self):
        book = books.Book()
        extras.startup(book, PROGRAMS, LIBRARY, 5)
        self.assertEqual(book.value_of("preload without CUDA: threads"), 0)
        self.assertEqual(book.value_of("preload without CUDA: open files"), 0)
        self.assertEqual(book.value_of("preload without CUDA: files made"), 0)

    def test_each_first_call_of_a_process_has_a_row(self):
        book, words = books.Book(), [PROGRAMS / "first"]
        peers = [Peer("raw", words, variables=STUB), Peer("split", words, LIBRARY, STUB, kind="split"),
                 Peer("broken", ["false"])]
        extras.first_calls(book, peers, 2)
        (group,) = book.groups()
        self.assertEqual(book.peers(group), ["raw", "split"])
        self.assertEqual(book.cells(group)[:3], ["first allocation", "first free", "second allocation"])
        self.assertIn("first release", book.cells(group))
        self.assertEqual(len(book.rounds(group, "first release", "split")), 2)
        self.assertEqual(book.why(group, "first release", "broken"), "false ended with 1")

    def test_the_start_of_a_process_is_measured_alone_and_beside_another_process(self):
        book, words = books.Book(), [PROGRAMS / "cold"]
        start = Peer("raw", [*words, "start"], variables=STUB)
        for what, loop in (("alone", None), ("beside", Peer("raw", [*words, "loop", "1"], variables=STUB))):
            extras.start_of_neighbour(book, what, loop, start, 3)
            self.assertGreater(book.value_of(what), 0)
        with self.assertRaises(programs.Trouble):
            extras.start_of_neighbour(book, "ended", Peer("ended", ["true"]), start, 1)

    def test_the_smallest_limit_of_a_program_is_found(self):
        with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as runs:
            for least, peer in ((2001, Peer("own", ["sh", "-c", "test $1 -ge 2001"])),
                                (1700, Peer("auto", ["sh", "-c", "test ${GPUPOOL_LIMIT%MiB} -ge 1700"], LIBRARY, STUB)),
                                (None, Peer("none", ["sh", "-c", "exit 1"]))):
                search = limits.Search("gpt", peer.name, peer, pathlib.Path(folder))
                found = search.least(runs)
                if least:
                    self.assertLessEqual(least, found)
                    self.assertLessEqual(found, least + limits.STEP_MIB)
                else:
                    self.assertIsNone(found)
        for least in range(1, 101):
            self.assertEqual(limits.least(lambda values, least=least: [value >= least for value in values], 0, 100, 1),
                             least)
        self.assertIsNone(limits.least(lambda values: [False for _ in values], 0, 100, 1))
        works = {25: False, 50: True, 75: False, 100: True}
        self.assertEqual(limits.least(lambda values: [works.get(value, value > 80) for value in values], 0, 100, 1), 81)

    def peak_of(self, mib, peak=3 << 20):
        """The values, and the reasons for missing ones, of a program that needs the MiB. The search has found 1700."""
        class Watch(contextlib.nullcontext):
            def __enter__(self):
                return self

            def peak(self):
                return peak

        book = books.Book()
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(limits, "MemoryWatch", Watch):
            peer = Peer("own", ["sh", "-c", f"test $1 -ge {mib}"])
            limits.Search("gpt", "own", peer, pathlib.Path(folder)).measure_peak(book, 1700)
        return {row.get("name"): row["value"] for row in book.rows if row["type"] == "value"}, [
            row["why"] for row in book.rows if row["type"] == "miss"]

    def test_the_peak_is_that_of_the_first_run_alone_that_finishes_and_its_limit_is_shown(self):
        for mib, limit in ((1700, 1700), (1712, 1716), (1764, 1764)):
            self.assertEqual(self.peak_of(mib), ({"peak on the device under it, gpt, own": 3.0,
                                                    "limit of that run, gpt, own": limit}, []))

    def test_a_peak_that_cannot_be_measured_has_a_reason(self):
        self.assertEqual(self.peak_of(1765), ({}, ["fails alone with 1700 to 1764 MiB"]))
        self.assertEqual(self.peak_of(1700, None), ({}, ["the memory in use on the device cannot be read"]))

    def test_the_ways_that_a_bar_compares_are_complete_before_the_others_begin(self):
        done = []
        setup = unittest.mock.Mock()
        setup.script.side_effect = lambda name, *_, **__: Peer(name, [])
        with unittest.mock.patch.multiple(
                limits.Search, least=lambda search, _: done.append(f"{search.way} limit") or 1300,
                measure_peak=lambda search, *_: done.append(f"{search.way} peak")):
            limits.measure(books.Book(), setup, None, [], ["gpt"])
        self.assertEqual([sorted(done[:2]), done[2:4], sorted(done[4:6]), done[6:]],
                         [["auto limit", "expandable limit"], ["auto peak", "expandable peak"],
                          ["own limit", "split limit"], ["split peak", "own peak"]])

    def test_only_the_selected_ways_are_searched(self):
        setup, book = unittest.mock.Mock(), books.Book()
        setup.script.side_effect = lambda name, *_, **__: Peer(name, ["sh", "-c", "test $1 -ge 1300"])
        with tempfile.TemporaryDirectory() as folder:
            limits.measure(book, setup, pathlib.Path(folder), ["expandable"], ["gpt"])
        self.assertEqual(book.rows[0]["name"], "smallest limit, gpt, expandable")
        self.assertTrue(1300 <= book.rows[0]["value"] < 1300 + limits.STEP_MIB)
        self.assertEqual({row.get("peer", "expandable") for row in book.rows}, {"expandable"})

    @unittest.skipUnless(STAT.exists(), "gpupool-stat was not built")
    def test_a_trace_is_replayed_through_another_pool(self):
        answer = """
import csv, os, sys
rows = list(csv.DictReader(sys.stdin))
held = {row["Action"]: len([other for other in rows if other["Action"] == row["Action"]]) for row in rows}
print(f"peak reserved={held['allocate'] * int(os.environ['TIMES'])} allocated={held['free']}")
"""
        words = [sys.executable, "-c", answer]
        book = books.Book()
        for peer in (Peer("other", words, variables={"TIMES": "3"}), Peer("broken", ["false"]),
                     Peer("full", ["sh", "-c", "echo at first >&2; echo no memory >&2; exit 3"]),
                     Peer("silent", ["true"]), Peer("gone", ["/nowhere/trace"]),
                     Peer("absent", [], why_missing="needs a GPU")):
            extras.replay_through_peer(book, STAT, TRACES / "cupy.txt.gz", peer)
        self.assertEqual(book.value_of("trace cupy.txt.gz, other: peak reserved over peak allocated"), 3)
        missed = {row["peer"]: row["why"] for row in book.rows if row["type"] == "miss"}
        self.assertEqual(list(missed), ["broken", "full", "silent", "gone", "absent"])
        self.assertEqual((missed["broken"], missed["full"], missed["absent"]),
                         ("false ended with 1", "no memory", "needs a GPU"))

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_traces_are_replayed_through_pytorchs_pools_on_the_simulated_gpu(self):
        with tempfile.TemporaryDirectory() as folder:
            words = [SCRIPT, "--sim", PROGRAMS.parents[1], "--out", folder, "--part", "traces"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False,
                                  env={**os.environ, "PYTHON": sys.executable})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            rows = json.loads((pathlib.Path(folder) / "results.json").read_text())["rows"]
        self.assertEqual([row for row in rows if row["type"] == "miss"], [])
        found = {(row["trace"], row["kind"]): row["value"] for row in rows if row["type"] == "value"}
        for path in TRACES.glob("*.gz"):
            self.assertGreaterEqual(found[path.name, "torch"], found[path.name, "torch expandable"], path.name)
            self.assertGreaterEqual(found[path.name, "torch expandable"], 1, path.name)

    def test_only_the_named_peers_run_and_an_unknown_name_is_reported(self):
        missed = []
        found = player.select_peers([Peer("raw", "a"), Peer("split", "b")], ["split", "splt"],
                                 lambda *words: missed.append(words))
        self.assertEqual([peer.name for peer in found], ["split"])
        self.assertEqual(missed, [("splt", "unknown peer in this part")])

    def test_the_script_runs_on_the_simulated_gpu(self):
        with tempfile.TemporaryDirectory() as folder:
            words = [SCRIPT, "--sim", PROGRAMS.parents[1], "--scale", "0.1", "--out", folder]
            for part in ("pinned", "loops", "cupy", "costs", "async"):
                words += ["--part", part]
            words += ["--save", f"{folder}/saved"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            found = json.loads((pathlib.Path(folder) / "results.json").read_text())
            kept = {path.stem: json.loads(path.read_text()) for path in (pathlib.Path(folder) / "saved").iterdir()}
        self.assertEqual(found["parts"], {"pinned": 0, "loops": 0, "cupy": 0, "costs": 0, "async": 0})
        for peer in ("raw", "raw, shared", "split", "split, shared", "vmm", "vmm, shared"):
            cells = [cell["cell"] for cell in kept["async"]["cells"] if cell["peer"] == peer]
            self.assertEqual(cells, list(bars.ASYNC_CELLS))
        self.assertEqual(kept["pinned"]["runs"][0]["command"], "scripts/bench --part pinned --scale 0.1")
        self.assertEqual(kept["pinned"]["runs"][0]["hardware"], "the simulated GPU")
        self.assertIn(("pinned 1 MiB", "raw"), {(cell["cell"], cell["peer"]) for cell in kept["pinned"]["cells"]})
        self.assertEqual({ratio["base"] for ratio in kept["costs"]["ratios"]}, {"split alone"})
        timed = {(row["cell"], row["peer"]) for row in found["cells"] if row["ns"]}
        self.assertIn(("overlap 4 MiB", "split"), timed)
        self.assertIn(("pinned 1 MiB", "raw"), timed)
        for peer in ("split alone", "stacks", "stacks, sample", "debug", "recording", "watched"):
            self.assertIn(("kernel 1 MiB, 4 streams", peer), timed)
        self.assertIn("no figure: cub: needs a GPU", done.stdout)
        self.assertEqual(len(found["bars"]), len(bars.BARS))

    def test_the_script_compares_two_libraries_by_turns(self):
        library = PROGRAMS.parents[1] / "shim" / "libgpupool.so"
        with tempfile.TemporaryDirectory() as folder:
            words = [SCRIPT, "--sim", PROGRAMS.parents[1], "--scale", "0.4", "--out", folder, "--part", "pinned",
                     "--peer", "split", "--before", library]
            done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
            found = json.loads((pathlib.Path(folder) / "results.json").read_text())
        self.assertEqual({row["peer"] for row in found["cells"] if row["ns"]}, {"split", "split, before"})
        self.assertRegex(done.stdout, r"pinned, / before +split\npinned 4 KiB +[0-9.]+ \([0-9.]+ to [0-9.]+\)\n")
        self.assertRegex(done.stdout, r"[0-3] of 3 figures are slower than before by more than 5 %")

    def test_the_script_refuses_a_library_that_is_not_there(self):
        done = subprocess.run([SCRIPT, "--sim", PROGRAMS.parents[1], "--before", "none.so"], capture_output=True,
                              text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no library none.so", done.stderr)

    def test_the_script_reports_a_folder_that_is_not_a_build(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([SCRIPT, "--sim", folder], capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual((done.returncode, done.stderr),
                         (1, f"bench: {folder} is not a build directory with tests\n"))

    def test_the_script_refuses_to_save_the_times_of_two_libraries(self):
        done = subprocess.run([SCRIPT, "--before", LIBRARY, "--save", "saved"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr.count("--save keeps the times of one library")), (2, 1))

    def test_the_usage_of_the_script_lists_its_parts_by_number(self):
        printed = " ".join(subprocess.run([SCRIPT, "--help"], capture_output=True, text=True, check=True).stdout.split())
        listed = ", ".join(f"{nth} {name}" for nth, name in enumerate(gpu_parts.PARTS, 1))
        self.assertIn(f"only this part: {listed} --peer", printed)

    def test_the_script_measures_only_the_named_peers(self):
        with tempfile.TemporaryDirectory() as folder:
            words = [SCRIPT, "--sim", PROGRAMS.parents[1], "--scale", "0.1", "--out", folder, "--part", "pinned",
                     "--peer", "split", "--peer", "splt"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
            found = json.loads((pathlib.Path(folder) / "results.json").read_text())
        self.assertEqual({row["peer"] for row in found["cells"] if row["ns"]}, {"split"})
        self.assertIn("no figure: splt: unknown peer in this part", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
