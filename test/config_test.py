#!/usr/bin/env python3
"""The scripts of config/, with other programs in the place of those that build and of the kernel.

Usage: config_test.py [SOURCE_ROOT]
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
SECONDS = 30


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()

    def put(self, path, text):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/sh\n" + text)
        file.chmod(0o755)

    def run_script(self, script, *words, **more):
        env = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", **more}
        return subprocess.run([script, *map(str, words)], cwd=self.folder, env=env, capture_output=True,
                              text=True, timeout=SECONDS)


class Hugepages(Scripts):
    """A kernel that has memory for 300 pages."""

    def setUp(self):
        super().setUp()
        self.put("bin/cat", 'n=$(/bin/cat "$1"); [ "$n" -le 300 ] || n=300; echo "$n"')
        for name in ("nr_hugepages", "free_hugepages"):
            (self.folder / name).write_text("100\n")

    def run_it(self, *words):
        return self.run_script(ROOT / "config/hugepages", *words, UROCE_HUGEPAGE_POOL=str(self.folder))

    def pages(self):
        return (self.folder / "nr_hugepages").read_text().strip()

    def test_so_many_are_set_up(self):
        self.assertEqual((self.run_it(200).returncode, self.pages()), (0, "200"))
        self.assertEqual((self.run_it(0).returncode, self.pages()), (0, "0"))
        self.assertEqual((self.run_it().returncode, self.pages()), (0, "256"))

    def test_more_than_fit_are_given_back(self):
        result = self.run_it(400)
        self.assertEqual((result.returncode, self.pages()), (12, "100"), result.stdout)
        self.assertIn("memory for 300 pages, not for 400", result.stderr)
        self.assertEqual(self.run_it("many").returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
