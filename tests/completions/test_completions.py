# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Usage: test_completions.py SOURCES GPUPOOL-STAT GPUPOOL-RUN: what bash, zsh and fish offer, held against the tables in
the sources.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, STAT, RUN = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
FILES = ROOT / "tools/completions"
FILE_OF = {"bash": "gpupool-stat.bash", "zsh": "_gpupool-stat", "fish": "gpupool-stat.fish"}

BASH = """. {file}
COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_{function}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """compadd() {{ shift; print -l -- "$@" }}
_files() {{ }}
_command_names() {{ }}
words=({words}) CURRENT=$#words service={program}
. {file}
"""
FISH = """source {file}
complete -C {quoted}
"""


def commands():
    """The rows of the table of commands."""
    table = (ROOT / "tools/stat_command.c").read_text().split("stat_commands[] = {", 1)[1]
    return set(re.findall(r'^\t\{"([a-z]+)"', table, re.M))


def long_options():
    table = (ROOT / "tools/gpupool_stat.c").read_text().split("long_options[] = {", 1)[1].split("};", 1)[0]
    return {f"--{name}" for name in re.findall(r'\{"([a-z-]+)"', table)}


def offered(shell, program, *words):
    """What the shell offers for the last word, without the signs behind options."""
    file = FILES / FILE_OF[shell]
    quoted = " ".join(f"'{word}'" for word in (program, *words))
    script = {"bash": BASH, "zsh": ZSH, "fish": FISH}[shell].format(
        file=file, words=quoted, program=program, function=program.replace("-", "_"),
        quoted='"' + " ".join((program, *words)) + '"')
    plain = {"bash": ["bash", "--norc", "-c"], "zsh": ["zsh", "-f", "-c"], "fish": ["fish", "--no-config", "-c"]}[shell]
    env = {**os.environ, "PATH": f"{STAT.parent}:{RUN.parent}:{os.environ['PATH']}",
           "GPUPOOL_RUNTIME_DIR": "/nonexistent"}
    # A shell may make folders at home.
    with tempfile.TemporaryDirectory() as home:
        env |= {"HOME": home, "XDG_CONFIG_HOME": f"{home}/config", "XDG_DATA_HOME": f"{home}/data"}
        done = subprocess.run([*plain, script], capture_output=True, text=True, env=env, timeout=60, check=False)
    if done.stderr:
        raise AssertionError(done.stderr)
    return {line.split("\t")[0].rstrip("=") for line in done.stdout.split("\n") if line}


def each_shell(test):
    """The test once for each shell that is there."""
    def run(self):
        for shell in FILE_OF:
            with self.subTest(shell=shell):
                if not shutil.which(shell):
                    self.skipTest(f"there is no {shell}")
                test(self, shell)
    run.__name__ = test.__name__
    return run


class Completions(unittest.TestCase):
    @each_shell
    def test_it_can_be_read(self, shell):
        subprocess.run([shell, "-n", FILES / FILE_OF[shell]], check=True, timeout=60)

    @each_shell
    def test_every_command_is_offered(self, shell):
        self.assertGreater(len(commands()), 10)
        self.assertLessEqual(commands(), offered(shell, "gpupool-stat", ""))
        self.assertNotIn("map", offered(shell, "gpupool-stat", "list", ""))

    @each_shell
    def test_every_option_is_offered_by_some_command(self, shell):
        found = offered(shell, "gpupool-stat", "--")
        for command in commands():
            found |= offered(shell, "gpupool-stat", command, "--")
        self.assertLessEqual(long_options(), found)

    @each_shell
    def test_only_what_a_command_takes_is_offered(self, shell):
        self.assertIn("--query", offered(shell, "gpupool-stat", "list", "--"))
        self.assertNotIn("--query", offered(shell, "gpupool-stat", "map", "--"))

    @each_shell
    def test_whatever_only_reads_can_be_repeated(self, shell):
        for command in ("check", "config", "metrics", "stacks", "status", "top"):
            self.assertIn("--watch", offered(shell, "gpupool-stat", command, "--"))
        for command in ("defer", "export", "reclaim", "replay"):
            self.assertNotIn("--watch", offered(shell, "gpupool-stat", command, "--"))

    @each_shell
    def test_options_of_the_launcher_are_offered(self, shell):
        table = (ROOT / "shim/config.def").read_text()
        names = {f"--{name}" for name in re.findall(r'GP_OPTION\(\w+,\s*"\w+",\s*"([a-z-]+)"', table)}
        self.assertGreater(len(names), 5)
        self.assertLessEqual(names, offered(shell, "gpupool-run", "--"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
