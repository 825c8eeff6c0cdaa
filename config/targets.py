#!/usr/bin/env python3
"""Prints what ninja is to build for the tests of some suites.

Usage: targets.py BUILD SUITE...
"""
import json
import pathlib
import subprocess
import sys


def main():
    build, suites = pathlib.Path(sys.argv[1]).resolve(), set(sys.argv[2:])
    words = ["meson", "introspect", "--tests", str(build)]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    programs = set()
    for test in json.loads(told.stdout):
        if suites & {suite.split(":")[-1] for suite in test["suite"]}:
            programs |= {pathlib.Path(word) for word in test["cmd"] if word.startswith(str(build))}
    for program in sorted(programs):
        print(program.relative_to(build))


if __name__ == "__main__":
    main()
