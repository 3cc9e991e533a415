# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""What the commands of the README install, whatever else was built in the clone before.

Usage: test_setup.py ROOT

It configures and looks at the result; nothing is compiled. Without Meson it ends with 77.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1]).resolve()
SCRIPTS = (("test", "--no-install"), ("soak",), ("soak", "--tsan"), ("fuzz", "--no-install"), ("test-aarch64", "--no-install"),
           ("demo", "--no-install"))

# Stands in for what the scripts call: notes where a build is set up, and with which options.
TOOL = """#!/bin/sh
case $0 in
*/meson) echo "$PWD $*" >>"$SETUP_TEST_NOTES" ;;
esac
exit %d
"""


def install_setups():
    """The words behind each `meson setup` in the README, and the directory among them."""
    for words in re.findall(r"meson setup ([^&`\n]*)", (ROOT / "README.md").read_text()):
        words = shlex.split(words)
        yield words, [word for word in words if not word.startswith("-")][0]


def run(words, **kwargs):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **kwargs)
    if done.returncode:
        raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}")
    return done.stdout


def options_of(build):
    text = run(["meson", "introspect", "--buildoptions", build])
    return {option["name"]: option["value"] for option in json.loads(text)}


def directories_of_scripts():
    """Where the scripts have builds set up, in a tree that has nothing but them."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="gpupool-setup-") as tree:
        tree = pathlib.Path(tree)
        shutil.copytree(ROOT / "scripts", tree / "scripts")
        (tree / "bin").mkdir()
        # Setting up fails, so that no script goes on from there.
        for name in ("meson", "ninja", "ninja-build", "clang"):
            (tree / "bin" / name).write_text(TOOL % (name == "meson"))
            (tree / "bin" / name).chmod(0o755)
        for script in SCRIPTS:
            notes = tree / "notes"
            notes.write_text("")
            env = dict(os.environ, PATH=f"{tree / 'bin'}:{os.environ['PATH']}", SETUP_TEST_NOTES=str(notes))
            subprocess.run([tree / "scripts" / script[0], *script[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           env=env, check=False, timeout=60)
            for line in notes.read_text().splitlines():
                words = line.split()
                if words[1] in ("setup", "configure"):
                    names = {pathlib.Path(word).name for word in words[2:] if not word.startswith("-")}
                    found.setdefault(script, set()).update(names)
    return found


class Setup(unittest.TestCase):
    def test_no_script_builds_where_the_readme_installs_from(self):
        setups = list(install_setups())
        self.assertTrue(setups, "the README sets nothing up")
        found = directories_of_scripts()
        for _, directory in setups:
            for script, directories in found.items():
                self.assertNotIn(directory, directories, script)
        # They did come that far.
        self.assertIn("build-test", found[("test", "--no-install")])
        self.assertIn("build-test", found[("soak",)])

    def test_what_the_readme_installs_is_a_release(self):
        for words, directory in install_setups():
            with tempfile.TemporaryDirectory(prefix="gpupool-setup-") as tree:
                build = pathlib.Path(tree) / "build"
                words = [build if word == directory else word for word in words]
                run(["meson", "setup", *words, "-Dtests=disabled"], cwd=ROOT)
                self.check_release(build)
                self.check_targets(build)

    def test_a_release_is_what_is_built_where_nothing_is_said(self):
        self.assertEqual(options_of(ROOT / "meson.build")["buildtype"], "release")

    def check_release(self, build):
        options = options_of(build)
        self.assertEqual(options["buildtype"], "release")
        self.assertEqual(options["optimization"], "3")
        self.assertFalse(options["debug"])
        self.assertFalse(options["werror"])
        self.assertEqual(options["b_sanitize"], "none")

    def check_targets(self, build):
        targets = json.loads(run(["meson", "introspect", "--targets", build]))
        sources = [str(pathlib.Path(target["defined_in"]).relative_to(ROOT)) for target in targets]
        self.assertIn("shim/meson.build", sources)
        rooms = {source for source in sources if source.startswith("tests/")}
        rooms = {source for source in rooms if not source.startswith(("tests/sim/", "tests/demo/"))}
        self.assertEqual(rooms, set(), "built with -Dtests=disabled")
        self.assertEqual(json.loads(run(["meson", "introspect", "--tests", build])), [])
        self.assertEqual(json.loads(run(["meson", "introspect", "--benchmarks", build])), [])


if __name__ == "__main__":
    if not shutil.which("meson"):
        print("skipped: there is no meson to ask")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
