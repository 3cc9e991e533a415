# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""The commands in the README install a release build, even if the scripts have built in the same clone before.

Usage: test_setup.py ROOT

The test configures builds and examines the result; it compiles nothing. Exits with 77 if Meson is missing.
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
           ("demo", "--no-install"), ("package", "--no-install", "tarball"))

# Replaces the tools that the scripts call. As meson it notes the working directory and the arguments.
TOOL = """#!/bin/sh
case $0 in
*/meson) echo "$PWD $*" >>"$SETUP_TEST_NOTES" ;;
esac
exit %d
"""


def install_setups():
    """(arguments, directory) of each `meson setup` in the README."""
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
    """The build directories that each script sets up, in a tree that has only the scripts."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="gpupool-setup-") as tree:
        tree = pathlib.Path(tree)
        shutil.copytree(ROOT / "scripts", tree / "scripts")
        shutil.copy(ROOT / "meson.build", tree)
        # scripts/package takes this library as built, and downloads nothing.
        library = tree / "build-package" / f"libraries-{os.uname().machine}" / "lib" / "pkgconfig" / "libmicrohttpd.pc"
        library.parent.mkdir(parents=True)
        library.touch()
        (tree / "bin").mkdir()
        # The meson here fails, so that each script stops after its first setup.
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
    def test_scripts_never_build_in_the_install_directory_of_the_readme(self):
        setups = list(install_setups())
        self.assertTrue(setups, "the README has no `meson setup`")
        found = directories_of_scripts()
        for _, directory in setups:
            for script, directories in found.items():
                self.assertNotIn(directory, directories, script)
        # This script reached its setup, so the check above is not vacuous.
        self.assertIn("build-test", found[("test", "--no-install")])
        self.assertIn("build-test", found[("soak",)])
        self.assertIn(f"static-{os.uname().machine}", found[("package", "--no-install", "tarball")])

    def test_commands_of_the_readme_configure_a_release_build(self):
        for words, directory in install_setups():
            with tempfile.TemporaryDirectory(prefix="gpupool-setup-") as tree:
                build = pathlib.Path(tree) / "build"
                words = [build if word == directory else word for word in words]
                run(["meson", "setup", *words, "-Dtests=disabled"], cwd=ROOT)
                self.check_release(build)
                self.check_targets(build)

    def test_buildtype_is_release_by_default(self):
        self.assertEqual(options_of(ROOT / "meson.build")["buildtype"], "release")

    def test_recipes_name_the_version_of_the_project(self):
        version = json.loads(run(["meson", "introspect", "--projectinfo", ROOT / "meson.build"]))["version"]
        for recipe, pattern in (("gpupool.spec", r"^Version: *(.*)$"), ("gpupool.spec", r"^\* .* - (.*)-\d+$"),
                                ("conda/recipe.yaml", r'^  version: "(.*)"$')):
            found = re.findall(pattern, (ROOT / "scripts/packages" / recipe).read_text(), re.M)
            self.assertEqual(found[:1], [version], f"{recipe}: {pattern}")

    def test_an_address_of_the_project_stands_only_in_the_control_file_of_debian(self):
        recipes = [path for path in (ROOT / "scripts").rglob("*") if path.is_file()]
        found = [path.relative_to(ROOT).as_posix() for path in recipes if re.search(r"example\.(?:com|net|org)", path.read_text())]
        self.assertEqual(found, ["scripts/packages/debian/control"])

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
        built = [target["name"] for target, source in zip(targets, sources)
                 if source.startswith("tests/") and target["build_by_default"]]
        self.assertEqual(built, [], "targets of tests/ although -Dtests=disabled")
        self.assertEqual(json.loads(run(["meson", "introspect", "--tests", build])), [])
        self.assertEqual(json.loads(run(["meson", "introspect", "--benchmarks", build])), [])


if __name__ == "__main__":
    if not shutil.which("meson"):
        print("skipped: Meson is not installed")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
