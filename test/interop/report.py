"""Test cases that share one lab: counted, timed and told one by one."""
import argparse
import contextlib
import pathlib
import re
import subprocess
import sys
import time
import traceback

from agent import GuestError
from lab import LabError
from packages import Unavailable

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import wrong_data

SKIPPED = 77
SHORT = 300  # characters of a fault's beginning, and as many of its end, where all are listed
HOST_WAS_BUSY = re.compile(r"\] (clocksource|hrtimer|sched): ")  # the emulated machine stood still
LINK_IS_UP = re.compile(r"rxe0: (set active|added )")  # comes a moment after the link was set up
EXPECTED_FAULTS = (AssertionError, GuestError, LabError, OSError, subprocess.SubprocessError)


class Report:
    """Runs cases and remembers how they ended."""

    def __init__(self, pattern="", give_up_after=4):
        self.pattern = pattern
        self.give_up_after = give_up_after
        self.passed = 0
        self.failed = []
        self.in_a_row = 0
        self.diagnosis = None  # a callable: what to tell beside the first failure in a row

    def wants(self, name):
        return self.pattern in name and self.in_a_row < self.give_up_after

    def case(self, name, test, *arguments):
        """Calls test(*arguments) unless the pattern excludes it. @return false if it failed."""
        if not self.wants(name):
            return True
        started = time.monotonic()
        fault = ""
        try:
            note = test(*arguments)
        except EXPECTED_FAULTS as failure:
            fault = str(failure) or type(failure).__name__
        except Exception:  # a fault of the test itself; the others still run
            fault = traceback.format_exc()
        took = f"{time.monotonic() - started:.1f} s"
        if fault:
            self.failed.append((name, fault))
            self.in_a_row += 1
            if self.diagnosis and self.in_a_row == 1:
                fault += "\n" + self.diagnosis()
            print(f"FAIL {name} ({took})\n     " + fault.replace("\n", "\n     "), flush=True)
            if self.in_a_row == self.give_up_after:
                print(f"{self.give_up_after} failures in a row: the rest is not tried", flush=True)
        else:
            self.passed += 1
            self.in_a_row = 0
            print(f"ok   {name} ({took}{', ' + note if note else ''})", flush=True)
        return not fault

    def exit_code(self):
        print(f"{self.passed} passed, {len(self.failed)} failed")
        for name, fault in self.failed:
            print(f"  failed: {name}: {both_ends(' '.join(fault.split()))}")
        if not self.passed and not self.failed:
            print("no case matches")
        return 0 if self.passed and not self.failed else 1


def both_ends(text):
    """How it begins and how it ends: a program that fails says why at the end."""
    return text if len(text) <= 2 * SHORT else f"{text[:SHORT]} ... {text[-SHORT:]}"


def tail(text, limit=1500):
    """The end of a program's output."""
    return text if len(text) <= limit else "...\n" + text[-limit:]


class Crash(AssertionError):
    """A program was ended by a signal that nobody sent."""


class Wrong(AssertionError):
    """What was received is not what was sent."""


def fault_told(what):
    """The fault that a program's words stand for."""
    return (Wrong if wrong_data.is_told(what) else AssertionError)(what)


def require_exit_code(program, wanted, what):
    """@param program  one that has ended"""
    if program.returncode != wanted:
        said = f"{what} is {program.returncode}, must be {wanted}"
        raise Crash(said) if program.returncode < 0 else fault_told(said)


def twice(what, run, may_again=lambda: True):
    """Stock programs have bounds of their own that a busy machine may pass: once is no failure, but told. A
    crash and wrong data always are one.

    @param may_again  called in between; false: the failure stands
    @return what run() returns, the first time or the second
    """
    try:
        return run()
    except (Crash, Wrong):
        raise
    except (AssertionError, GuestError) as fault:
        print(f"again {what}: {fault}", flush=True)
        if not may_again():
            raise
    return run()


def counters_in(text):
    """Lines of a program's output that are a name and a number."""
    pairs = (line.split() for line in text.splitlines())
    return {words[0]: int(words[1]) for words in pairs if len(words) == 2 and words[1].isdigit()}


def require_equal(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what} is {found}, must be {wanted}")


def require(condition, what):
    if not condition:
        raise fault_told(what)


def require_right_data(said):
    """Of what a program said that perhaps ended well all the same."""
    if wrong_data.is_told(said):
        raise Wrong(said)


def require_same(found, sent, what):
    """Of data, or of their digests."""
    if found != sent:
        raise Wrong(f"{what} is {found}, {wrong_data.NOT_WHAT_WAS_SENT}: {sent}")


@contextlib.contextmanager
def clean_kernel_log(guest):
    """Fails if the guest's kernel complains during the block, or Soft-RoCE says anything."""
    before = len(guest.kernel_log())
    yield
    new = guest.kernel_log()[before:]
    graver = [text for level, text in new if level <= 4 and not HOST_WAS_BUSY.search(text)]
    bad = graver + [text for _, text in new if "rxe" in text and not LINK_IS_UP.search(text)]
    require(not bad, "the guest's kernel log has new lines:\n" + "\n".join(bad))


def main(body, description, add_arguments=lambda parser: None):
    """Runs body(arguments, report) as a test program. Exit code 77: not possible on this machine."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("-k", dest="pattern", default="", help="only cases whose name contains this")
    add_arguments(parser)
    arguments = parser.parse_args()
    report = Report(arguments.pattern)
    try:
        body(arguments, report)
    except Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    sys.exit(report.exit_code())
