# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
The cost of a launch: a loop of short kernels without gpupool, and with it in several ways.

Two processes of the same way differ by some per cent, and the machine drifts. So each round starts a new process of each
way, and the processes of a round take turns in an order that is drawn anew each time. A process counts as the median of
its turns, and a way as the median of its processes. Rounds are drawn again with replacement (bootstrap) to find how far
the ratio of two ways would vary if everything were measured again.
"""

import contextlib
import random
import statistics
import time

import programs

KERNEL_NS, LAUNCHES, TURNS = 3000, 2000, 10
SECONDS, ROUNDS_MIN, ROUNDS_MAX = 48, 5, 40  # no round begins after these seconds; a round takes about 3
LIMIT, SEED, DRAWS, SHARE = 1.01, 20, 2000, 0.95
PROGRAM_SECONDS = 60

HOWS = {"back": "back to back", "wait": "each with a wait"}
GATED = "vmm, sleep"
# The last one shows the gate: with GPUPOOL_SLEEP a thread looks at the epoch, and a submission then looks at the gate.
RATIOS = (("split", "raw"), ("vmm", "raw"), (GATED, "raw"), (GATED, "split"), (GATED, "vmm"))


def ways(library):
    """The configurations of launch_cost."""
    def way(name, **variables):
        return programs.Config(name, library, {"GPUPOOL_LOG": "info", **variables})
    return [programs.Config("raw"), way("split", GPUPOOL_POOL="split"), way("vmm", GPUPOOL_POOL="vmm"),
            way(GATED, GPUPOOL_POOL="vmm", GPUPOOL_SLEEP="on")]


def take_turns(running, turns, rng):
    """Nanoseconds of a launch, {how: {name: [of each turn]}}; None once a program has failed. The first turn of each does not count."""
    taken = {how: {name: [] for name in running} for how in HOWS}
    for nth in range(turns + 1):
        for how, found in taken.items():
            for name in rng.sample(list(running), len(running)):
                running[name].tell(how)
                words = running[name].line().split()
                if len(words) != 2 or words[0] != "launch":
                    return None
                if nth:
                    found[name].append(float(words[1]))
    return taken


def take_round(names, start, turns, rng):
    """The median of each new process, {how: {name: ns}}; None if one has failed."""
    with contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(start(name)) for name in rng.sample(names, len(names))}
        is_right = [program.line().endswith("right") for program in running.values()]
        taken = take_turns(running, turns, rng) if all(is_right) else None
    if taken is None:
        return None
    return {how: {name: statistics.median(times) for name, times in found.items()} for how, found in taken.items()}


def take_rounds(names, start, rounds, turns, seconds, seed, clock=time.monotonic):
    """Rounds until the time is up, but at least ROUNDS_MIN; None once a program has failed."""
    rng, begun, found = random.Random(seed), clock(), []
    while len(found) < rounds and (len(found) < min(ROUNDS_MIN, rounds) or clock() - begun < seconds):
        one = take_round(names, start, turns, rng)
        if one is None:
            return None
        found.append(one)
    return found


def ratio_of(rounds, how, name, base):
    """The median of the processes of one way over that of another."""
    return statistics.median(one[how][name] for one in rounds) / statistics.median(one[how][base] for one in rounds)


def interval_of(rounds, how, name, base, seed=SEED):
    """The bounds within which the ratio lies in SHARE of all draws."""
    rng = random.Random(seed)
    ratios = sorted(ratio_of(rng.choices(rounds, k=len(rounds)), how, name, base) for _ in range(DRAWS))
    cut = round(DRAWS * (1 - SHARE) / 2)
    return ratios[cut], ratios[-1 - cut]


def saying(low, high, limit=LIMIT):
    """Returns whether the interval lies below the limit, above it, or on both sides."""
    bound = f"at most {limit - 1:.0%}"
    if high <= limit:
        return f"{bound}: shown"
    return f"{bound}: denied" if low > limit else f"{bound}: neither shown nor denied"


def judge(results, rounds):
    results.note("launches: processes of each way", len(rounds))
    for how, what in HOWS.items():
        for name in rounds[0][how]:
            times = [one[how][name] / 1000 for one in rounds]
            results.note(f"launches {what}, {name}", f"{statistics.median(times):.3f} ({min(times):.3f} to {max(times):.3f})", "us")
        for name, base in RATIOS:
            low, high = interval_of(rounds, how, name, base)
            results.bar(f"launches {what}: {name} over {base}", ratio_of(rounds, how, name, base), "", "<=", LIMIT)
            results.note(f"launches {what}: {name} over {base}, {SHARE:.0%}", f"{low:.4f} to {high:.4f}; {saying(low, high)}")


def check(results, library, start, launches=LAUNCHES, rounds=ROUNDS_MAX, turns=TURNS, seconds=SECONDS):
    """start(config, words) starts a program."""
    configs = {config.name: config for config in ways(library)}
    words = [programs.BIN / "launch_cost", KERNEL_NS, launches]
    found = take_rounds(list(configs), lambda name: start(configs[name], words), rounds, turns, seconds, SEED)
    results.check("launches: all programs have run", found is not None)
    if found:
        judge(results, found)
