# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
A program on its own terminal, whose screen a test can read: pyte emulates the terminal. TERM is screen-256color, which
has an alternate screen and uses only sequences that pyte knows.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time

import pyte

TIMEOUT_S = 30  # limit for the screen to show the text for which a test waits

ENTER_SCREEN, LEAVE_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
SHOW_CURSOR = b"\x1b[?25h"


def run_as_leader(words, env, report):
    """Runs as the leader of the session, like a shell, so that its child can be stopped. Reports the child's state."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpgrp())
        for number in (signal.SIGTTOU, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.execve(words[0], words, env)
    os.write(report, f"pid {child}\n".encode())
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            os.write(report, b"stopped\n")
            continue
        os.tcsetpgrp(0, os.getpgrp())
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        os.write(report, f"ended {code}\n".encode())
        while True:  # the terminal must stay until the test has read it
            signal.pause()


class Terminal:
    """raw: all bytes that the program wrote; text: the contents of the screen; reported: text the leader reported."""

    def __init__(self, words, columns=80, rows=24, env=None):
        self.raw, self.reported = b"", b""
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.reports, report = os.pipe()
        size_is_set, signal_size = os.pipe()
        self.leader, self.fd = pty.fork()
        if self.leader == 0:
            os.read(size_is_set, 1)  # waits until the terminal has its size
            variables = {**os.environ, "TERM": "screen-256color", "LC_ALL": "C.UTF-8", **(env or {})}
            try:
                run_as_leader([str(word) for word in words], {name: value for name, value in variables.items() if value is not None},
                     report)
            finally:
                os._exit(1)
        os.close(report)
        os.close(size_is_set)
        self.resize(columns, rows)
        self.modes = termios.tcgetattr(self.fd)
        os.write(signal_size, b"x")
        os.close(signal_size)
        self.pid = int(self.await_report("pid "))

    def resize(self, columns, rows):
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def lines(self):
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self):
        return "\n".join(self.lines)

    def read(self, timeout_s=0.1):
        ready, _, _ = select.select([self.fd, self.reports], [], [], timeout_s)
        if self.fd in ready:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            self.raw += data
            self.stream.feed(data)
        if self.reports in ready:
            self.reported += os.read(self.reports, 4096)

    def wait(self, condition, text):
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"timed out waiting for {text}; the screen:\n{self.text}\n{self.reported}")
            self.read()

    def wait_for(self, *parts):
        for part in parts:
            self.wait(lambda part=part: part in self.text, repr(part))

    def wait_until_gone(self, part):
        self.wait(lambda: part not in self.text, f"the end of {part!r}")

    def await_report(self, text):
        self.wait(lambda: text.encode() in self.reported, f"the report {text!r}")
        self.wait(lambda: b"\n" in self.reported.split(text.encode(), 1)[1], f"the end of the report {text!r}")
        return self.reported.split(text.encode(), 1)[1].split(b"\n", 1)[0].decode()

    def press(self, keys):
        os.write(self.fd, keys.encode())

    def kill(self, number):
        os.kill(self.pid, number)

    def end(self):
        """Waits for the end of the program. Returns its exit code, or minus the number of the signal that ended it."""
        code = int(self.await_report("ended "))
        while select.select([self.fd], [], [], 0)[0]:
            before = len(self.raw)
            self.read(0)
            if len(self.raw) == before:
                break
        return code

    def close(self):
        for pid in (self.pid, self.leader):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os.close(self.fd)
        os.close(self.reports)
        os.waitpid(self.leader, 0)
