#!/usr/bin/env python3
"""Tests that need EAL have failed where its start fails, and are skipped only for what the machine lacks.

Usage: start_test.py PROGRAM
"""
import os
import subprocess
import sys
import unittest

PROGRAM = sys.argv[1]
SECONDS = 50
SKIPPED = 77


def run(how):
    """@return its status and its last line"""
    done = subprocess.run([PROGRAM], env={**os.environ, "UROCE_TEST_EAL": how}, capture_output=True,
                          text=True, timeout=SECONDS, check=False)
    return done.returncode, done.stdout.strip().splitlines()[-1]


class Start(unittest.TestCase):
    def test_with_an_eal_that_starts_the_cases_run(self):
        self.assertEqual(run("starts"), (0, "All tests passed (1 assertion in 1 test case)"))

    def test_an_eal_that_dies_is_a_failure(self):
        self.assertEqual(run("dies"), (1, "FAILED: EAL dies or hangs at its start"))

    def test_an_eal_that_is_started_wrongly_is_a_failure(self):
        for how in ("is told nonsense", "gets a wrong port", "starts a second time"):
            with self.subTest(how=how):
                status, said = run(how)
                self.assertEqual((status, said[:8]), (1, "FAILED: "), said)

    def test_what_the_machine_lacks_is_a_skip(self):
        for how in ("lacks a right", "lacks hugepages", "lacks memory", "is not in this build",
                    "makes no folder", "has another CPU"):
            with self.subTest(how=how):
                status, said = run(how)
                self.assertEqual((status, said[:9]), (SKIPPED, "skipped: "), said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
