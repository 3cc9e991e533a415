# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Two processes take turns on memory for which only one has room. The one whose turn it is wakes, and for that the other
one falls asleep: a switch.

The time of the turns is compared with that of the same work one after the other. The speed of the work alone is measured
before the turns and after them, in phases of their own, since machines drift. The time that is missing is told apart: in
switches, and in steps that took longer. The times at which the processes log their sleep and wake say what happened in a
switch.

A virtual machine may get its memory from its host only when a process first touches it, at a few GiB/s, once in its life.
The first sleep of each process would then measure the machine. So the plan may have the memory touched before.
"""

import concurrent.futures
import ctypes
import dataclasses
import mmap
import os
import re
import time

import programs

GIB = 1 << 30
SHARE, PHASE_SECONDS = 0.9, 30
SWITCH_SECONDS, START_SECONDS = 3, 20
MADV_HUGEPAGE, MADV_POPULATE_WRITE = 14, 23

ASKED = re.compile(r"waking: asked process ")
ASLEEP = re.compile(r"asleep: (\d+) MiB .* in (\d+) ms: (\d+) ms until .*, (\d+) ms to get .*, (\d+) ms to move")
AWAKE = re.compile(r"awake: (\d+) MiB .* in (\d+) ms: (\d+) ms until .*, (\d+) ms to take .*, (\d+) ms to move")


@dataclasses.dataclass
class Turn:
    """Seconds of the wake, the check and the steps, the number of steps, and wrong words."""

    woke: float
    checked: float
    worked: float
    steps: int
    wrong: int

    @classmethod
    def of(cls, line):
        """None: the program has failed."""
        words = line.split()
        if len(words) != 6 or words[0] != "turn":
            return None
        return cls(*map(float, words[1:4]), *map(int, words[4:]))


@dataclasses.dataclass
class Plan:
    """Each process needs mib, and left_mib are left to both. No turn begins that would end after the time limit."""

    mib: int
    left_mib: int
    seconds: float
    switches: int
    alone_seconds: float = 10
    limit_s: float = 280
    touched_gib: int = 0

    def process_s(self):
        """The time limit of each process."""
        return self.limit_s + START_SECONDS

    def has_time(self, taken_s):
        """True if another turn, and the last phases alone, fit into the time."""
        alone = 2 * self.alone_seconds + SWITCH_SECONDS
        return taken_s + self.seconds + 2 * SWITCH_SECONDS + alone <= self.limit_s


@dataclasses.dataclass
class Switch:
    """Times of one switch. out and into are the seconds that the processes logged: in all, and of the parts."""

    told: float
    asked: float | None = None
    slept: float | None = None
    woke: float | None = None
    out: tuple | None = None   # MiB, all, quiet, host memory, move
    into: tuple | None = None  # MiB, all, until free, take, move

    @classmethod
    def of(cls, told, sleeper, waker):
        """sleeper, waker: the lines that each has logged, with the times at which they came."""
        switch = cls(told)
        for at, line in waker:
            if at >= told and switch.asked is None and ASKED.search(line):
                switch.asked = at
            if at >= told and switch.into is None and (found := AWAKE.search(line)):
                switch.woke, switch.into = at, numbers_of(found)
        for at, line in sleeper:
            if at >= told and switch.out is None and (found := ASLEEP.search(line)):
                switch.slept, switch.out = at, numbers_of(found)
        return switch

    def overlap(self):
        """Seconds in which one process moved out and the other one in."""
        if not self.out or not self.into:
            return None
        return max(0.0, self.slept - (self.woke - self.into[3] - self.into[4]))

    def text(self):
        parts = [f"asked after {self.asked - self.told:.2f} s"] if self.asked is not None else []
        if self.out:
            mib, total, quiet, host, move = self.out
            parts.append(f"out {total:.2f} s: quiet {quiet:.2f}, host memory {host:.2f}, "
                         f"move {move:.2f}, {speed_of(mib, host + move)} GiB/s")
        if self.into:
            mib, _, free, take, move = self.into
            parts.append(f"in {take + move:.2f} s after {free:.2f}: take {take:.2f}, move {move:.2f}, "
                         f"{speed_of(mib, take + move)} GiB/s")
        if self.overlap() is not None:
            parts.append(f"both {self.overlap():.2f} s")
        return "; ".join(parts) or "nothing was logged"


def numbers_of(found):
    """MiB, and seconds."""
    return (int(found[1]), *(int(value) / 1000 for value in found.groups()[1:]))


def speed_of(mib, seconds):
    return f"{mib / 1024 / seconds:.1f}" if seconds else "-"


@dataclasses.dataclass
class Outcome:
    """alone: the phases of each process in which it had the device for itself; turns and switches, in turns from the first process."""

    alone: tuple = dataclasses.field(default_factory=lambda: ([], []))
    turns: list = dataclasses.field(default_factory=list)
    switches: list = dataclasses.field(default_factory=list)
    seconds: float = 0

    def wrong(self):
        return sum(turn.wrong for turn in [*self.turns, *self.alone[0], *self.alone[1]])

    def is_measured(self):
        return bool(self.turns) and all(sum(turn.steps for turn in phases) for phases in self.alone)

    def rate(self, which):
        """Steps a second of a process alone."""
        return sum(turn.steps for turn in self.alone[which]) / sum(turn.worked for turn in self.alone[which])

    def alone_s(self, nth):
        """The seconds that the work of a turn takes alone."""
        return self.turns[nth].checked + self.turns[nth].steps / self.rate(nth % 2)

    def share(self):
        return sum(self.alone_s(nth) for nth in range(len(self.turns))) / self.seconds

    def lost_to_switches(self):
        return sum(turn.woke for turn in self.turns)

    def lost_to_work(self):
        return sum(turn.checked + turn.worked - self.alone_s(nth) for nth, turn in enumerate(self.turns))


def touch_one_gib(memory):
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    madvise(address, GIB, MADV_HUGEPAGE)
    if madvise(address, GIB, MADV_POPULATE_WRITE):
        raise OSError(ctypes.get_errno(), "host memory could not be touched")


def touch_host(gib):
    """Has all processors touch that much memory, and gives it back. Returns the seconds of the touches."""
    begun = time.monotonic()
    memories = [mmap.mmap(-1, GIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(gib)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(touch_one_gib, memories))
    return time.monotonic() - begun


def take_alone(program, which, plan, outcome):
    """A phase in which the process has the device for itself. False: it has failed."""
    program.tell(plan.alone_seconds)
    turn = Turn.of(program.line())
    if turn:
        outcome.alone[which].append(turn)
    return turn is not None


def take_turns(plan, both, outcome, has_time, after_turn):
    """Each turn begins with a switch, for which the other process falls asleep."""
    begun = time.monotonic()
    for nth in range(plan.switches):
        program, other = both[nth % 2], both[1 - nth % 2]
        if not has_time():
            return
        told = time.monotonic()
        program.tell()
        turn = Turn.of(program.line())
        if turn is None:
            return
        outcome.turns.append(turn)
        outcome.switches.append(Switch.of(told, other.said(), program.said()))
        outcome.seconds = time.monotonic() - begun
        after_turn()


def judge(results, plan, outcome, is_over, why):
    """is_over: the time was up."""
    done, wrong = len(outcome.turns), outcome.wrong()
    results.check("turns: all are done, and no word is wrong", (done == plan.switches or (is_over and done > 1)) and not wrong,
                  f"{done} turns, {wrong} wrong {'' if done == plan.switches else why}".strip())
    if is_over:
        results.note("turns: left out, as the time was up", plan.switches - done)
    for nth, (turn, switch) in enumerate(zip(outcome.turns, outcome.switches)):
        results.note(f"turn {nth + 1}: switch", turn.woke, "s")
        results.note(f"turn {nth + 1}: of it", switch.text())
        if outcome.is_measured():
            results.note(f"turn {nth + 1}: steps, and their speed over that alone",
                         f"{turn.steps} {turn.steps / turn.worked / outcome.rate(nth % 2):.3f}" if turn.worked else turn.steps)
    if not outcome.is_measured():
        return
    switch = outcome.lost_to_switches() / done
    results.note("turns: seconds in all", outcome.seconds, "s")
    results.note("turns: seconds in all, lost to switches", outcome.lost_to_switches(), "s")
    results.note("turns: seconds in all, lost to slower work", outcome.lost_to_work(), "s")
    results.note("turns: a switch takes", switch, "s")
    if plan.seconds >= PHASE_SECONDS:
        results.bar("turns: share of the time of one after the other", outcome.share(), "", ">=", SHARE)
        return
    results.note("turns: share of the time of one after the other", outcome.share())
    results.bar(f"turns: share of work in phases of {PHASE_SECONDS} s", PHASE_SECONDS / (PHASE_SECONDS + switch), "", ">=", SHARE)


def check(results, library, start, plan, host_left, reason):
    """
    start(config, name, words, seconds) starts a program. host_left() returns the bytes that the host has left, and
    reason(name) what a program said about its failure.
    """
    if plan.touched_gib:
        seconds = touch_host(plan.touched_gib)
        results.note("turns: host memory touched before, without gpupool",
                     f"{plan.touched_gib} GiB, {plan.touched_gib / seconds:.1f} GiB/s")
    probe = programs.BIN / "sleep_turns"
    variables = {"GPUPOOL_POOL": "vmm", "GPUPOOL_SLEEP": "on", "GPUPOOL_SLEEP_KEEP": "on", "GPUPOOL_LOG": "info"}
    config, outcome, begun, both = programs.Config("turns", library, variables), Outcome(), time.monotonic(), []
    lefts = [host_left()]

    def has_time():
        return plan.has_time(time.monotonic() - begun)

    ballast = start(programs.Config("raw"), "ballast", [probe, "ballast", plan.left_mib], plan.process_s())
    results.note("turns: left by the ballast", ballast.line(), "")
    # The first one is idle once it has worked, and sleeps for the second one.
    for which, name in enumerate(("turns first", "turns second")):
        both.append(start(config, name, [probe, "turns", plan.mib, plan.seconds], plan.process_s()))
        if not both[-1].line().startswith("ready ") or not take_alone(both[-1], which, plan, outcome):
            break
    results.check("turns: the second process gets memory for which the first one sleeps", all(outcome.alone))
    is_over = False
    if all(outcome.alone):
        take_turns(plan, both, outcome, has_time, lambda: lefts.append(host_left()))
        is_over = len(outcome.turns) < plan.switches and not has_time()
        # The process of the last turn is awake. The other one wakes first.
        for which in (1, 0) if len(outcome.turns) % 2 == 0 else (0, 1):
            take_alone(both[which], which, plan, outcome)
    why = "; ".join(filter(None, map(reason, ("turns first", "turns second"))))
    judge(results, plan, outcome, is_over, why)
    results.note("turns: seconds of the whole step", time.monotonic() - begun, "s")
    results.note("turns: host memory in use at its peak", (lefts[0] - min(lefts)) / GIB, "GiB")
