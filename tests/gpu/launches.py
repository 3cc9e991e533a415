# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
The cost of a launch: a loop of short kernels without gpupool, and with it in several ways.

Two processes of the same way differ by some per cent, which hides what a hook costs. So each process is compared with
itself: launch_cost launches by the function that it is linked to, which is gpupool's hook under the preload, or directly
by the driver's own function. A pair is two turns in a row, one of each, in an order that is drawn anew each time. Its
ratio is the cost of the hook. A process counts as the median of its pairs, and a way as the median of its processes.
Without gpupool both functions are the same, so that the ratio must be 1: the control.

Each round starts a new process of each way, and its processes take turns in an order that is drawn anew each time. Rounds
are drawn again with replacement (bootstrap) to find how far a figure would vary if everything were measured again.
"""

import contextlib
import dataclasses
import random
import statistics
import time

import programs

KERNEL_NS, LAUNCHES, VISITS, PAIRS = 3000, 1000, 4, 4
SECONDS, ROUNDS_MIN, ROUNDS_MAX = 45, 5, 40  # no round begins after these seconds; a round takes about 3.5
LIMIT, CONTROL, SEED, DRAWS, SHARE = 1.01, 0.005, 20, 2000, 0.95
PROGRAM_SECONDS = 60

HOWS = {"back": "back to back", "wait": "each with a wait"}
LINKED, DIRECT = "", "direct "  # what precedes a word of HOWS in a line to launch_cost
HOOKED, UNHOOKED = "hooked cuLaunchKernel cuStreamSynchronize", "hooked none"  # launch_cost's first line
RAW, GATED = "raw", "vmm, sleep"
# The last way shows the gate: with GPUPOOL_SLEEP a thread looks at the epoch, and a submission then looks at the gate.
WAYS = (RAW, "split", "vmm", GATED)
# Ratios of different processes: they also contain what the library costs beside the hook, and vary more.
RATIOS = (("split", RAW), ("vmm", RAW), (GATED, RAW), (GATED, "split"), (GATED, "vmm"))


class Failed(Exception):
    """A program has failed; the text says which one and how."""


@dataclasses.dataclass
class Cost:
    """The result of a process for one of HOWS: nanoseconds of a launch, and the linked function over the driver's."""

    linked: float
    direct: float
    ratio: float


def ways(library):
    """The configurations of launch_cost."""
    def way(name, **variables):
        return programs.Config(name, library, {"GPUPOOL_LOG": "info", **variables})
    return [programs.Config(RAW), way("split", GPUPOOL_POOL="split"), way("vmm", GPUPOOL_POOL="vmm"),
            way(GATED, GPUPOOL_POOL="vmm", GPUPOOL_SLEEP="on")]


def take_turn(name, program, line):
    """Nanoseconds of a launch."""
    program.tell(line)
    answer = program.line()
    words = answer.split()
    if len(words) != 2 or words[0] != "launch":
        raise Failed(f"{name}: {answer or 'ended'}")
    return float(words[1])


def take_pairs(name, program, how, pairs, rng):
    """Pairs of turns, [(linked, direct)]. One turn before does not count: the GPU comes from another process."""
    take_turn(name, program, rng.choice((LINKED, DIRECT)) + how)
    found = []
    for _ in range(pairs):
        times = {entry: take_turn(name, program, entry + how) for entry in rng.sample((LINKED, DIRECT), 2)}
        found.append((times[LINKED], times[DIRECT]))
    return found


def cost_of(pairs):
    return Cost(statistics.median(linked for linked, _ in pairs), statistics.median(direct for _, direct in pairs),
                statistics.median(linked / direct for linked, direct in pairs))


def begin(name, program):
    """Takes a program's first lines."""
    wanted, hooked = UNHOOKED if name == RAW else HOOKED, program.line()
    if hooked != wanted:
        raise Failed(f"{name}: {hooked or 'ended'}")
    content = program.line()
    if not content.endswith("right"):
        raise Failed(f"{name}: {content or 'ended'}")


def take_round(names, start, visits, pairs, rng):
    """The costs of each new process, {how: {name: Cost}}."""
    with contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(start(name)) for name in rng.sample(names, len(names))}
        for name, program in running.items():
            begin(name, program)
        taken = {how: {name: [] for name in running} for how in HOWS}
        for _ in range(visits):
            for how, found in taken.items():
                for name in rng.sample(list(running), len(running)):
                    found[name] += take_pairs(name, running[name], how, pairs, rng)
    return {how: {name: cost_of(found[name]) for name in names} for how, found in taken.items()}


def take_rounds(names, start, rounds, visits, pairs, seconds, seed, clock=time.monotonic):
    """Rounds until the time is up, but at least ROUNDS_MIN."""
    rng, begun, found = random.Random(seed), clock(), []
    while len(found) < rounds and (len(found) < min(ROUNDS_MIN, rounds) or clock() - begun < seconds):
        found.append(take_round(names, start, visits, pairs, rng))
    return found


def within(how, name):
    """A figure of rounds: the linked function over the driver's own, in the processes of one way."""
    return lambda rounds: statistics.median(one[how][name].ratio for one in rounds)


def across(how, name, base):
    """A figure of rounds: the median of the processes of one way over that of another, both by the linked function."""
    return lambda rounds: (statistics.median(one[how][name].linked for one in rounds)
                           / statistics.median(one[how][base].linked for one in rounds))


def interval_of(rounds, figure, seed=SEED):
    """The bounds within which a figure lies in SHARE of all draws."""
    rng = random.Random(seed)
    figures = sorted(figure(rng.choices(rounds, k=len(rounds))) for _ in range(DRAWS))
    cut = round(DRAWS * (1 - SHARE) / 2)
    return figures[cut], figures[-1 - cut]


def saying(low, high, limit=LIMIT):
    """Returns whether the interval lies below the limit, above it, or on both sides."""
    bound = f"at most {limit - 1:.0%}"
    if high <= limit:
        return f"{bound}: shown"
    return f"{bound}: denied" if low > limit else f"{bound}: neither shown nor denied"


def is_one(low, high):
    """Returns whether the interval of the control includes 1, or is so near that the difference does not matter."""
    return low <= 1 <= high or (low >= 1 - CONTROL and high <= 1 + CONTROL)


def judge_way(results, rounds, how, name):
    what, figure = HOWS[how], within(how, name)
    costs = [one[how][name] for one in rounds]
    low, high = interval_of(rounds, figure)
    for which, times in (("", [cost.linked for cost in costs]), (" direct", [cost.direct for cost in costs])):
        text = f"{statistics.median(times) / 1000:.3f} ({min(times) / 1000:.3f} to {max(times) / 1000:.3f})"
        results.note(f"launches{which} {what}, {name}", text, "us")
    if name == RAW:
        results.check(f"launches {what}: the control is 1", is_one(low, high), f"{figure(rounds):.4f}")
        results.note(f"launches {what}: control, {SHARE:.0%}", f"{low:.4f} to {high:.4f}")
    else:
        results.bar(f"launches {what}: {name}, hook over driver", figure(rounds), "", "<=", LIMIT)
        results.note(f"launches {what}: {name}, hook over driver, {SHARE:.0%}", f"{low:.4f} to {high:.4f}; {saying(low, high)}")


def judge(results, rounds, pairs):
    """pairs: of each process and way to launch."""
    results.note("launches: processes of each way", len(rounds))
    results.note("launches: pairs of turns of a process", pairs)
    for how, what in HOWS.items():
        for name in WAYS:
            judge_way(results, rounds, how, name)
        for name, base in RATIOS:
            figure = across(how, name, base)
            low, high = interval_of(rounds, figure)
            results.note(f"launches {what}: processes of {name} over {base}, {SHARE:.0%}",
                         f"{figure(rounds):.4f} ({low:.4f} to {high:.4f})")


def check(results, library, start, launches=LAUNCHES, rounds=ROUNDS_MAX, visits=VISITS, pairs=PAIRS, seconds=SECONDS):
    """start(config, words) starts a program."""
    configs = {config.name: config for config in ways(library)}
    words = [programs.BIN / "launch_cost", KERNEL_NS, launches]
    what = "launches: all programs run, hooked by gpupool only"
    try:
        found = take_rounds(WAYS, lambda name: start(configs[name], words), rounds, visits, pairs, seconds, SEED)
    except Failed as failure:
        results.check(what, False, str(failure))
        return
    results.check(what, True)
    judge(results, found, visits * pairs)
