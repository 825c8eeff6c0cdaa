#!/usr/bin/env python3
"""What a test of other people's programs tries a second time, and what it does not."""
import contextlib
import importlib.util
import io
import pathlib
import sys
import unittest

TEST = pathlib.Path(__file__).parent
sys.path[1:1] = [str(TEST / "abi"), str(TEST / "interop")]
import cases
import programs_test
import report

# As the programs that compare what they receive say it.
WRONG = ("data mismatch!",  # rping -V
         "invalid data in page 3",  # ibv_rc_pingpong -c
         "uroce: invalid data received",  # uroce pingpong -c
         "uroce: data mismatch: what came back is not what was sent",  # uroce ping
         "data verification failed byte 17",  # rstream -T v
         "Error at iteration=3 size=64 byte=0",  # fi_pingpong -c
         "wrong messages: 12\n",  # that of stacks_test.py
         "what was received is not what was sent")  # files
RIGHT = ("wrong messages: 0\n", "rdma_connect: invalid argument", "client DISCONNECT EVENT...")


class Attempts:
    """Fails as often as there are faults, in the way that either kind of test does."""

    def __init__(self, *faults):
        self.faults = list(faults)
        self.count = 0

    def told(self):
        self.count += 1
        return self.faults.pop(0) if self.faults else None

    def raised(self):
        if (fault := self.told()) is not None:
            raise fault


class Program:
    """One that has said something, and has ended."""
    pid = 0

    def __init__(self, said, code):
        self.said, self.returncode = said, code

    def communicate(self, timeout):
        return self.said, None


def quietly(run, *arguments):
    """@return what the call returns, and what it prints"""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        return run(*arguments), out.getvalue()


class OfAbi(unittest.TestCase):
    def test_what_a_busy_machine_explains_is_tried_again_and_told(self):
        for why in (*RIGHT, "-- client:\nwaits for the end that failed"):
            with self.subTest(why=why):
                attempts = Attempts(why)
                result, out = quietly(cases.tried_twice, "rping", attempts.told)
                self.assertEqual((result, attempts.count), (None, 2))
                self.assertTrue(out.startswith("again  rping  "), out)

    def test_what_it_does_not_explain_has_failed(self):
        for why in (*WRONG, "-- client:\nended by signal 11\n-- server:\n", "-- server:\nhangs"):
            with self.subTest(why=why):
                attempts = Attempts(why)
                self.assertEqual(quietly(cases.tried_twice, "rping", attempts.told), (why, ""))
                self.assertEqual(attempts.count, 1)

    def test_wrong_data_have_failed_however_much_a_program_says_behind(self):
        for said in WRONG:
            for code in (0, 1):
                with self.subTest(said=said, code=code):
                    client, server = Program(said + "\nmore" * 50, code), Program("", 0)
                    why = programs_test.Runner(None, None).finish_both(client, server, 0, 8)
                    self.assertIsNotNone(why)
                    self.assertFalse(cases.may_again("rping", why), why)
        for said in RIGHT:
            self.assertIsNone(
                programs_test.Runner(None, None).finish_both(Program(said, 0), Program("", 0), 0, 8))


class OfInterop(unittest.TestCase):
    def test_what_a_busy_machine_explains_is_tried_again_and_told(self):
        for fault in (AssertionError("in the guest: no route"), report.GuestError("no answer")):
            attempts = Attempts(fault)
            result, out = quietly(report.twice, "rping", attempts.raised)
            self.assertEqual((result, attempts.count), (None, 2))
            self.assertTrue(out.startswith("again rping: "), out)

    def test_wrong_data_and_crashes_have_failed(self):
        for why in WRONG:
            with self.subTest(why=why):
                attempts = Attempts()

                def run():
                    attempts.told()
                    report.require(False, f"in the guest: {why}\n(exit code 1)")
                with self.assertRaises(report.Wrong):
                    quietly(report.twice, "rping", run)
                self.assertEqual(attempts.count, 1)
        for fault in (report.Crash("signal"), report.Wrong("what arrived is x, must be y")):
            attempts = Attempts(fault)
            with self.assertRaises(type(fault)):
                quietly(report.twice, "rping", attempts.raised)
            self.assertEqual(attempts.count, 1)

    def test_wrong_data_may_be_told_by_a_program_that_ends_well(self):
        for said in WRONG:
            with self.assertRaises(report.Wrong):
                report.require_right_data(f"2000 bytes in 0.1 seconds\n{said}")
        for said in RIGHT:
            report.require_right_data(said)

    def test_an_exit_code_tells_of_wrong_data_and_of_crashes(self):
        for code, said, fault in ((1, "data mismatch!", report.Wrong), (1, "no route", AssertionError),
                                  (-11, "no route", report.Crash)):
            with self.assertRaises(AssertionError) as raised:
                report.require_exit_code(Program(said, code), 0, f"rping's exit code\n{said}\n")
            self.assertIs(type(raised.exception), fault)


if __name__ == "__main__":
    unittest.main(verbosity=2)
