#!/usr/bin/env python3
"""A run of mixed_ops under rules that hit no frame has shown nothing, and fails.

Usage: faults_test.py PROGRAM
"""
import subprocess
import sys
import unittest

PROGRAM = sys.argv[1]
SECONDS = 90  # more than the program gives itself


def run(*words):
    """@return its status and what it says of errors"""
    done = subprocess.run([PROGRAM, "--ops", "20", *words], capture_output=True, text=True, timeout=SECONDS,
                          check=False)
    return done.returncode, done.stderr


class Faults(unittest.TestCase):
    def test_none_is_a_failure(self):
        status, said = run("--fault", "drop nth=1000000000")
        self.assertEqual(status, 1)
        self.assertIn("no fault was injected", said)

    def test_some_are_not(self):
        self.assertEqual(run("--fault", "dup=50%"), (0, ""))

    def test_without_rules_there_need_be_none(self):
        self.assertEqual(run(), (0, ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
