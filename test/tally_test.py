#!/usr/bin/env python3
"""config/tally.py counts what test programs say of themselves."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TALLY = pathlib.Path(__file__).parents[1] / "config/tally.py"
SKIPPED = "skip    0.0 s  ib_send_lat -n 5  install perftest\nskip    0.0 s  ib_send_bw  install perftest\n"


def entry(output, result="OK", suite="abi"):
    return {"name": f"uroce:{suite} / stock programs", "result": result, "stdout": output}


def tally(*entries):
    """@return its status and what it prints"""
    with tempfile.TemporaryDirectory() as folder:
        steps, log = pathlib.Path(folder, "steps"), pathlib.Path(folder, "log")
        steps.write_text("", encoding="utf-8")
        log.write_text("".join(json.dumps(each) + "\n" for each in entries), encoding="utf-8")
        done = subprocess.run([sys.executable, TALLY, steps, log], capture_output=True, text=True, timeout=20,
                              check=False)
        return done.returncode, done.stdout.splitlines()


class Tally(unittest.TestCase):
    def test_every_case_and_every_skip_of_a_program_counts(self):
        status, lines = tally(entry("pass    1.0 s  rping\n" + SKIPPED + "5 passed, 0 failed, 2 skipped\n"))
        self.assertEqual((status, lines[-1]), (0, "5 passed, 0 failed, 2 skipped"))
        self.assertIn("skipped: abi / stock programs: install perftest (2)", lines)

    def test_a_case_of_catch_that_was_skipped_has_not_passed(self):
        output = ("skip  a page is large  run: sudo config/hugepages\n" + "=" * 79 +
                  "\nAll tests passed (9 assertions in 3 test cases)\n\n2 passed, 0 failed, 1 skipped\n")
        status, lines = tally(entry(output, suite="unit"))
        self.assertEqual((status, lines[-1]), (0, "2 passed, 0 failed, 1 skipped"))
        self.assertIn("skipped: unit / stock programs: run: sudo config/hugepages", lines)

    def test_a_program_that_is_skipped_as_a_whole_counts_its_skips(self):
        status, lines = tally(entry("skipped: needs root\n", "SKIP"),
                              entry("All tests passed (9 assertions in 3 test cases)"),
                              entry(SKIPPED + "0 passed, 0 failed, 2 skipped\n", "SKIP"))
        self.assertEqual((status, lines[-1]), (0, "3 passed, 0 failed, 3 skipped"))

    def test_a_failed_program_counts_its_failures(self):
        status, lines = tally(entry("3 passed, 2 failed, 0 skipped\n", "FAIL"))
        self.assertEqual((status, lines[-1]), (1, "3 passed, 2 failed, 0 skipped"))

    def test_a_few_of_a_suite_may_be_tried_twice(self):
        again = "again  rping -s  -- client: no route\nagain ucmatose  timeout\n"
        status, lines = tally(entry(again + "2 passed, 0 failed, 0 skipped\n"),
                              entry("again  x  y\n1 passed, 0 failed\n", suite="interop"))
        self.assertEqual((status, lines[-1]), (0, "3 passed, 0 failed, 0 skipped"))
        self.assertTrue(lines[-2].startswith("3 tried twice: abi: rping -s  -- client: no route; "), lines)

    def test_more_may_not(self):
        one = entry("again  rping -s\n1 passed, 0 failed, 0 skipped\n")
        status, lines = tally(*[one] * 6)
        self.assertEqual((status, lines[-1]), (1, "6 passed, 1 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
