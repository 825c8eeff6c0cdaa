#!/usr/bin/env python3
"""Counts what a 64 B message with its ACK touches of its QP, at its sender and at its receiver.

A WRITE and a SEND alone, and "among": a WRITE whose ACK shares a packet with those of other QPs.

Usage: touched.py [PROGRAM [LIMIT]]

PROGRAM  bench/loop/touched of a build; default: that of build/. It runs under valgrind's lackey, which
         tells every load and store.
LIMIT    bytes at an end, by default the goal's 256

Counted are the bytes, and the cache lines of 64 B that they lie in, of the QP itself and of what else the
heap gave when it was made and connected. Its rings' slots are shown beside, not counted; what QPs share is
neither: their loop's tables, the path to the peer, completion queues. What is only fetched ahead is not told.

Status: 0 none touches more than the limit, 1 one does, or nothing could be counted, 77 skipped for lack of
valgrind.
"""
import bisect
import os
import pathlib
import shutil
import sys
import tempfile

import compare
from compare import SKIPPED, Misuse

ROOT = pathlib.Path(__file__).resolve().parents[1]
GOAL = 256  # bytes of a QP that a message touches at an end
RINGS = "send_ring", "receive_ring"
LINE = 64
KINDS, ENDS = ("WRITE", "SEND", "among"), ("sender", "receiver")


def run(program, folder):
    """What the program prints, and the file of its trace."""
    trace = folder / "trace"
    words = ["valgrind", "--tool=lackey", "--trace-mem=yes", "--basic-counts=no", f"--log-file={trace}",
             str(program)]
    return compare.run(words), trace


def ranges(text):
    """The mark's address, and [(begin, end, name, end of the connection)] in order."""
    mark, found = None, []
    for words in (line.split() for line in text.splitlines()):
        if words[0] == "mark":
            mark = int(words[1], 16)
        elif words[0] == "range":
            begin = int(words[3], 16)
            found.append((begin, begin + int(words[4]), words[1], words[2]))
    if mark is None or {entry[3] for entry in found} != set(ENDS):
        raise Misuse("the program did not say what belongs to its QPs")
    return mark, sorted(found)


def between_marks(trace, mark):
    """For each pair of stores to the mark [(address, bytes)] of the loads and stores between them."""
    windows, is_inside = [], False
    stores = f" S {mark:08x},", f" S {mark:x},"
    with open(trace, encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith(stores):
                is_inside = not is_inside
                if is_inside:
                    windows.append([])
            elif is_inside and line[:3] in (" L ", " S ", " M "):
                address, size = line[3:].split(",")
                windows[-1].append((int(address, 16), int(size)))
    if is_inside or len(windows) != len(KINDS):
        raise Misuse(f"{len(windows)} messages lie between marks, not {len(KINDS)}")
    return windows


def touched(accesses, owned):
    """{end: {name: addresses of bytes}}."""
    begins = [entry[0] for entry in owned]
    found = {end: {} for end in ENDS}
    for address, size in accesses:
        for byte in range(address, address + size):
            place = bisect.bisect(begins, byte) - 1
            if place >= 0 and byte < owned[place][1]:
                found[owned[place][3]].setdefault(owned[place][2], set()).add(byte)
    return found


def report(windows, owned, limit):
    """Prints the table. @return how many ends are within the limit, and how many are not"""
    print(f"{'message':8} {'end':9} {'bytes':>6} {'lines':>6}" + "".join(f"{name:>14}" for name in RINGS))
    within = beyond = 0
    for kind, accesses in zip(KINDS, windows):
        for end, parts in touched(accesses, owned).items():
            total = set().union(*(found for name, found in parts.items() if name not in RINGS))
            if not total:
                raise Misuse(f"a {kind} touches nothing at its {end}")
            lines = {byte // LINE for byte in total}
            rings = "".join(f"{len(parts.get(name, ())):14}" for name in RINGS)
            is_within = len(total) <= limit
            within, beyond = within + is_within, beyond + (not is_within)
            verdict = "" if is_within else "  too many"
            print(f"{kind:8} {end:9} {len(total):6} {len(lines):6}{rings}{verdict}")
    return within, beyond


def main():
    program = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/bench/loop/touched"
    limit = int(sys.argv[2]) if len(sys.argv) > 2 else GOAL
    if shutil.which("valgrind") is None:
        print("skip touched  valgrind is missing: apt-get install valgrind")
        return SKIPPED
    try:
        if not os.access(program, os.X_OK):
            raise Misuse(f"{program} is not there; build it: ninja bench/loop/touched")
        with tempfile.TemporaryDirectory() as folder:
            text, trace = run(program, pathlib.Path(folder))
            mark, owned = ranges(text)
            within, beyond = report(between_marks(trace, mark), owned, limit)
    except Misuse as misuse:
        print(misuse, file=sys.stderr)
        return 1
    print(f"limit: {limit} bytes\n{within} passed, {beyond} failed")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
