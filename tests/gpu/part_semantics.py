# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Whether calls return what they return without a pool. Differences that are meant are listed here,
with the reason.
"""

import re

import programs

CACHING = ("simple", "binned", "split", "split/orde", "split/comp")
SPLITTING = ("split", "split/orde", "split/comp")
POOLING = ("none", *CACHING)

ALL_WELL = r"malloc=cudaSuccess free=cudaSuccess end=cudaSuccess .* counter=6 after=cudaSuccess .*"
MANY_WELL = r"many=cudaSuccess end=cudaSuccess .* counter=6 after=cudaSuccess .*"

# Question, kinds of pool, answer (None: any, or none at all), reason.
EXPECTED = [
    (r"capture\.(global|thread_local)\.hit(_elsewhere)?", CACHING, ALL_WELL,
     "the cache serves an allocation during a capture, where the driver refuses it"),
    (r"capture\.(global|thread_local)\.many(_elsewhere)?", CACHING, MANY_WELL,
     "the cache serves an allocation during a capture, where the driver refuses it"),
    (r"ipc\.export\.(middle|small|interior)", SPLITTING, r"(?!cudaSuccess).*",
     "a block that is part of a driver allocation cannot be exported"),
    (r"ipc\.import\.(middle|small|interior)", SPLITTING, None,
     "a block that is part of a driver allocation cannot be exported"),
    (r"attribute\.(large|interior|small|other)\.10", SPLITTING, r"0 [01]",
     "a block that is part of a driver allocation cannot be exported"),
    (r"host\.flags[1357](#2)?", POOLING, r"0 flags=[26] free=0",
     "the driver keeps small pinned blocks of different flags in one chunk and reports the chunk's, without "
     "the pool too while another small block is alive; a cached one is"),
    (r"attributes\.(freed|host_freed)", POOLING, r"type=.*",
     "the memory of a freed block stays mapped while it is pending or cached"),
    (r"context\.none\.free", POOLING, r"0",
     "a block remembers its context, and can be freed with none current"),
    (r"fault\.(free|host_free|malloc_cached|host_malloc)", POOLING, r"cudaSuccess",
     "an error of a kernel is reported by the next call that needs the driver"),
]  # fmt: skip

PROGRAMS = [
    ("runtime", ["semantics"]),
    ("fault", ["semantics", "fault"]),
    ("captures", ["captures"]),
    ("driver", ["driver_semantics"]),
]


def parse_answers(text, prefix):
    """'name: value' lines as {name: value}; a name that comes again gets a number."""
    answers = {}
    for line in text.splitlines():
        name, colon, value = line.partition(": ") if ": " in line else line.partition(":")
        if not colon:
            continue
        key = f"{prefix}/{name}"
        nth = 2
        while key in answers:
            key = f"{prefix}/{name}#{nth}"
            nth += 1
        answers[key] = value.strip()
    return answers


def reason_for(key, config_name, answer):
    """Why an answer that differs from the raw one is as it should be, or None."""
    name = key.partition("/")[2].partition("#")[0]
    for question, kinds, expected, reason in EXPECTED:
        if config_name not in kinds or not re.fullmatch(question, name):
            continue
        if expected is None or (answer is not None and re.fullmatch(expected, answer)):
            return reason
    return None


def compare(raw, pooled, config_name):
    """(question, raw answer, other answer, reason or None) for each difference."""
    differences = []
    for key in dict.fromkeys([*raw, *pooled]):
        a, b = raw.get(key), pooled.get(key)
        if a != b:
            differences.append((key, a, b, reason_for(key, config_name, b)))
    return differences


def ask(results, out, config):
    answers = {}
    for name, (program, *arguments) in PROGRAMS:
        log = out / "semantics" / f"{config.name.replace('/', '-')}-{name}.txt"
        words = [programs.BIN / program, *arguments]
        done = programs.run_program(config, words, log, timeout=60)
        if done.status != 0:
            value = f"status {done.status}"
            results.check(f"{config.name}: {name} ran to its end", False, value)
        # The others may be too short for anybody to notice their sockets.
        if name == "runtime":
            is_meant = bool(config.library) and config.name != "off"
            results.check(f"{config.name}: the pool's socket", done.is_pooled == is_meant)
        answers |= parse_answers(done.text, name)
    return answers


def report_differences(results, out, config, raw, answers):
    differences = compare(raw, answers, config.name)
    unexpected = [d for d in differences if not d[3]]
    lines = []
    for key, a, b, reason in differences:
        lines.append(f"{key}\n  raw:  {a}\n  pool: {b}\n  {reason or 'UNEXPECTED'}\n")
    path = out / "semantics" / f"{config.name.replace('/', '-')}-differences.txt"
    path.write_text("\n".join(lines) + "\n")
    verdict = f"{len(unexpected)} of {len(raw)} differ"
    results.check(f"{config.name}: same answers as raw", bool(raw) and not unexpected, verdict)
    results.note(f"{config.name} | differences that are meant", len(differences) - len(unexpected))
    return [(key, a, b) for key, a, b, _ in unexpected]


def print_unexpected(found):
    """Each difference once, with the configurations that show it."""
    for (key, a, b), names in found.items():
        print(f"    {key}: {', '.join(names)}\n      raw:  {a}\n      pool: {b}")


def run_probes(results, out):
    log = out / "semantics" / "probes.txt"
    done = programs.run_program(programs.Config("raw"), [programs.BIN / "probes"], log, timeout=60)
    for word, pairs in programs.parse_lines(done.text):
        if word == "cost":
            results.note(f"gpu {pairs['gpu']} | {pairs['call']}", float(pairs["ns"]), "ns")
        else:
            text = " ".join(f"{key}={value}" for key, value in pairs.items())
            results.note(f"probe {word}", text)
    results.check("probes: ran to their end", done.status == 0, f"status {done.status}")


def run(results, out, options):
    del options
    programs.build_programs()
    configs = programs.pool_configs(programs.preload_library())
    configs.append(programs.Config("off", configs[1].library, {"GPUPOOL": "off"}))
    raw = ask(results, out, configs[0])
    again = ask(results, out, configs[0])
    results.check("raw: answers twice the same", raw == again, f"{len(raw)} answers")
    found = {}
    for config in configs[1:]:
        answers = ask(results, out, config)
        for difference in report_differences(results, out, config, raw, answers):
            found.setdefault(difference, []).append(config.name)
    print_unexpected(found)
    run_probes(results, out)
