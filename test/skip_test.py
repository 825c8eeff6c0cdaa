#!/usr/bin/env python3
"""Cases of Catch2 that say that they cannot run here are counted as skipped, in the program's last line.

Usage: skip_test.py PROGRAM
"""
import subprocess
import sys
import unittest

PROGRAM = sys.argv[1]
SECONDS = 20


def run(*words):
    """@return its status, its skips and its last line"""
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=SECONDS, check=False)
    lines = done.stdout.strip().splitlines()
    return done.returncode, {line for line in lines if line.startswith("skip ")}, lines[-1]


class Skip(unittest.TestCase):
    SKIPS = {"skip  is skipped  there is no moon", "skip  is skipped with each value  there is no sun"}

    def test_what_is_skipped_has_not_passed(self):
        self.assertEqual(run("[passes],[skips]"), (0, self.SKIPS, "1 passed, 0 failed, 2 skipped"))

    def test_what_fails_has_failed(self):
        self.assertEqual(run(), (1, self.SKIPS, "1 passed, 1 failed, 2 skipped"))

    def test_nothing_but_skips_is_a_skip(self):
        self.assertEqual(run("[skips]"), (77, self.SKIPS, "0 passed, 0 failed, 2 skipped"))

    def test_without_skips_all_is_as_catch_has_it(self):
        self.assertEqual(run("[passes]"), (0, set(), "All tests passed (1 assertion in 1 test case)"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
