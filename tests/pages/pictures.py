#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Makes the screens in docs/pictures of real runs on the simulated GPU. Times and addresses differ between runs; all else
is the same. Needs a C compiler, pyte, and for the picture of a report Chromium.

Usage: pictures.py [--columns N] [--out DIR] BUILD [NAME...]
"""

import argparse
import contextlib
import getpass
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import terminal

ROOT = pathlib.Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
REPORT_SIZE = (1000, 720)
COLUMNS = 88
HOST_SOURCE = """
#include <stdio.h>
int gethostname(char *name, size_t size) { return snprintf(name, size, "node1") < 0; }
"""


class Place:
    """A folder with the solver, the environment of a user, and the tools of a build."""

    def __init__(self, build, folder, columns):
        self.build, self.folder, self.columns = build, pathlib.Path(folder), columns
        self.sim = build / "tests" / "sim"
        sockets = self.folder / "sockets"
        sockets.mkdir(mode=0o700)
        self.env = {"HOME": str(self.folder), "LANG": "C.UTF-8", "TERM": "xterm-256color", "USER": "user",
                    "PATH": f"{build / 'tools'}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(self.sim),
                    "GPUPOOL_RUNTIME_DIR": str(sockets)}
        self.host = self.folder / "host.so"  # gives the machine another name
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", self.host], input=HOST_SOURCE, text=True, check=True)
        source = pathlib.Path(__file__).resolve().parent / "solver.c"
        subprocess.run(["cc", "-g", "-O0", f"-I{ROOT}", source, "-o", self.folder / "solver", f"-L{self.sim}", "-lcudart",
                        f"-ffile-prefix-map={source.parent}={self.folder}"], check=True)

    def screen(self, columns=COLUMNS, **more):
        return terminal.Terminal(self.columns or columns, **more)

    def prompt(self, screen, command):
        screen.write(f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m\n")

    def type(self, screen, command, replace=(), shown=None, **more):
        """Shows a command as a user types it, and its output, which it returns."""
        self.prompt(screen, shown or command)
        words = ["/bin/sh", "-c", command if "|" in command else f"exec {command}"]
        return screen.run(words, self.env, self.folder, replace, **more)

    @contextlib.contextmanager
    def running(self, *words, is_ready=True):
        """A solver under gpupool. With is_ready it has done its steps and waits for the end of its input."""
        process = subprocess.Popen([self.build / "tools" / "gpupool-run", *words, "--wait"], env=self.env, cwd=self.folder,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            if is_ready:
                process.stdout.readline()
            yield process.pid
        finally:
            process.stdin.close()
            process.kill()
            process.wait()


def demo(place):
    screen = place.screen()
    command = "scripts/demo | sed -n '/^GPU/,/GPU\\.$/p; /^Comparison/,$p'"
    place.prompt(screen, command)
    screen.run(["/bin/sh", "-c", command.replace("demo", "demo --sim --no-install")], {**os.environ, "COLUMNS": ""}, ROOT,
               [(" (requested with --sim)", "")], seconds=900)
    return screen, "scripts/demo compares a program without and with gpupool on the simulated GPU"


def message_pid(output):
    """(process id, the one to show) of a message of the library, or of a summary."""
    (pid,) = {"".join(found) for found in re.findall(r"gpupool\[(\d+)\]|\(process (\d+)\)", output)}
    return [(pid, terminal.fixed_pid(pid, 0))]


def summary(place):
    run = place.build / "tools" / "gpupool-run"
    if "--summary" not in subprocess.run([run, "--help"], capture_output=True, text=True, check=True).stdout:
        return None, "gpupool-run of this build has no --summary"
    screen = place.screen()
    place.type(screen, "gpupool-run --summary --limit=2GiB ./solver 100", message_pid)
    return screen, "gpupool-run --summary prints what gpupool did for a program"


def oom(place):
    screen = place.screen()
    # gpupool-run may be another process than the program, so the message names the process id.
    output = place.type(screen, "gpupool-run --limit=512MiB --stacks=3 --pool=vmm ./solver 200", message_pid)
    screen.write("\n")
    ((pid, shown),) = message_pid(output)
    command = "gpupool-stat oom %s | sed -n '/held:/,/^$/p'"
    place.type(screen, command % pid, [(str(pid), shown)], command % shown)
    return screen, "A program runs out of memory under a limit of 512 MiB; gpupool explains why and which code holds the memory"


def leaks(place):
    screen = place.screen()
    with place.running("--stacks=8", "./solver", "60") as pid:
        shown = terminal.fixed_pid(pid, 0)
        replace = [(str(pid), shown), (" --wait", "")]
        place.type(screen, f"gpupool-stat leaks {pid}", replace, f"gpupool-stat leaks {shown}")
        screen.write("\n")
        place.type(screen, f"gpupool-stat map -n 4 {pid}", replace, f"gpupool-stat map -n 4 {shown}")
    return screen, "gpupool-stat leaks lists the code that holds memory; gpupool-stat map draws the segments"


def top(place):
    screen = place.screen(lines=20)
    with place.running("--limit=1GiB", "./solver", "40") as first, \
            place.running("./solver", "500", "--slow", is_ready=False) as second:
        names = [(str(pid), terminal.fixed_pid(pid, nth)) for nth, pid in enumerate((first, second))]
        names += [(" --wait", "       "), (f"{getpass.getuser():<4}", "user")]
        words = ["gpupool-stat", "top", "--watch=0.2", str(first), str(second)]
        env = {**place.env, "LD_PRELOAD": str(place.host)}
        screen.run(words, env, place.folder, names, b"q", 9, is_open=True)
    return screen, "gpupool-stat top shows the memory of two programs live"


SCREENS = {"demo": demo, "summary": summary, "oom": oom, "leaks": leaks, "top": top}


def report(place, out):
    """The report is a page for a browser, so its picture is a bitmap, in light and in dark."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        print("report: no picture: Chromium is not installed")
        return
    run, stat = (str(place.build / "tools" / name) for name in ("gpupool-run", "gpupool-stat"))
    quiet = {"env": place.env, "cwd": place.folder, "check": False, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([run, "--limit=512MiB", "--record=solver.rec", "--stacks=8", "./solver", "200"], **quiet)
    subprocess.run([stat, "report", "solver.rec", "-o", "solver.html"], **{**quiet, "check": True})
    for nth, name in enumerate(("dark", "light")):
        path = out / f"report-{name}.png"
        subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                        f"--blink-settings=preferredColorScheme={nth}", f"--window-size={REPORT_SIZE[0]},{REPORT_SIZE[1]}",
                        f"--screenshot={path}", f"file://{place.folder}/solver.html"], **{**quiet, "check": True,
                        "env": {**os.environ, "HOME": str(place.folder)}})
        print(path)


def leaked(words, folder):
    """Texts of this machine that a picture must not carry."""
    return [text for text in (str(folder), str(ROOT), os.uname().nodename) if re.search(rf"\b{re.escape(text)}\b", words)]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("Usage: ")[1].strip())
    parser.add_argument("--columns", type=int)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    names = options.names or [*SCREENS, "report"]
    unknown = [name for name in names if name not in (*SCREENS, "report")]
    if unknown:
        sys.exit(f"pictures: there is no picture {', '.join(unknown)}")
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        with tempfile.TemporaryDirectory(prefix="solver-") as folder:
            place = Place(options.build.resolve(), folder, options.columns)
            if name == "report":
                report(place, options.out)
                continue
            screen, label = SCREENS[name](place)
            if not screen:
                print(f"{name}: no picture: {label}")
                continue
            words = terminal.svg(screen, label)
            found = leaked(words, folder)
            if found:
                sys.exit(f"pictures: {name} shows {', '.join(found)}:\n{screen.text()}")
            path = options.out / f"{name}.svg"
            path.write_text(words)
            print(path)


if __name__ == "__main__":
    main()
