# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_sleep.py ROOT BUILD SIMULATOR-DIRECTORY TURNS

Runs the commands of docs/sleep.md on the simulated GPU, on which one of two programs fits.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT, BUILD, SIM, TURNS = (pathlib.Path(word).resolve() for word in sys.argv[1:5])
sys.path.insert(0, str(ROOT / "tests/readers"))

from readers import main  # noqa: E402

PAGE = ROOT / "docs/sleep.md"
LIMIT_S = 60
PROGRAMS = ("serve", "generate", "train", "editor", "game")
# Takes 128 MiB of 200 and works for a moment. Then it waits for a file of its name, and works again for each one.
PROGRAM = """#!/bin/sh
name=$(basename "$0")${1:+-$1}
{ while [ ! -e stop ]; do [ ! -e "$name.go" ] || { rm "$name.go"; echo; }; sleep 0.02; done; } |
exec TURNS turns 128 0.01 >"$name.out"
"""
IDLE = "idle:30s", "idle:200ms"  # the time of the page, and that of this test


def commands(heading):
    """The commands of a section of the page."""
    section = re.search(rf"(?ms)^## {re.escape(heading)}$(.*?)(?=^## |\Z)", PAGE.read_text())
    assert section, f"the page has no section '{heading}'"
    return re.findall(r"(?m)^    (\S.*)$", section[1])


class Machine:
    """A folder with the programs of the page, their settings, and the commands that have run."""

    def __init__(self, folder):
        self.folder, self.left, self.children = pathlib.Path(folder), [], []
        for name in PROGRAMS:
            program = self.folder / name
            program.write_text(PROGRAM.replace("TURNS", str(TURNS)))
            program.chmod(0o755)
        sockets, settings = self.folder / "run", self.folder / "etc"
        sockets.mkdir(mode=0o700)
        settings.mkdir()
        self.settings = settings / "gpupool.conf"
        self.env = {**{key: value for key, value in os.environ.items() if not key.startswith("GPUPOOL")},
                    "PATH": f"{BUILD}/tools:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(SIM),
                    "GPUPOOL_RUNTIME_DIR": str(sockets), "TMPDIR": str(sockets), "XDG_RUNTIME_DIR": "",
                    "GPUPOOL_CONFIG_DIR": str(settings), "GPUPOOL_RESERVE": "0", "SIMGPU_MEMORY": "200MiB",
                    "SIMGPU_SHARED": str(self.folder / "gpu"), "SIMGPU_STRICT": "1"}

    def section(self, heading):
        assert not self.left, f"the test does not run {self.left}"
        self.left = commands(heading)

    def command(self, begin, pid=None):
        """Runs the next command of the section, which begins like that. One with & goes on."""
        assert self.left and self.left[0].startswith(begin), f"'{begin}' is not next in {self.left}"
        words = self.left.pop(0).replace(*IDLE).replace("/etc/gpupool.conf", str(self.settings))
        words = re.sub(r"\bPID\b", str(pid), words)
        if words.endswith(" &"):
            self.children.append(subprocess.Popen(["bash", "-c", "exec " + words[:-2]], cwd=self.folder, env=self.env,
                                                  start_new_session=True))
            return ""
        done = subprocess.run(["bash", "-c", words], cwd=self.folder, env=self.env, capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def state(self, name):
        """The state of sleep of a program by its name; None: it does not run yet."""
        done = subprocess.run([BUILD / "tools/gpupool-stat", "list", "--json"], env=self.env, capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)
        for process in json.loads(done.stdout or "{}").get("processes", []):
            if pathlib.Path(f"/proc/{process['pid']}/fd/1").resolve().name == f"{name}.out":
                return process["pid"], process["sleep"]
        return None, {}

    def await_state(self, name, state):
        return await_true(lambda: (found := self.state(name))[1].get("state") == state and found[0],
                          f"{name} is {state}", lambda: self.state(name))

    def lines(self, name):
        file = self.folder / f"{name}.out"
        return file.read_text().splitlines() if file.exists() else []

    def await_lines(self, name, n):
        await_true(lambda: len(self.lines(name)) >= n, f"{name} has done {n} turns", lambda: self.lines(name))
        assert all(line.endswith(" 0") for line in self.lines(name)), self.lines(name)

    def work(self, name):
        """Gives a program something to do, and waits until it has."""
        n = len(self.lines(name))
        (self.folder / f"{name}.go").touch()
        self.await_lines(name, n + 1)

    def kill(self, name):
        """Ends the program that was started last, which has this name, with all of its processes."""
        os.killpg(self.children[-1].pid, signal.SIGKILL)
        await_true(lambda: self.state(name)[0] is None, f"{name} has ended", lambda: self.state(name))

    def end(self):
        (self.folder / "stop").touch()
        for child in self.children:
            try:
                child.wait(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
        self.children.clear()
        for file in (*self.folder.glob("*.out"), self.folder / "stop"):
            file.unlink(missing_ok=True)


def await_true(condition, what, describe):
    limit = time.monotonic() + LIMIT_S
    while not (value := condition()):
        assert time.monotonic() < limit, f"not within {LIMIT_S} s: {what}: {describe()}"
        time.sleep(0.05)
    return value


@contextlib.contextmanager
def machine():
    with tempfile.TemporaryDirectory(prefix="gpupool-") as folder:
        made = Machine(folder)
        try:
            yield made
        finally:
            made.end()
        assert not made.left, f"the test does not run {made.left}"


def servers_sleep_while_they_are_idle_or_when_another_one_needs_the_memory():
    with machine() as m:
        m.section("Several models on one card")
        m.command("gpupool-run --pool=vmm --sleep=idle:30s ./serve model-a")
        m.await_lines("serve-model-a", 1)
        m.await_state("serve-model-a", "asleep")
        m.command("gpupool-run --pool=vmm --sleep=idle:30s ./serve model-b")
        m.await_lines("serve-model-b", 1)
        m.await_state("serve-model-b", "asleep")
        text = m.command("gpupool-stat list")
        assert "ASLEEP" in text and len(re.findall(r"1\d\d MiB \d+s", text)) == 2, text
        m.work("serve-model-a")
        m.end()
        m.command("gpupool-run --pool=vmm --sleep=on ./serve model-a")
        m.await_lines("serve-model-a", 1)
        m.command("gpupool-run --pool=vmm --sleep=on ./serve model-b")
        m.await_lines("serve-model-b", 1)
        pid = m.await_state("serve-model-a", "asleep")
        m.kill("serve-model-b")
        text = m.command("gpupool-stat wake PID", pid)
        assert text.startswith("awake: took 1"), text


def a_server_is_taken_out_of_the_device_and_brought_back():
    with machine() as m:
        m.section("The contexts, too")
        m.command("gpupool-run --pool=vmm ./serve model-a")
        m.await_lines("serve-model-a", 1)
        pid = m.state("serve-model-a")[0]
        text = m.command("gpupool-stat sleep --deep PID", pid)
        assert "deep asleep: the driver took out " in text, text
        text = m.command("gpupool-stat list")
        assert re.search(r"1\d\d MiB \d+s deep ", text), text
        text = m.command("gpupool-stat wake PID", pid)
        assert "awake: took 1" in text, text
        m.work("serve-model-a")


def two_programs_of_a_training_take_turns():
    with machine() as m:
        m.section("Reinforcement learning that shares a card")
        m.command("gpupool-run --pool=vmm --sleep=on --sleep-keep ./generate")
        m.await_lines("generate", 1)
        m.command("gpupool-run --pool=vmm --sleep=on --sleep-keep ./train")
        m.await_lines("train", 1)
        generate = m.await_state("generate", "asleep")
        train, _ = m.state("train")
        text = m.command("gpupool-stat sleep PID", train)
        assert text.startswith("asleep: gave 1"), text
        text = m.command("gpupool-stat wake PID", generate)
        assert text.startswith("awake: took 1"), text
        m.work("generate")


def two_programs_of_a_desktop_sleep_for_each_other():
    with machine() as m:
        m.section("A desktop with two programs")
        m.command("gpupool-run --pool=vmm --sleep=on ./editor")
        m.await_lines("editor", 1)
        m.command("gpupool-run --pool=vmm --sleep=on ./game")
        m.await_lines("game", 1)
        m.await_state("editor", "asleep")
        m.work("editor")
        m.await_state("game", "asleep")
        m.end()
        m.command("echo GPUPOOL_POOL=auto")
        m.command("echo GPUPOOL_SLEEP=on")
        m.children.append(subprocess.Popen([BUILD / "tools/gpupool-run", "./editor"], cwd=m.folder, env=m.env))
        m.await_lines("editor", 1)
        assert m.state("editor")[1]["setting"] == "on"
        m.section("If a process does not sleep")
        text = m.command("gpupool-stat status PID", m.state("editor")[0])
        assert "GPUPOOL_SLEEP=on: idle for " in text, text


TESTS = [
    servers_sleep_while_they_are_idle_or_when_another_one_needs_the_memory,
    a_server_is_taken_out_of_the_device_and_brought_back,
    two_programs_of_a_training_take_turns,
    two_programs_of_a_desktop_sleep_for_each_other,
]

if __name__ == "__main__":
    main(TESTS)
