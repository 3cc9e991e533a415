# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Checks that the library sees each function that submits work (shim/driver/submit.def): a free after such a call has to
record a fence, and a free without a submission before it does not. The test runs the program in submissions.cu.
"""

import subprocess
import threading

import ctl
import programs

RUN_SECONDS = 60
NOTHING = "nothing"
FAMILIES_MIN = 30  # of the 36 families; the machine may lack some


def records(directory, pid):
    status = ctl.ask_process(directory, pid, "status")
    if not status:
        raise programs.Trouble("no control socket: is the program under the preload?")
    return ctl.device_sum(status, "fence_records")


def read_families(config, program, log):
    """
    (name, fences recorded since the previous line) for each line but the first; and whether the program ended well.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    found, last, is_whole = [], None, False
    with programs.private_dir() as directory, log.open("w") as err:
        process = subprocess.Popen([programs.BIN / program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err,
                                   env=config.environment(directory, {}), text=True)
        watchdog = threading.Timer(RUN_SECONDS, process.kill)
        watchdog.start()
        try:
            for line in process.stdout:
                word, _, name = line.rstrip("\n").partition(" ")
                is_whole = word == "end"
                err.write(line)
                if word != "family":
                    continue
                now = records(directory, process.pid)
                if last is not None:
                    found.append((name, now - last))
                last = now
                process.stdin.write("\n")
                process.stdin.flush()
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()
    return found, is_whole


def judge(results, name, found, is_whole):
    families = [row for row in found if row[0] != NOTHING]
    unseen = [family for family, n in families if n < 1]
    idle = [n for family, n in found if family == NOTHING]
    results.check(f"{name}: a free after each of {len(families)} families of functions records a fence",
                  is_whole and len(families) >= FAMILIES_MIN and not unseen, ", ".join(unseen) or "all")
    results.check(f"{name}: a free without a submission before it records none", bool(idle) and not any(idle),
                  f"{sum(map(bool, idle))} of {len(idle)}")


def run(results, out, config):
    for program in programs.SUBMISSIONS:
        name = f"{config.name}: {program}"
        try:
            judge(results, name, *read_families(config, program, out / "streams" / f"{program}-{config.name}.txt"))
        except (programs.Trouble, OSError, ValueError, KeyError) as trouble:
            results.check(name, False, str(trouble))
