#!/usr/bin/env python3
"""`uroce run` from folders of all names.

Usage: run_test.py UROCE_PROGRAM
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from cli_test import SECONDS, UROCE, Case, clean_environment

INVALID = 10
LIBRARIES = ("lib/abi/ibverbs/libibverbs.so.1", "lib/abi/rdmacm/preload/liburoce-preload.so")


class Folders(Case):
    def run_in(self, name, *words):
        """`uroce run`, from a folder of that name."""
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory, name)
            for part in LIBRARIES:
                (root / part).parent.mkdir(parents=True)
                (root / part).symlink_to(UROCE.parents[1] / part)
            (root / "apps").mkdir()
            shutil.copy(UROCE, root / "apps")  # no link: it looks where it really is
            return subprocess.run([root / "apps/uroce", "run", "--port", self.link, "--", *words], text=True,
                                  capture_output=True, env=clean_environment(), timeout=SECONDS)

    def test_those_with_blanks_are_found(self):
        for name in ("none", "a b"):
            with self.subTest(name=name):
                result = self.run_in(name, "cat", "/proc/self/maps")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("/liburoce-preload.so", result.stdout)
                self.assertRegex(result.stderr, r"\Auroce: port .*\n\Z")  # and nothing by ld.so

    def test_those_that_the_linker_cannot_be_told_are_refused(self):
        self.assert_fails(self.run_in("a:b", "true"), INVALID, "a:b", "':'")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
