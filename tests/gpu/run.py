# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
The steps of scripts/gpu-test. The script runs each as a separate process, with a time limit:

    run.py list [PART...]            prints the names of the given parts, or of all, a line each
    run.py check                     prints the reason and exits with 77 if there is no GPU
    run.py build                     builds everything that the parts need
    run.py part NAME --out DIR       runs one part, and writes each row to DIR at once
    run.py report --out DIR NAME=EXITSTATUS...
                                     makes the tables from the rows in DIR; with --save FOLDER also the result
                                     files of the parts, of which docs/verification.md is made
"""

import argparse
import pathlib
import sys
import tarfile

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "pages"))

import part_async
import part_backends
import part_captures
import part_contexts
import part_deadlocks
import part_debug
import part_demo
import part_devices
import part_documents
import part_frameworks
import part_host
import part_ipc
import part_lives
import part_patterns
import part_python
import part_regions
import part_samples
import part_semantics
import part_sleep
import part_spill
import part_streams
import part_tools
import part_ways
import programs
import result_file
import results
import verification

PARTS = {
    "patterns": part_patterns,
    "streams": part_streams,
    "semantics": part_semantics,
    "python": part_python,
    "demo": part_demo,
    "ipc": part_ipc,
    "deadlocks": part_deadlocks,
    "devices": part_devices,
    "captures": part_captures,
    "contexts": part_contexts,
    "lives": part_lives,
    "ways": part_ways,
    "debug": part_debug,
    "documents": part_documents,
    "backends": part_backends,
    "regions": part_regions,
    "tools": part_tools,
    "frameworks": part_frameworks,
    "host": part_host,
    "sleep": part_sleep,
    "spill": part_spill,
    "async": part_async,
    "samples": part_samples,
}

# The parts that can run with GPUPOOL_POOL=auto in place of the pool types.
AUTO_PARTS = ("streams", "semantics", "ipc", "deadlocks", "captures", "lives")
SKIPPED = 77


def part_name(word, parts=PARTS, prog="gpu-test"):
    names = list(parts)
    if word in names:
        return word
    if word.isdigit() and 1 <= int(word) <= len(names):
        return names[int(word) - 1]
    known = f"{', '.join(names)}, or 1 to {len(names)}"
    raise SystemExit(f"{prog}: unknown part '{word}'; known parts are {known}")


def check_auto(name, options):
    if options.auto and name not in AUTO_PARTS:
        raise SystemExit(f"gpu-test: --auto is for the parts {', '.join(AUTO_PARTS)}, not for {name}")


def step_list(options):
    names = list(map(part_name, options.words)) or (AUTO_PARTS if options.auto else PARTS)
    for name in names:
        check_auto(name, options)
    print("\n".join(names))


def step_check(options):
    del options
    reason = programs.reason_to_skip()
    if reason:
        print(f"gpu-test: skipped: {reason}")
        sys.exit(SKIPPED)


def step_build(options):
    del options
    programs.build_programs()
    part_semantics.build()
    part_samples.build()
    print(f"gpu-test: library {programs.preload_library()}")
    libraries = {"without fences": programs.broken_library, "that reports no submissions": programs.unreported_library,
                 "that ignores other devices and processes": programs.alone_library}
    for what, find in libraries.items():
        try:
            print(f"gpu-test: library {what} {find()}")
        except programs.Trouble as trouble:
            print(f"gpu-test: no library {what}: {trouble}")


def step_part(options):
    (word,) = options.words
    name = part_name(word)
    check_auto(name, options)
    PARTS[name].run(results.Results(options.out, name), options.out, options)


def bundle(out):
    """Leaves three files in the folder: results.json, tables.txt and an archive of all others."""
    keep = {"results.json", "tables.txt", "details.tar.gz"}
    rest = sorted(path for path in out.iterdir() if path.name not in keep)
    with tarfile.open(out / "details.tar.gz", "w:gz") as archive:
        for path in rest:
            archive.add(path, arcname=path.name)
    for path in rest:
        for inner in sorted(path.rglob("*"), reverse=True) if path.is_dir() else []:
            inner.rmdir() if inner.is_dir() else inner.unlink()
        path.rmdir() if path.is_dir() else path.unlink()


def step_report(options):
    statuses = {}
    for word in options.words:
        name, _, status = word.partition("=")
        statuses[part_name(name)] = int(status)
    lines, ok = results.report(options.out, statuses)
    print("\n" + "\n".join(lines))
    if options.save:
        save(options, statuses)
    if options.bundle:
        bundle(options.out)
    sys.exit(0 if ok else 1)


def save(options, statuses):
    """Writes the result files of the parts that have finished."""
    for name, status in statuses.items():
        rows = results.load(options.out, [name])
        if status or not rows:
            print(f"gpu-test: {name} has no results to save")
            continue
        command = f"scripts/gpu-test --part {name}" + (f" --scale {options.scale:g}" if options.scale != 1 else "")
        command += " --auto" if options.auto else ""
        run = result_file.describe_run(programs.ROOT, command)
        if hasattr(PARTS[name], "software"):
            run["software"] = ", ".join(filter(None, [run.get("software"), *PARTS[name].software(rows)]))
        document = {"runs": [run], "result": verification.result_words(rows)}
        if hasattr(PARTS[name], "table"):
            document["head"], document["rows"] = PARTS[name].table(rows)
        print(f"gpu-test: {result_file.save(options.save, name, document)}")


STEPS = {
    "list": step_list,
    "check": step_check,
    "build": step_build,
    "part": step_part,
    "report": step_report,
}


def main(prog="gpu-test", steps=STEPS, add_arguments=lambda parser: None):
    """Runs one of the steps. The benchmark calls this with its own steps."""
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("step", choices=steps)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--auto", action="store_true")
    parser.add_argument("--bundle", action="store_true")
    parser.add_argument("--save", type=pathlib.Path)
    add_arguments(parser)
    options = parser.parse_intermixed_args()
    if options.out:
        options.out = options.out.resolve()
        options.out.mkdir(parents=True, exist_ok=True)
    try:
        steps[options.step](options)
    except programs.Trouble as trouble:
        sys.exit(f"{prog}: {trouble}")


if __name__ == "__main__":
    main()
