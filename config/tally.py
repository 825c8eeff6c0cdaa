#!/usr/bin/env python3
"""Adds up test results: prints what failed and what was skipped, and last "N passed, N failed, N skipped".

Usage: tally.py [--lines N] STEPS [LOG...] [--repeat NAME=LOG]...

STEPS  lines "pass|fail|skip <tab> name <tab> reason", such as builds; one test each. If there are
       not N, it fails.
LOG    meson's JSON test log. A program that says how many cases it ran (Catch2, unittest, or by
       "N passed, N failed[, N skipped]") counts as so many tests, any other as one. It says why it skipped
       one by "skip NAME  REASON", and by "again NAME" that one had failed once, each a line.
NAME   the same tests in another build, such as one with sanitizers: counted as one test if all pass;
       each failure counts.

A log or STEPS that is cut off or cannot be read is a failure too.
Fails if a test failed, none passed, or more than MOST_TWICE of a suite were tried twice.
"""
import argparse
import collections
import json
import pathlib
import re
import sys

CATCH_PASSED = re.compile(r"^All tests passed \(\d+ assertions? in (\d+) test cases?\)", re.M)
CATCH_MIXED = re.compile(r"^test cases: +(\d+) \|(.*)$", re.M)
CATCH_NOTHING = re.compile(r"^No tests ran", re.M)
PLAIN = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)
UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n+(?:OK|FAILED)(?: \((.*)\))?", re.M)
AGAIN = re.compile(r"^again +(.*)$", re.M)
SKIP = re.compile(r"^skip .*  (\S.*)$", re.M)
UNITTEST_SKIP = re.compile(r"\.\.\. skipped ['\"](.*)['\"]$", re.M)
MOST_TWICE = 5
TAIL_LINES = 25


def numbers(text):
    """{"passed": 19, "failed": 1} of " 19 passed | 1 failed" and of "failures=1, skipped=2"."""
    pairs = re.findall(r"(\d+) (passed|failed)", text)
    pairs += [(count, name) for name, count in re.findall(r"(\w+)=(\d+)", text)]
    return {name: int(count) for count, name in pairs}


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures, self.skips = [], []
        self.again = collections.defaultdict(list)  # of each suite

    def counts(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"

    def add(self, passed=0, failed=0, skipped=0):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped

    def fail(self, name, detail, count=1):
        self.add(failed=count)
        self.failures.append((name, detail))

    def skip(self, name, reason, count=1):
        self.add(skipped=count)
        self.skips.append((name, reason))


def cases(output):
    """(passed, failed, skipped) as the program itself counted, or None if it did not."""
    whole = CATCH_PASSED.findall(output)
    mixed = CATCH_MIXED.findall(output)
    unit = UNITTEST.findall(output)
    plain = PLAIN.findall(output)
    if plain:
        return tuple(int(count or 0) for count in plain[-1])
    if whole:
        return int(whole[-1]), 0, 0
    if mixed:
        counted = numbers(mixed[-1][1])
        return counted.get("passed", 0), counted.get("failed", 0), 0
    if unit:
        counted = numbers(unit[-1][1])
        failed = counted.get("failures", 0) + counted.get("errors", 0)
        skipped = counted.get("skipped", 0)
        return int(unit[-1][0]) - failed - skipped, failed, skipped
    return None


def last_line(output):
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


def skip_reasons(output):
    """Each reason once, with how many were skipped for it."""
    found = collections.Counter(UNITTEST_SKIP.findall(output) + SKIP.findall(output))
    return "; ".join(reason + (f" ({count})" if count > 1 else "") for reason, count in found.items())


def add_program(tally, entry):
    """Adds one line of a meson log."""
    name, result = entry["name"].split(":", 1)[-1], entry["result"]  # without the project
    output = (entry.get("stdout") or "") + "\n" + (entry.get("stderr") or "")
    tail = "\n".join(output.strip().splitlines()[-TAIL_LINES:])
    passed, failed, skipped = cases(output) or (0, 0, 0)
    tally.again[name.split(" / ")[0]] += AGAIN.findall(output)
    reasons = skip_reasons(output) or last_line(output)
    if result == "SKIP":
        tally.skip(name, reasons, max(skipped, 1))
        return
    if skipped:
        tally.skip(name, reasons, skipped)
    if result != "OK":
        tally.add(passed=passed)
        tally.fail(name, f"{result}\n{tail}", max(failed, 1))
    elif CATCH_NOTHING.search(output):
        tally.fail(name, "the program ran no test")
    elif passed + failed + skipped == 0:
        tally.add(passed=1)
    else:
        tally.add(passed=passed)
        if failed:
            tally.fail(name, tail, failed)


def add_log(tally, log):
    try:
        with open(log, encoding="utf-8") as lines:
            for line in filter(str.strip, lines):
                add_program(tally, json.loads(line))
    except (OSError, ValueError) as error:
        tally.fail(log, f"cut off or unreadable: {error}")


def add_repeat(tally, name, log):
    """A second run of tests that are counted already."""
    second = Tally()
    add_log(second, log)
    for test, detail in second.failures:
        tally.failures.append((f"{name}: {test}", detail))
    tally.add(failed=second.failed)
    for suite, again in second.again.items():
        tally.again[f"{name}: {suite}"] += again
    if second.failed == 0 and second.passed > 0:
        tally.add(passed=1)
    elif second.passed == 0 and second.failed == 0:
        tally.fail(name, "no test ran")
    print(f"{name}: {second.counts()} (counted as one)")


def add_steps(tally, path, wanted):
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        tally.fail(path, f"unreadable: {error}")
        return
    if wanted is not None and text.count("\n") != wanted:
        tally.fail(path, f"{text.count(chr(10))} lines instead of {wanted}: is the disk full?")
    for line in text.splitlines():
        outcome, name, reason = (line.split("\t") + ["", ""])[:3]
        if outcome == "pass":
            tally.add(passed=1)
        elif outcome == "skip":
            tally.skip(name, reason)
        else:
            tally.fail(name, reason)


def check_repetitions(tally):
    """A busy machine explains a few."""
    for suite, again in tally.again.items():
        if len(again) > MOST_TWICE:
            tally.fail(suite, f"{len(again)} were tried twice, more than {MOST_TWICE}")


def report(tally):
    check_repetitions(tally)
    for name, detail in tally.failures:
        print(f"failed: {name}: {detail}")
    for name, reason in tally.skips:
        print(f"skipped: {name}: {reason}")
    if again := [f"{suite}: {what}" for suite, those in tally.again.items() for what in those]:
        print(f"{len(again)} tried twice: " + "; ".join(again))
    print(tally.counts(), flush=True)
    return 1 if tally.failed or not tally.passed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps")
    parser.add_argument("logs", nargs="*")
    parser.add_argument("--repeat", action="append", default=[])
    parser.add_argument("--lines", type=int)
    options = parser.parse_args()
    tally = Tally()
    add_steps(tally, options.steps, options.lines)
    for log in options.logs:
        add_log(tally, log)
    for repeat in options.repeat:
        add_repeat(tally, *repeat.split("=", 1))
    return report(tally)


if __name__ == "__main__":
    sys.exit(main())
