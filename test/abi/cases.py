"""Cases of stock programs: chosen by the command line, run one by one, told and counted."""
import argparse
import os
import pathlib
import sys
import time

import links

SKIPPED = 77


def arguments_of(description, *flags):
    """What the command line says: UROCE_PROGRAM, any of the flags, and patterns. Ends the program as skipped
    where they ask for what only root may do."""
    parser = argparse.ArgumentParser(description=description.split("\n", 1)[0])
    parser.add_argument("uroce", type=lambda text: pathlib.Path(text).resolve())
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    parser.add_argument("patterns", nargs="*")
    arguments = parser.parse_intermixed_args()
    if (arguments.veth or getattr(arguments, "as_nobody", False)) and os.geteuid() != 0:
        print("skipped: needs root")
        sys.exit(SKIPPED)
    links.leave_on_sigterm()
    return arguments


def tried_twice(what, run):
    """These programs have bounds of their own that a busy machine may pass: once is no failure, but told.

    @return what went wrong the second time, or None
    """
    why = run()
    if why is None:
        return None
    print(f"again  {what}  {why}", flush=True)
    return run()


def run_cases(cases):
    """Runs each, and prints what became of it. @return the exit code

    A case is its name, why it cannot run here or None, and what runs it, which returns what went wrong or
    None.
    """
    count = dict.fromkeys(("pass", "skip", "fail"), 0)
    for name, obstacle, run in cases:
        began = time.monotonic()
        why = obstacle if obstacle is not None else tried_twice(name, run)
        result = "skip" if obstacle is not None else "pass" if why is None else "fail"
        count[result] += 1
        said = "" if why is None else "  " + why
        print(f"{result}  {time.monotonic() - began:5.1f} s  {name}{said}", flush=True)
    print(", ".join(f"{number} {result}" for result, number in count.items()))
    if count["fail"] != 0:
        return 1
    return 0 if count["pass"] != 0 else SKIPPED
