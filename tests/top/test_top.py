# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Usage: test_top.py GPUPOOL-STAT

Tests the screen of gpupool-stat top on an emulated terminal, with processes that answer well, badly or not at all.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import termios
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import peers
from peers import GIB, Peer, status
from terminal import ENTER_SCREEN, LEAVE_SCREEN, SHOW_CURSOR, Terminal

STAT = pathlib.Path(sys.argv[1]).resolve()
FAST_UPDATES = "--watch=0.05"


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.started = folder.name, []
        self.addCleanup(self.end_peers)

    def end_peers(self):
        for peer in self.started:
            if peer.pid:
                peer.kill()

    def peer(self, *args, **more):
        self.started.append(Peer(self.folder, *args, **more))
        return self.started[-1]

    def env(self, **more):
        """Variables that keep top from searching the directories where other processes may have sockets."""
        return {"GPUPOOL_RUNTIME_DIR": self.folder, "TMPDIR": self.folder, "XDG_RUNTIME_DIR": None, "NO_COLOR": None,
                **more}

    def top(self, *words, columns=80, rows=24, **env):
        terminal = Terminal([STAT, "top", FAST_UPDATES, *words], columns, rows, self.env(**env))
        self.addCleanup(terminal.close)
        return terminal

    def table_lines(self, terminal, title):
        """The lines of the table below the line with the title."""
        for nth, line in enumerate(terminal.lines):
            if title in line:
                return [below for below in terminal.lines[nth + 1:-1] if below.strip()]
        raise AssertionError(f"no {title!r} on the screen:\n{terminal.text}")


class Watch(Case):
    """The rates of the commands that print text."""

    def watch(self, *words):
        done = subprocess.run([STAT, *words, "--watch=0.01", "--count=2"], env={**os.environ, "GPUPOOL_RUNTIME_DIR": self.folder},
                              capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.rstrip("\n").split("\n\n")

    def test_status_shows_rates_from_the_second_answer_on(self):
        growth = {"hits": 1200, "misses": 34, "driver_allocs": 2, "driver_frees": 1, "driver_ns": 5_000_000}
        peer = self.peer({"status": status(growth=growth)})
        done = subprocess.run([STAT, "status", "--watch=0.01", "--count=2", str(peer.pid)], capture_output=True, text=True,
                              env={**os.environ, "GPUPOOL_RUNTIME_DIR": self.folder}, timeout=60, check=True)
        rates = re.findall(r"^  per second .*$", done.stdout, re.M)
        self.assertEqual(rates, ["  per second            1.23k  allocations, 34.0 misses, 3.00 driver calls, 0.5% of the time in them",
                                 "  per second                0  allocations, 0 misses, 0 driver calls, 0.0% of the time in them"])
        self.assertGreater(done.stdout.index("per second"), done.stdout.rindex("device 0"))

    def test_list_shows_allocations_per_second(self):
        self.peer({"status": status("aaa", growth={"hits": 1200})})
        first, second = self.watch("list")
        self.assertRegex(first, r"TOTAL  ALLOC/S  COMMAND\n.* GiB        -  aaa$")
        self.assertRegex(second, r"TOTAL  ALLOC/S  COMMAND\n.* GiB    1.20k  aaa$")

    def test_table_of_processes_fits_a_terminal_of_80_columns(self):
        for name in ("aaa ", "bbb "):
            self.peer({"status": status(name + 9 * "long words ")}, env={"SLURM_JOB_ID": "881234567", "SLURM_PROCID": "3"})
        terminal = Terminal([STAT], 80, 24, self.env())
        self.addCleanup(terminal.close)
        terminal.wait_for("gpupool-stat PID shows one process")
        head, first, second, total, hint = [line for line in terminal.lines if line.strip()]
        self.assertRegex(head, r"^ *PID  USER +DEVICE +USED +CACHED +TOTAL  JOB +COMMAND$")
        for line in (first, second):
            self.assertRegex(line, r" 0 +4.00 GiB  2.00 GiB  6.00 GiB  job 88123456  (aaa|bbb) long")
        self.assertRegex(total, r"^ *all +0 +8.00 GiB  4.00 GiB  12.0 GiB .* 9.00 GiB")
        self.assertIn("with all its counters", hint)

    def test_lines_of_an_advice_break_between_words(self):
        blocks = [(f"{0x7f0000000000 + (nth << 24):x}", 3_000_000 + nth * 70_000) for nth in range(40)]
        events = [f"a {address} {size}" for address, size in blocks]
        events += [f"f {address}" for address, _ in blocks[::2]] + [f"a {0x7e << 40:x} 90000000"]
        trace = pathlib.Path(self.folder, "trace.txt")
        trace.write_text("\n".join(events) + "\n")
        terminal = Terminal([STAT, "advise", trace], 60, 60, self.env())
        self.addCleanup(terminal.close)
        terminal.wait_for("expected to take")
        self.assertRegex(terminal.text, r"(?m)^at the peak of split .* the\s*$\n^  \w")

    def test_table_of_processes_shows_allocations_per_second(self):
        for name, hits in (("aaa", 1200), ("bbb", 300)):
            self.peer({"status": status(name, growth={"hits": hits})})
        first, second = self.watch()
        self.assertIn("TOTAL  ALLOC/S  COMMAND\n", first)
        self.assertRegex(first, r"(?m)^ *all .*        -  [\d.]+ GiB free of 16.0 GiB$")
        self.assertRegex(second, r" 1.20k  aaa")
        self.assertRegex(second, r"(?m)^ *all .* 1.50k  [\d.]+ GiB free of 16.0 GiB$")


class Screen(Case):
    def test_80_by_24_shows_devices_a_plot_and_processes(self):
        peer = self.peer()
        top = self.top()
        top.wait_for("gpupool-stat top", "1 process ", "? help", "./solver")
        self.assertIn(" 6.00 GiB of 16.0 GiB", top.lines[1])
        bar = re.search(r"device 0 \[(█+)(▒+)(░+)(·+)\]", top.lines[1])
        self.assertTrue(bar, top.text)
        used, cached, outside, rest = (len(part) for part in bar.groups())
        whole = used + cached + outside + rest
        for columns, gib in ((used, 4), (cached, 2), (outside, 1), (rest, 9)):
            self.assertLessEqual(abs(columns - whole * gib / 16), 1, top.text)
        self.assertEqual(top.lines[2], " █used 4.00G ▒cached 2.00G ░outside 1.00G ·free 9.00G")
        self.assertIn("device 0, the last", top.lines[3])
        axis = [line[:9].strip() for line in top.lines if line[9:10] == "|"]
        self.assertEqual(axis, ["6.00 GiB", *[""] * (len(axis) - 2), "0 B"])
        row, = self.table_lines(top, "COMMAND")
        self.assertRegex(row, rf"^> +{peer.pid} \w+ +\d+s  4.00 GiB  2.00 GiB  6.00 GiB  90.0% ./solver --step$")

    def test_a_large_terminal_shows_more_columns_and_larger_plots(self):
        growth = {"hits": 1200, "misses": 34, "driver_allocs": 3}
        self.peer({"status": status(growth=growth, peak_total_bytes=7 * GIB, limit_bytes=8 * GIB, n_used_blocks=312)})
        other = status("./other", uuid="GPU-2", index=1, device_total_bytes=8 * GIB, device_free_bytes=0)
        self.peer({"status": other})
        top = self.top(columns=200, rows=60)
        top.wait_for("./solver", "1.23k", "device 0, the last", "device 1 ", "the last 9.50 s")
        title = next(line for line in top.lines if " PID " in line)
        for heading in ("DEVICES", "POOL", "PEAK", "LIMIT", "BLOCKS", "HITS", "ALLOC/S", "MISS/S", "OOM", "COMMAND"):
            self.assertIn(heading, title)
        row = next(line for line in self.table_lines(top, "COMMAND") if "./solver" in line)
        self.assertRegex(row, " 0 +split .* 7.00 GiB +8.00 GiB +312 .* 1.23k +34.0 +0 ./solver --steps 9$")
        row = next(line for line in self.table_lines(top, "COMMAND") if "./other" in line)
        self.assertRegex(row, " 1 +split .* 0 B +- +0 .* 0 +0 +0 ./other$")
        axes = [line for line in top.lines if line[9:10] == "|"]
        self.assertGreater(len(axes), 36)
        self.assertEqual(sum("the last" in line for line in top.lines), 2)

    def test_a_plot_takes_at_most_half_of_the_screen(self):
        self.peer()
        top = self.top(columns=200, rows=60)
        top.wait_for("./solver")
        self.assertEqual(sum(line[9:10] == "|" for line in top.lines), 29)

    def test_screen_is_drawn_at_every_terminal_size(self):
        self.peer()
        for columns, rows in ((80, 24), (40, 10), (200, 60), (20, 6), (9, 4), (2, 1), (500, 3)):
            with self.subTest(columns=columns, rows=rows):
                top = self.top(columns=columns, rows=rows)
                top.wait_for("? help"[:columns].strip())
                for keys in ("?", " ", "\r", "2", "3", "4", "\x1b", "p"):
                    top.press(keys)
                top.wait(lambda: top.text.strip(), "any text")
                if columns >= 40 and rows >= 10:
                    top.wait_for("device 0", "USED", "4.00 GiB")
                top.press("q")
                self.assertEqual(top.end(), 0)

    def test_columns_follow_the_size_after_a_resize(self):
        self.peer()
        top = self.top(columns=40, rows=10)
        top.wait_for("PID", "TOTAL")
        self.assertNotIn("CACHED", top.text)
        for columns, rows, column in ((200, 60, "PENDING"), (80, 24, "HITS"), (60, 12, "CACHED"), (200, 60, "OOM")):
            top.resize(columns, rows)
            top.wait_for(column)
            top.wait(lambda: "? help" in top.lines[-1], "the last line")
        self.assertEqual(sum("gpupool-stat top" in line for line in top.lines), 1)

    def test_output_without_utf_8_is_ascii(self):
        self.peer({"status": status(command="./sölver")})
        for words, env in ((("--ascii",), {}), ((), {"LC_ALL": "C"}), ((), {"LC_ALL": "POSIX"})):
            with self.subTest(words=words, env=env):
                top = self.top(*words, **env)
                top.wait_for("?lver", "[####")
                self.assertRegex(top.lines[1], r"\[#+=+o+\.+\]")
                for key in ("2", "3", "?"):
                    top.press("\r" + key)
                top.wait_for("PgUp")
                self.assertTrue(top.raw.isascii(), top.text)

    def test_screen_without_colours_shows_the_same(self):
        self.peer()
        colored = re.compile(rb"\x1b\[(?:\d+;)*3[0-7](?:;\d+)*m")
        for words, env, has_color in (((), {}, True), (("--no-color",), {}, False), ((), {"NO_COLOR": "1"}, False),
                                      ((), {"TERM": "vt100"}, False), ((), {"NO_COLOR": ""}, True)):
            with self.subTest(words=words, env=env):
                top = self.top(*words, **env)
                top.wait_for("./solver", "outside 1.00G")
                self.assertEqual(bool(colored.search(top.raw)), has_color)
                self.assertRegex(top.lines[1], r"\[█+▒+░+·+\]")

    def test_processes_of_a_job_show_their_job_and_rank(self):
        self.peer(env={"SLURM_JOB_ID": "8812", "SLURM_PROCID": "3"})
        self.peer(env={"OMPI_COMM_WORLD_RANK": "1\x1b[2J"})
        top = self.top(columns=100)
        top.wait_for("JOB", "job 8812 rank 3", "rank 1?[2J")

    def test_a_process_that_is_asleep_says_so_before_its_command(self):
        asleep = {"state": "asleep", "asleep_bytes": 28 << 20, "asleep_ns": 303_000_000_000}
        self.peer({"status": {**status("./sleeper"), "sleep": asleep}})
        self.peer({"status": {**status("./waker"), "sleep": {"state": "waking"}}})
        self.peer({"status": {**status("./worker"), "sleep": {"state": "awake"}}})
        top = self.top(columns=120)
        top.wait_for("asleep 28.0 MiB 5m03s | ./sleeper", "waking | ./waker", "./worker")
        self.assertNotIn("| ./worker", "\n".join(top.lines))

    def test_a_process_with_memory_in_the_host_says_how_much_and_how_long_its_use_takes(self):
        spill = {"host_bytes": 2 * GIB, "copied_bytes": 4 * GIB, "copied_ns": 86_000_000}
        self.peer({"status": {**status("./spiller"), "spill": spill}})
        self.peer({"status": {**status("./copied-nothing"), "spill": {"host_bytes": 2 * GIB, "copied_bytes": 0, "copied_ns": 0}}})
        self.peer({"status": {**status("./worker"), "spill": {**spill, "host_bytes": 0}}})
        top = self.top(columns=120)
        top.wait_for("in host 2.00 GiB 43.0 ms | ./spiller", "in host 2.00 GiB | ./copied-nothing", "./worker")
        self.assertNotIn("| ./worker", "\n".join(top.lines))

    def test_devices_are_matched_by_uuid_across_processes(self):
        for used, index, uuid in ((1, 0, "aaaaaaaa"), (2, 0, "bbbbbbbb"), (4, 1, "aaaaaaaa")):
            self.peer({"status": status(used=used * GIB, cached=0, index=index, uuid=f"GPU-{uuid}-6c61-7465-6420-677075")})
        top = self.top()
        top.wait_for(" 5.00 GiB of 16.0 GiB", " 2.00 GiB of 16.0 GiB")
        bars = [line.split("[")[0] for line in top.lines if " of 16.0 GiB" in line]
        self.assertEqual(bars, ["device 0 GPU-aaaaaaaa ", "device 0 GPU-bbbbbbbb "])
        top.press("\r4")
        top.wait_for("[4 counters]", "GPU-aaaaaaaa-6c61-7465-6420-677075")

    def test_top_waits_while_there_is_no_process(self):
        top = self.top()
        top.wait_for("no process with gpupool", "0 processes")
        self.peer()
        top.wait_for("./solver", "1 process ")


    def test_omitted_processes_are_reported_as_incomplete(self):
        if os.geteuid():
            self.skipTest("only root can make directories of other users")
        for nth in range(1100):
            pathlib.Path(self.folder, f"{2000000 + nth}.{nth + 1}.sock").touch()
        os.chmod(self.folder, 0o700)
        os.chown(self.folder, 65533, 65533)
        self.top(columns=120).wait_for("256 processes (incomplete)")


class Keys(Case):
    def start(self, *words, **more):
        for command, used, cached in (("aaa", 1, 3), ("bbb", 3, 2), ("ccc", 2, 1)):
            self.peer({"status": status(command, used * GIB, cached * GIB)})
        top = self.top(*words, **more)
        top.wait_for("aaa", "bbb", "ccc")
        return top

    def order(self, top):
        return "".join(re.findall(r"(a|b|c)\1\1$", "\n".join(self.table_lines(top, "COMMAND")), re.M))

    def test_processes_are_sorted_as_the_title_says(self):
        top = self.start()
        for name, order in (("used", "bca"), ("total", "bac"), ("cached", "abc")):
            top.wait_for(f"by {name} "[:-1])
            top.wait(lambda order=order: self.order(top) == order, order)
            top.press("s")
        top.press("Sooo")
        top.wait_for("by cached, reversed")
        top.wait(lambda: self.order(top) == "cba", "cba")

    def test_filter_shows_only_matching_processes(self):
        top = self.start()
        top.press("/BB")
        top.wait_for("filter: BB_")
        top.wait_until_gone("aaa")
        top.press("\r")
        top.wait_for("filter 'BB'", "bbb")
        top.press("\x1b")
        top.wait_for("aaa")
        top.press("/zzz")
        top.wait_for("no process matches the filter")
        top.press("\x7f\x7f\x7f")
        top.wait_for("ccc")

    def test_process_view_shows_every_tab(self):
        top = self.start()
        top.press("\x1b[B\r")  # the second: ccc
        for key, parts in (("1", ("[1 sizes]", "1.00 GiB and more")), ("2", ("[2 segments]", "0x7f0000000000", "██····")),
                           ("3", ("[3 call sites]", "solver+0x1000", "(no stack)")),
                           ("4", ("[4 counters]", "requested_bytes")), ("5", ("[5 regions]", "no regions"))):
            top.press(key)
            top.wait_for("ccc", *parts)
        top.press("\t")
        top.wait_for("[1 sizes]")
        top.press("\x1b")
        top.wait_for("CACHED", "aaa")

    def test_counters_have_their_rate_beside_them(self):
        self.peer({"status": status("ccc", growth={"hits": 1200, "used_bytes": GIB})})
        top = self.top()
        top.wait_for("ccc")
        top.press("\r4")
        top.wait_for("COUNTER                         VALUE   PER SECOND")
        top.wait(lambda: re.search(r"\n hits +\d+ +1.20k", top.text), "the rate of the hits")
        self.assertRegex(top.text, r"\n used_bytes +[\d.]+ GiB *\n")

    def test_regions_are_listed_with_their_device(self):
        regions = [{"name": name, "used_bytes": GIB, "cached_bytes": 2 * GIB, "pending_bytes": 0, "total_bytes": 3 * GIB}
                   for name in ("forward", "a\x1b[2J\u202eb")]
        self.peer({"status": status("ccc", by_region=regions)})
        top = self.top()
        top.wait_for("ccc")
        top.press("\r5")
        top.wait_for("[5 regions]", "DEVICE      USED    CACHED   PENDING     TOTAL  REGION",
                     "     0  1.00 GiB  2.00 GiB       0 B  3.00 GiB  forward", "a?[2J")

    def test_question_mark_key_shows_help(self):
        top = self.start()
        top.press("?")
        top.wait_for("give its cached memory back")
        top.wait_for("1 2 3 4 5, Tab      its pages: sizes, segments, call sites, counters, regions")
        top.press("x")
        top.wait_until_gone("give its cached memory back")
        top.wait_for("aaa")

    def test_pause_sends_no_requests(self):
        peer = self.peer()
        top = self.top()
        top.wait_for("./solver")
        top.press("p")
        top.wait_for("PAUSED")
        before = len(peer.requests())
        top.press("?")
        top.wait_for("PgUp")
        top.press("x")
        top.wait_until_gone("PgUp")
        self.assertEqual(len(peer.requests()), before)
        top.press("p")
        top.wait(lambda: len(peer.requests()) > before, "a request")

    def test_plus_and_minus_keys_change_the_interval(self):
        top = self.start()
        top.press("++")
        top.wait_for("every 0.5 s")
        top.press("-")
        top.wait_for("every 0.2 s")

    def test_reclaim_needs_allow_changes_and_confirmation(self):
        peer = self.peer()
        top = self.top()
        top.wait_for("./solver")
        top.press("R")
        top.wait_for("to change a process, start top with --allow-changes")
        top.press("yY\ry")
        top.press("q")
        self.assertEqual(top.end(), 0)
        top = self.top("--allow-changes")
        top.wait_for("./solver")
        top.press("R")
        top.wait_for(f"pid {peer.pid}: give 2.00 GiB of cached memory back to the driver? y/n")
        top.press("n")
        top.wait_for("nothing was changed")
        self.assertFalse([line for line in peer.requests() if "reclaim" in line])
        top.press("R")
        top.wait_for("y/n")
        top.press("y")
        top.wait_for(f"pid {peer.pid} gave 2.00 GiB back to the driver")
        self.assertEqual([line for line in peer.requests() if "reclaim" in line], ["reclaim"])


    def test_confirmation_for_an_ended_process_reclaims_from_no_other(self):
        ending = self.peer({"status": status("prog-ends", used=3 * GIB)})
        staying = self.peer({"status": status("prog-stays", used=GIB)})
        top = self.top("--allow-changes")
        top.wait_for("prog-ends", "prog-stays")
        top.press("R")
        top.wait_for(f"pid {ending.pid}: give")
        ending.kill()
        top.wait_until_gone("prog-ends")
        top.press("y?")
        top.wait_for("PgUp")
        self.assertFalse([line for line in staying.requests() if "reclaim" in line])


class Processes(Case):
    def test_killed_process_leaves_the_screen(self):
        killed = self.peer({"status": status("prog-killed")})
        self.peer({"status": status("prog-stays")})
        top = self.top()
        top.wait_for("prog-killed", "prog-stays", "2 processes", "12.0 GiB of")
        killed.kill()
        top.wait_until_gone("prog-killed")
        top.wait_for("prog-stays", "1 process ", "6.00 GiB of")

    def test_stopped_process_keeps_its_numbers_and_delays_no_other(self):
        stopped = self.peer({"status": status("prog-stops", used=GIB)})
        ending = self.peer({"status": status("prog-ends")})
        top = self.top("--timeout=0.2", columns=120)
        top.wait_for("prog-stops", "prog-ends")
        os.kill(stopped.pid, signal.SIGSTOP)
        top.wait_for("is stopped (state T)")
        row, = (line for line in top.lines if "is stopped" in line)
        self.assertIn("1.00 GiB", row)
        before = len(ending.requests())
        top.wait(lambda: len(ending.requests()) > before + 50, "fifty requests to the other process")
        top.press("?")
        top.wait_for("PgUp")
        top.press("x")
        os.kill(stopped.pid, signal.SIGCONT)
        top.wait_until_gone("is stopped")

    def test_view_of_a_killed_process_keeps_its_last_contents(self):
        killed = self.peer()
        top = self.top()
        top.wait_for("./solver")
        top.press("\r2")
        top.wait_for("0x7f0000000000")
        killed.kill()
        top.wait_for("has ended.", "0x7f0000000000")
        top.press("\x1b")
        top.wait_for("no process with gpupool")

    def test_hostile_answers_do_not_disturb_the_screen(self):
        self.peer({"status": status("good")})
        hostile = status("a\x1b[2J\x9b\u202eb\ud800", used=(1 << 63) - 1)
        hostile["devices"] = hostile["devices"] * 200
        for answer in ("endless", "", "[[[", "{}", hostile, "{\"schema\":\"gpupool.status/2\",\"devices\":[1,{},[]]}",
                       status("漢字 wide ä", index=(1 << 62), device_total_bytes=7)):
            self.peer({"status": answer, "leaks": answer, "map": answer})
        top = self.top("--timeout=0.3", columns=120, rows=40)
        top.wait_for("good", "sent an answer of more than", "is not a JSON object", "漢字")
        self.assertFalse(re.search(rb"\x1b\[2J\xc2\x9b|\xe2\x80\xae|\xc2\x9b", top.raw))
        for key in "\x1b[B" * 3, "\x1b[6~", "\x1b[F":
            top.press(key + "\r")
            top.wait_for("[1 sizes]")
            top.press("2345")
            top.wait_for("[5 regions]")
            top.press("\x1b")
            top.wait_for("COMMAND")
        top.wait_for("good")


class Ends(Case):
    def check_terminal(self, top):
        self.assertGreater(top.raw.rfind(LEAVE_SCREEN), top.raw.rfind(ENTER_SCREEN))
        self.assertGreater(top.raw.rfind(SHOW_CURSOR), top.raw.rfind(b"\x1b[?25l"))
        self.assertEqual(termios.tcgetattr(top.fd), top.modes)

    def test_every_way_to_end_restores_the_terminal(self):
        self.peer()
        for end, code in (("q", 0), ("\x03", -signal.SIGINT), ("\x1c", -signal.SIGQUIT), (signal.SIGTERM, -signal.SIGTERM),
                          (signal.SIGHUP, -signal.SIGHUP), (signal.SIGINT, -signal.SIGINT)):
            with self.subTest(end=end):
                top = self.top()
                top.wait_for("./solver")
                if isinstance(end, str):
                    top.press(end)
                else:
                    top.kill(end)
                self.assertEqual(top.end(), code)
                self.check_terminal(top)

    def test_interrupt_while_typing_restores_the_terminal(self):
        self.peer()
        top = self.top()
        top.wait_for("./solver")
        top.press("/ab")
        top.wait_for("filter: ab_")
        top.press("\x03")
        self.assertEqual(top.end(), -signal.SIGINT)
        self.check_terminal(top)

    def test_stop_restores_the_terminal_until_continued(self):
        self.peer()
        for stop in ("\x1a", signal.SIGTSTP):
            with self.subTest(stop=stop):
                top = self.top()
                top.wait_for("./solver")
                if isinstance(stop, str):
                    top.press(stop)
                else:
                    top.kill(stop)
                top.await_report("stopped")
                top.wait(lambda: top.raw.rfind(LEAVE_SCREEN) > top.raw.rfind(ENTER_SCREEN), "the shell's screen")
                self.assertEqual(termios.tcgetattr(top.fd), top.modes)
                top.resize(60, 15)
                top.kill(signal.SIGCONT)
                top.wait(lambda: top.raw.rfind(ENTER_SCREEN) > top.raw.rfind(LEAVE_SCREEN), "the screen of top")
                top.wait_for("./solver")
                top.wait(lambda: "? help" in top.lines[-1], "the last line")
                top.press("q")
                self.assertEqual(top.end(), 0)
                self.check_terminal(top)

    def test_hangup_of_the_terminal_ends_top(self):
        self.peer()
        top = self.top()
        top.wait_for("./solver")
        os.kill(top.leader, signal.SIGKILL)
        top.wait(lambda: not pathlib.Path(f"/proc/{top.pid}").exists(), "the end of the program")

    def test_count_ends_top_after_n_updates(self):
        self.peer()
        top = self.top("--count=3")
        self.assertEqual(top.end(), 0)
        self.check_terminal(top)

    def test_unsuitable_terminal_is_an_error(self):
        for words, env in (([], {}), (["<"], {"TERM": "no-such-terminal"}), (["<"], {"TERM": "dumb"}),
                           (["<"], {"TERM": None})):
            with self.subTest(env=env):
                if words:
                    top = self.top(**env)
                    self.assertEqual(top.end(), 2)
                    self.assertIn("gpupool-stat: top does not know how to draw", top.text)
                else:
                    done = subprocess.run([str(STAT), "top"], capture_output=True, text=True, check=False, timeout=60)
                    self.assertEqual(done.returncode, 2)
                    self.assertEqual(done.stdout, "")
                    self.assertIn("top needs a terminal", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
