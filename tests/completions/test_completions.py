# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Usage: test_completions.py SOURCES GPUPOOL-STAT GPUPOOL-RUN BUILD

Compares the completions that bash, zsh and fish offer with the tables in SOURCES, and checks that each shell loads the
completions of both programs from where BUILD installs them.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, STAT, RUN, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:5])
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
# Scripts that make a shell search for a program's completions by itself.
BASH_COMPLETION = pathlib.Path("/usr/share/bash-completion/bash_completion")
LOAD_SCRIPTS = {
    "bash": """. {bash_completion}
_completion_loader {program} 2>/dev/null || _comp_load {program}
complete -p {program}
""",
    "zsh": """fpath=({share}/zsh/site-functions $fpath)
autoload -U compinit && compinit -u -d {home}/dump
autoload +X ${{_comps[{program}]}} && print -r -- {program} ${{_comps[{program}]}}
""",
    "fish": """complete -C "{program} --hel"
""",
}
EXPECTED_OUTPUT = {"bash": "complete -F _{function} {program}", "zsh": "{program} _gpupool-stat", "fish": "--help"}

FISH = """source {file}
complete -C {quoted}
"""


def commands():
    """The commands of gpupool-stat."""
    table = (ROOT / "tools/stat/commands.def").read_text()
    return set(re.findall(r'^COMMAND\("([a-z]+)"', table, re.M))


def long_options():
    table = (ROOT / "tools/ask/options.def").read_text()
    return {f"--{name}" for name in re.findall(r'^OPTION\(\w+, "([a-z-]+)"', table, re.M)}


def offered(shell, program, *words):
    """The completions that the shell offers for the last word, without descriptions and a final =."""
    file = FILES / FILE_OF[shell]
    quoted = " ".join(f"'{word}'" for word in (program, *words))
    script = {"bash": BASH, "zsh": ZSH, "fish": FISH}[shell].format(
        file=file, words=quoted, program=program, function=program.replace("-", "_"),
        quoted='"' + " ".join((program, *words)) + '"')
    plain = {"bash": ["bash", "--norc", "-c"], "zsh": ["zsh", "-f", "-c"], "fish": ["fish", "--no-config", "-c"]}[shell]
    env = {**os.environ, "PATH": f"{STAT.parent}:{RUN.parent}:{os.environ['PATH']}",
           "GPUPOOL_RUNTIME_DIR": "/nonexistent"}
    # A shell may create folders in the home directory.
    with tempfile.TemporaryDirectory() as home:
        env |= {"HOME": home, "XDG_CONFIG_HOME": f"{home}/config", "XDG_DATA_HOME": f"{home}/data"}
        done = subprocess.run([*plain, script], capture_output=True, text=True, env=env, timeout=60, check=False)
    if done.stderr:
        raise AssertionError(done.stderr)
    return {line.split("\t")[0].rstrip("=") for line in done.stdout.split("\n") if line}


def install(build, folder):
    """Installs the completions below a folder. Returns the installed share folder."""
    # Install from a copy of the build directory, made of links: Meson writes a log of the installation into it.
    build_links = pathlib.Path(folder) / "build"
    for directory in (build_links, build_links / "meson-logs", build_links / "meson-private"):
        directory.mkdir()
    for path in [*build.iterdir(), *(build / "meson-private").iterdir()]:
        if path.name not in ("meson-logs", "meson-private"):
            (build_links / path.relative_to(build)).symlink_to(path)
    done = subprocess.run(["meson", "install", "-C", build_links, "--no-rebuild", "--tags=completions", "--destdir", f"{folder}/root"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stdout)
    return next(path.parent for path in pathlib.Path(folder).rglob("site-functions")).parent


def loaded_completions(shell, program, share):
    """The output of a shell that has searched for the completions of a program by itself."""
    with tempfile.TemporaryDirectory() as home:
        script = LOAD_SCRIPTS[shell].format(bash_completion=BASH_COMPLETION, program=program, share=share, home=home)
        env = {**os.environ, "PATH": f"{STAT.parent}:{RUN.parent}:{os.environ['PATH']}", "HOME": home,
               "XDG_CONFIG_HOME": f"{home}/config", "XDG_DATA_HOME": f"{home}/data", "XDG_DATA_DIRS": str(share)}
        words = {"bash": ["bash", "--norc", "-c"], "zsh": ["zsh", "-f", "-c"], "fish": ["fish", "-c"]}[shell]
        done = subprocess.run([*words, script], capture_output=True, text=True, env=env, timeout=60, check=False)
    return done.stdout + done.stderr


def each_shell(test):
    """Runs the test for each shell that is installed."""
    def run(self):
        for shell in FILE_OF:
            with self.subTest(shell=shell):
                if not shutil.which(shell):
                    self.skipTest(f"{shell} is not installed")
                test(self, shell)
    run.__name__ = test.__name__
    return run


class Completions(unittest.TestCase):
    @each_shell
    def test_completion_file_has_valid_syntax(self, shell):
        subprocess.run([shell, "-n", FILES / FILE_OF[shell]], check=True, timeout=60)

    @each_shell
    def test_every_command_is_offered(self, shell):
        self.assertGreater(len(commands()), 10)
        self.assertLessEqual(commands(), offered(shell, "gpupool-stat", ""))
        self.assertNotIn("map", offered(shell, "gpupool-stat", "list", ""))

    @each_shell
    def test_every_command_is_offered_after_help(self, shell):
        self.assertLessEqual(commands(), offered(shell, "gpupool-stat", "help", ""))

    @each_shell
    def test_every_option_is_offered_by_some_command(self, shell):
        found = offered(shell, "gpupool-stat", "--")
        for command in commands():
            found |= offered(shell, "gpupool-stat", command, "--")
        self.assertLessEqual(long_options(), found)

    @each_shell
    def test_options_of_other_commands_are_not_offered(self, shell):
        self.assertIn("--query", offered(shell, "gpupool-stat", "list", "--"))
        self.assertNotIn("--query", offered(shell, "gpupool-stat", "map", "--"))

    @each_shell
    def test_watch_is_offered_only_for_commands_that_read(self, shell):
        for command in ("check", "config", "defer", "metrics", "stacks", "status", "top"):
            self.assertIn("--watch", offered(shell, "gpupool-stat", command, "--"))
        for command in ("advise", "export", "reclaim", "replay"):
            self.assertNotIn("--watch", offered(shell, "gpupool-stat", command, "--"))

    @each_shell
    def test_options_of_the_launcher_are_offered(self, shell):
        table = (ROOT / "common/config.def").read_text()
        names = {f"--{name}" for name in re.findall(r'GP_OPTION\(\w+,\s*"\w+",\s*"([a-z-]+)"', table)}
        self.assertGreater(len(names), 5)
        own = (ROOT / "tools/run/gpupool_run.c").read_text().split("own_options[] = {", 1)[1].split("};", 1)[0]
        names |= {f"--{name}" for name in re.findall(r'\{"([a-z-]+)", ', own)}
        self.assertLessEqual({"--summary", "--compare"}, names)
        self.assertLessEqual(names, offered(shell, "gpupool-run", "--"))

    @each_shell
    def test_shell_loads_installed_completions_for_each_program(self, shell):
        if not shutil.which("meson"):
            self.skipTest("Meson is not installed")
        if shell == "bash" and not BASH_COMPLETION.exists():
            self.skipTest(f"bash-completion is not installed: there is no {BASH_COMPLETION}")
        with tempfile.TemporaryDirectory() as folder:
            share = install(BUILD, folder)
            for program in ("gpupool-stat", "gpupool-run"):
                expected = EXPECTED_OUTPUT[shell].format(program=program, function=program.replace("-", "_"))
                self.assertIn(expected, loaded_completions(shell, program, share))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
