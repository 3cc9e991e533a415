# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""scripts/package-test reports each step, each file that a package leaves, and what this machine cannot run.

Usage: test_roots.py ROOT

The test needs no rights: it makes no root, and a stand-in answers the commands.
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1]).resolve()
SCRIPT = ROOT / "scripts" / "package-test"


def load():
    loader = importlib.machinery.SourceFileLoader("package_test", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("package_test", loader))
    loader.exec_module(module)
    return module


package_test = load()


class Stand:
    """A root whose commands succeed, except for those with a word; each command adds the files that belong to it."""

    def __init__(self, bad="no command has this", adds=()):
        self.bad, self.adds, self.commands, self.found = bad, dict(adds), [], {"etc/passwd"}

    def run(self, command, _variables):
        self.commands.append(command)
        for word, path in self.adds.items():
            if word in command:
                self.found.add(path)
        return (1, "it broke") if self.bad in command else (0, "3.11\n")

    def files(self):
        return set(self.found)


def attempt(kind="deb", **more):
    root = Stand(**more)
    return root, package_test.try_package("Debian 12", kind, "1.2.3", root, True)


class Roots(unittest.TestCase):
    def test_every_kind_of_package_is_installed_used_and_removed_in_this_order(self):
        for kind in package_test.KINDS:
            root, row = attempt(kind)
            self.assertEqual(row.problem, "", kind)
            self.assertEqual(list(row.seconds), [step for step in package_test.STEPS if step in row.seconds])
            optional = {"deb": {"complete"}, "tarball": {"copy"}}.get(kind, set())
            self.assertEqual(set(package_test.STEPS) - set(row.seconds), {"complete", "copy"} - optional)
            self.assertEqual(len(root.commands), 1 + len(row.seconds))

    def test_a_step_that_fails_ends_the_attempt_and_its_output_is_shown(self):
        root, row = attempt(bad="--doctor")
        self.assertEqual(row.problem, "doctor: exit status 1\nit broke")
        self.assertIn("--doctor", root.commands[-1])
        cells = dict(zip(package_test.HEAD, package_test.cells_of(row)))
        self.assertEqual((cells["doctor, s"], cells["demo, s"], cells["left behind"]), ("failed", "", ""))

    def test_files_that_a_package_leaves_are_a_failure_and_are_named(self):
        _, row = attempt(adds={"apt-get install": "usr/bin/gpupool-run"})
        self.assertEqual(row.problem, "left behind: usr/bin/gpupool-run")
        self.assertEqual(package_test.cells_of(row)[-1], "1 file")

    def test_files_of_a_root_are_listed_without_caches_and_logs(self):
        with tempfile.TemporaryDirectory(prefix="gpupool-roots-") as folder:
            for name in ("var/cache/apt/x", "var/log/y", "var/lib/dpkg/z", "var/lib/here", "proc/1"):
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            pathlib.Path(folder, "empty").mkdir()
            self.assertEqual(package_test.Root(folder).files(), {"var/lib/here"})

    def test_the_result_is_a_table_an_exit_status_and_a_result_file(self):
        rows = [attempt()[1], attempt("wheel", bad="--doctor")[1]]
        with tempfile.TemporaryDirectory(prefix="gpupool-roots-") as folder, \
                contextlib.redirect_stdout(io.StringIO()) as printed:
            options = package_test.read_options(["--save", folder])
            self.assertEqual(package_test.report(options, [], rows, []), 1)
            self.assertEqual(package_test.report(options, [], rows[:1], []), 0)
            self.assertEqual(package_test.report(options, [], rows[:1], ["Debian 11: no root"]), package_test.SKIPPED)
            document = json.loads(pathlib.Path(folder, "packages.json").read_text())
        self.assertEqual((len(document["rows"]), document["head"]), (1, list(package_test.HEAD)))
        for words in ("FAILED: wheel on Debian 12: doctor", "1 of 2 packages passed", "skipped: Debian 11: no root"):
            self.assertIn(words, printed.getvalue())

    def run_script(self, *words, **env):
        return subprocess.run([sys.executable, SCRIPT, *words], env={**os.environ, **env}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)

    def test_a_machine_that_cannot_make_roots_skips_and_names_the_missing_tools(self):
        with tempfile.TemporaryDirectory(prefix="gpupool-roots-") as folder:
            done = self.run_script(PATH=folder)
        self.assertEqual(done.returncode, package_test.SKIPPED, done.stdout)
        self.assertRegex(done.stdout, r"^skipped: this machine has no .*\bmmdebstrap\b")

    def test_a_wrong_option_is_refused(self):
        for words in (("--release", "woody"), ("--kind", "rpm"), ("--roots",), ("x",)):
            done = self.run_script(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn("usage: scripts/package-test", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
