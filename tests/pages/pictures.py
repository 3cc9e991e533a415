#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Makes the screens in docs/pictures of real runs on the simulated GPU. Times and addresses differ between runs; all else
is the same. Needs a C compiler, pyte, and for the picture of a report Chromium.

Usage: pictures.py [--columns N] [--png] [--out DIR] BUILD [NAME...]

Some pictures are made only if they are named, for a look at what no page shows: compare, advise, doctor, and readme, which
is the first screen of README.md in a browser, light, dark and on a phone. --png makes bitmaps of the screens too, and a
picture of a report on a phone.
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
PHONE_SIZE = (390, 844)
README_SIZE = (1012, 1100)
# The measures and colours of a page of Markdown on GitHub.
README_PAGE = """<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width"><base href="%s/">
<style>
:root { color-scheme: light dark; --text: #1f2328; --back: #fff; --line: #d1d9e0; --code: #f6f8fa; --link: #0969da }
@media (prefers-color-scheme: dark) {
	:root { --text: #f0f6fc; --back: #0d1117; --line: #3d444d; --code: #151b23; --link: #4493f8 } }
body { font: 16px/1.5 "Liberation Sans", sans-serif; color: var(--text); background: var(--back); margin: 0 auto;
	max-width: 980px; padding: 32px; overflow-wrap: break-word }
@media (max-width: 767px) { body { padding: 16px } }
h1, h2 { border-bottom: 1px solid var(--line); padding-bottom: .3em; line-height: 1.25 } a { color: var(--link) }
code { background: var(--code); font: 85%% "DejaVu Sans Mono", monospace; padding: .2em .4em; border-radius: 6px }
pre { background: var(--code); padding: 16px; overflow: auto; border-radius: 6px } pre code { padding: 0 }
img { max-width: 100%% } table { border-collapse: collapse; display: block; overflow: auto; width: max-content;
	max-width: 100%% } td, th { border: 1px solid var(--line); padding: 6px 13px }
</style>
%s"""
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
        for file in (self.sim / "libcuda.so.1", self.sim / "libcudart.so.13", build / "tools" / "gpupool-stat"):
            if not file.exists():
                sys.exit(f"pictures: {file} is not built")
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
        # The option of the solver is not for users. The edge of the screen may cut it.
        names += [(" --wait"[:n], n * " ") for n in range(len(" --wait"), len(" --"), -1)] + [(f"{getpass.getuser():<4}", "user")]
        words = ["gpupool-stat", "top", "--watch=0.2", str(first), str(second)]
        env = {**place.env, "LD_PRELOAD": str(place.host)}
        screen.run(words, env, place.folder, names, b"q", 9, is_open=True)
    return screen, "gpupool-stat top shows the memory of two programs live"


def compare(place):
    # Calls take real time, and the program waits for the GPU itself, so that the times mean something (tests/sim/README.md).
    if not (place.sim / "nvml" / "libnvidia-ml.so.1").exists():
        sys.exit(f"pictures: {place.sim / 'nvml'} is not built")
    place.env |= {"SIMGPU_REALTIME": "1", "SIMGPU_SHARED": str(place.folder / "shared"),
                  "LD_LIBRARY_PATH": f"{place.sim}:{place.sim / 'nvml'}"}
    screen = place.screen()
    place.type(screen, "gpupool-run --compare=split,vmm ./solver 500 --sync")
    return screen, "gpupool-run --compare runs a program without and with gpupool"


def advise(place):
    screen = place.screen()
    run = {"env": place.env, "cwd": place.folder, "check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([place.build / "tools" / "gpupool-run", "-q", "--record=solver.rec", "--stacks", "./solver", "100"], **run)
    place.type(screen, "gpupool-stat advise solver.rec", lambda words: [
        (pid, terminal.fixed_pid(pid, 0)) for pid in re.findall(r"process (\d+)", words)])
    return screen, "gpupool-stat advise finds the pool type and the limit for a recording"


def doctor(place):
    screen = place.screen()
    place.type(screen, "gpupool-run --doctor --limit=2GiB ./solver", [(str(place.sim), "/usr/lib/x86_64-linux-gnu"),
                                                                       (place.env["GPUPOOL_RUNTIME_DIR"], "/run/gpupool"),
                                                                       (str(place.build), "/usr/local")])
    return screen, "gpupool-run --doctor checks everything before the start of a program"


SCREENS = {"demo": demo, "summary": summary, "oom": oom, "leaks": leaks, "top": top}
UNUSED = {"compare": compare, "advise": advise, "doctor": doctor}  # no page shows them


def find_browser(name):
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        print(f"{name}: no picture: Chromium is not installed")
    return browser


def photograph(browser, url, path, size, home, is_light=True):
    """A bitmap of a page in a window. The browser has a least width, so a frame stands for a narrower window."""
    words = f"--window-size={size[0]},{size[1]}"
    if size[0] < 500:
        frame = pathlib.Path(home, "frame.html")
        frame.write_text(f'<body style="margin:0"><iframe src="{url}" style="border:0;width:{size[0]}px;height:{size[1]}px">')
        url, words = f"file://{frame}", f"--window-size=500,{size[1]}"
    subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files",
                    f"--blink-settings=preferredColorScheme={int(is_light)}", words, f"--screenshot={path}", url],
                   env={**os.environ, "HOME": str(home)}, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(path)


def readme(place, out):
    """README.md as GitHub shows it, with the font sizes, widths and colours of its pages."""
    browser = find_browser("readme")
    try:
        import markdown  # pylint: disable=import-outside-toplevel # only this picture needs it
    except ImportError:
        print("readme: no picture: Python's markdown is not installed (Debian: python3-markdown)")
        return
    words = markdown.markdown((ROOT / "README.md").read_text(), extensions=["tables", "sane_lists"])
    page = place.folder / "readme.html"
    page.write_text(README_PAGE % (ROOT.as_uri(), words))
    for name, size, is_light in (("light", README_SIZE, True), ("dark", README_SIZE, False), ("phone", PHONE_SIZE, True)):
        if browser:
            photograph(browser, page.as_uri(), out / f"readme-{name}.png", size, place.folder, is_light)


def report(place, out, has_phone):
    """The report is a page for a browser, so its picture is a bitmap, in light and in dark."""
    browser = find_browser("report")
    if not browser:
        return
    run, stat = (str(place.build / "tools" / name) for name in ("gpupool-run", "gpupool-stat"))
    quiet = {"env": place.env, "cwd": place.folder, "check": False, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([run, "--limit=512MiB", "--record=solver.rec", "--stacks=8", "./solver", "200"], **quiet)
    subprocess.run([stat, "report", "solver.rec", "-o", "solver.html"], **{**quiet, "check": True})
    url = f"file://{place.folder}/solver.html"
    for nth, name in enumerate(("dark", "light")):
        photograph(browser, url, out / f"report-{name}.png", REPORT_SIZE, place.folder, bool(nth))
    if has_phone:
        photograph(browser, url, out / "report-phone.png", PHONE_SIZE, place.folder)


def leaked(words, folder):
    """Texts of this machine that a picture must not carry."""
    return [text for text in (str(folder), str(ROOT), os.uname().nodename) if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", words)]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("Usage: ")[1].strip())
    parser.add_argument("--columns", type=int)
    parser.add_argument("--png", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    names = options.names or [*SCREENS, "report"]
    screens = {**SCREENS, **UNUSED}
    unknown = [name for name in names if name not in (*screens, "report", "readme")]
    if unknown:
        sys.exit(f"pictures: there is no picture {', '.join(unknown)}")
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        with tempfile.TemporaryDirectory(prefix="solver-") as folder:
            place = Place(options.build.resolve(), folder, options.columns)
            if name == "report":
                report(place, options.out, options.png)
                continue
            if name == "readme":
                readme(place, options.out)
                continue
            screen, label = screens[name](place)
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
            browser = options.png and find_browser(name)
            if browser:
                size = [int(float(found)) for found in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', words)[0]]
                photograph(browser, path.as_uri(), path.with_suffix(".png"), size, folder)


if __name__ == "__main__":
    main()
