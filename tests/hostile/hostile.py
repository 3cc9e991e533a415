# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Shared by the tests of this folder: runs gpupool-stat with bounded memory and processor time."""

import os
import re
import resource
import signal
import subprocess
import sys

# A process whose work grows with the square of its input exceeds this on any machine. A process whose work is in
# proportion to its input needs a hundredth.
CPU_SECONDS = 8
MIB = 1 << 20

# All characters that control a terminal or change the direction of a line, except the end of a line.
CONTROL_CHARACTERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Stat:
    """Runs gpupool-stat. A sanitiser needs more address space than any limit, so its resident memory is limited."""

    def __init__(self, program, sanitizer):
        self.program = program
        self.is_sanitized = sanitizer != "none"

    def run(self, *words, env=None, memory=1024 * MIB, cpu_seconds=CPU_SECONDS, input_file=None):
        """Returns the exit code, stdout and stderr."""
        env = dict(env or os.environ)
        # Meson sets this variable, which makes malloc write to reserved memory that is not used.
        env.pop("MALLOC_PERTURB_", None)
        if self.is_sanitized:
            env["ASAN_OPTIONS"] = f"hard_rss_limit_mb={4 * memory // MIB}:" + env.get("ASAN_OPTIONS", "")
            cpu_seconds *= 3

        def limit():
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
            if not self.is_sanitized:
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

        done = subprocess.run([self.program, *words], env=env, stdin=input_file or subprocess.DEVNULL,
                              capture_output=True, preexec_fn=limit, check=False)
        if done.returncode == -signal.SIGXCPU:
            raise AssertionError(f"{' '.join(words)}: more than {cpu_seconds} s of processor time")
        if done.returncode < 0:
            raise AssertionError(f"{' '.join(words)}: ended by signal {-done.returncode}: {done.stderr[-2000:]}")
        return done.returncode, done.stdout, done.stderr


def control_characters(text):
    """Returns the characters in the text that would control a terminal."""
    try:
        return sorted({f"U+{ord(match):04X}" for match in CONTROL_CHARACTERS.findall(text.decode())})
    except UnicodeDecodeError as error:
        return [f"no UTF-8: {error}"]


def stat_from_arguments():
    """Takes GPUPOOL-STAT and SANITIZER from the command line and leaves the other words to unittest."""
    stat = Stat(os.path.abspath(sys.argv[1]), sys.argv[2])
    del sys.argv[1:3]
    return stat
