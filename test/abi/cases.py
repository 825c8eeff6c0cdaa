"""Cases of stock programs: chosen by the command line, run one by one, told and counted."""
import argparse
import os
import pathlib
import re
import sys
import time

import links

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import wrong_data

SKIPPED = 77
# What Runner.finish() says of a process, beside wrong data. None is the doing of a busy machine...
CRASH = re.compile(r"^ended by signal \d+$", re.M)
HANG = re.compile(r"^hangs$", re.M)
# ... but these wait for ever for a datagram that was lost.
LOSES = re.compile(r"-c U[CD]\b|ibv_u[cd]_|udaddy|mckey|-e dgram")


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


def may_again(name, why):
    """Whether a busy machine may be what was wrong: these programs have bounds of their own. Wrong data, a
    crash and a hang never are its doing."""
    is_bad = wrong_data.is_told(why) or CRASH.search(why) or (HANG.search(why) and not LOSES.search(name))
    return not is_bad


def tried_twice(name, run):
    """To fail once is no failure where may_again(), but told. @return what went wrong at last, or None"""
    why = run()
    if why is None or not may_again(name, why):
        return why
    print(f"again  {name}  {why}", flush=True)
    return run()


def run_cases(cases):
    """Runs each, and prints what became of it. @return the exit code

    A case is its name, why it cannot run here or None, and what runs it, which returns what went wrong or
    None.
    """
    count = dict.fromkeys(("pass", "fail", "skip"), 0)
    for name, obstacle, run in cases:
        began = time.monotonic()
        why = obstacle if obstacle is not None else tried_twice(name, run)
        result = "skip" if obstacle is not None else "pass" if why is None else "fail"
        count[result] += 1
        said = "" if why is None else "  " + why
        print(f"{result}  {time.monotonic() - began:5.1f} s  {name}{said}", flush=True)
    print(counts(count["pass"], count["fail"], count["skip"]))
    if count["fail"] != 0:
        return 1
    return 0 if count["pass"] != 0 else SKIPPED


def counts(passed, failed, skipped):
    """The line by which config/check counts them."""
    return f"{passed} passed, {failed} failed, {skipped} skipped"
