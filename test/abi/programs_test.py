#!/usr/bin/env python3
"""Stock programs of Debian, unmodified, two processes each, on the drop-in libibverbs over one link.

Usage: programs_test.py UROCE_PROGRAM [--long] [--as-nobody] [--veth] [PATTERN...]

Runs the cases whose command lines contain a pattern, all without one; --long adds those of all message sizes.
The link is shm; with --veth, af_packet between two network namespaces, which needs root. Prints what became
of each. Programs that are not installed are skipped, with the package to install.
"""
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import cases
import links
import tcp_ports
import wrong_data

SECONDS = 60  # for one pair
LONG_SECONDS = 240
CORES = sorted(os.sched_getaffinity(0))
GRACE = 5  # seconds that one end has when the other has failed
IBV = ("ibv_devices", "ibv_devinfo -v")
PINGPONG = (
    "rc -g 1", "rc -g 0 -s 1", "rc -g 1 -c", "rc -g 1 -e", "rc -g 1 -N", "rc -g 1 -s 65536 -n 100 -c",
    "rc -g 1 -s 4194304 -n 4 -c -e", "rc -g 1 -N -c -e -m 256 -s 100000 -n 50", "uc -g 1", "uc -g 1 -c -e",
    "uc -g 1 -s 65536 -n 100", "ud -g 1", "ud -g 1 -s 1024 -e", "ud -g 0 -c", "srq -g 1", "srq -g 1 -e -q 4",
    "xsrq -g 1")
RC = tuple(f"ib_{what}_{how} -n 500" for what in ("send", "write", "read", "atomic") for how in ("lat", "bw"))
VARIANTS = (
    "ib_send_lat -e -n 500", "ib_send_bw -e -n 500", "ib_read_bw -e -n 500",
    "ib_send_bw -b -n 500", "ib_write_bw -b -n 500", "ib_read_bw -b -n 500", "ib_atomic_bw -b -n 500",
    "ib_send_bw -q 4 -n 500", "ib_write_bw -q 4 -n 500", "ib_read_bw -q 4 -n 500", "ib_atomic_bw -q 4 -n 500",
    "ib_write_bw -b -q 4 -n 500", "ib_send_bw --use-srq -n 500", "ib_send_lat --use-srq -n 500",
    "ib_send_bw --use-srq -q 4 -n 500", "ib_send_lat -I 64 -s 64 -n 500", "ib_write_bw -I 64 -s 64 -n 500",
    "ib_write_lat -s 65536 -n 100", "ib_send_lat -s 1048576 -n 20", "ib_atomic_lat -A CMP_AND_SWAP -n 500",
    "ib_atomic_bw -A CMP_AND_SWAP -n 500", "ib_write_bw -m 256 -n 500", "ib_send_bw -x 0 -n 500",
    "ib_send_bw -l 8 -n 512", "ib_send_bw --use_old_post_send -n 500",
    "ib_send_lat --use_old_post_send -n 500")
# At both ends on the second of two loops, which that completion vector is.
SECOND_LOOP = " -e -X 1 "
LOOPS = tuple(f"ib_{what}{SECOND_LOOP}-n 500" for what in (
    "send_bw", "read_bw -q 4", "send_bw --use-srq -q 2", "send_lat --use-srq", "send_bw -c XRC",
    "send_lat -c UD"))
# 200 messages of UC are 3200 frames: all of them fit into the ring of NEEDS_EVERY_FRAME.
OTHER_TYPES = tuple(
    f"ib_{what}_{how} -c {kind} -n {200 if kind == 'UC' else 500}"
    for kind in ("UC", "UD", "XRC") for what in ("send", "write")
    for how in ("lat", "bw") if (kind, what) != ("UD", "write")) + (
        "ib_read_bw -c XRC -n 500", "ib_atomic_bw -c XRC -n 500", "ib_send_bw -c UD -b -n 500")
# For a time instead of a number: what arrived is counted, and nothing is waited for.
TIMED = ("ib_send_bw -c UC -D 1", "ib_send_bw -c UD -D 1")
LONG = tuple(f"ib_{what}_{how} -a -n 20" for what in ("send", "write", "read") for how in ("lat", "bw"))
# Many unreliable SENDs in flight: perftest's server waits for ever for one that the link has lost. Nothing
# holds its sender back while the receiver has no core: the socket's ring must have room for so long.
NEEDS_EVERY_FRAME = re.compile(r"ib_send_bw (.* )?-c U[CD](?! -D)")
PACKAGES = {"ibv_": "ibverbs-utils", "ib_": "perftest"}


def await_listener(port, process, end):
    """Returns once somebody in its network namespace listens on the TCP port, or the process or the time is
    over."""
    wanted = f":{port:04X}"
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError):  # the process is over
            for table in ("tcp", "tcp6"):
                lines = pathlib.Path(f"/proc/{process.pid}/net/{table}").read_text(encoding="ascii")
                for fields in (line.split() for line in lines.splitlines()[1:]):
                    if fields[1].endswith(wanted) and fields[3] == "0A":
                        return
        time.sleep(0.02)


class Runner:
    def __init__(self, uroce, link):
        self.uroce = uroce
        self.link = link
        self.wrapper = []  # a program around uroce run
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("UROCE_")}

    def start(self, side, words, *more):
        prefix, options = self.link.around(side)
        command = [*prefix, *self.wrapper, self.uroce, "run", *options, *more, "--", *words]
        return self.link.start(command, env=self.environment, cwd="/")

    @staticmethod
    def finish(process, end, other=None):
        """@return whether it ended well; what it said, and last what is wrong if its data are, if it crashed
        or hangs"""
        try:
            output, _ = process.communicate(timeout=max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            has_cause = other is not None and other.poll() not in (None, 0)
            return False, links.end(process) + ("\nwaits for the end that failed" if has_cause else "\nhangs")
        code = process.returncode
        number = -code if code < 0 else code - 128  # as env and others pass it on
        if number in signal.valid_signals() and number != signal.SIGKILL:  # which is sent from here
            output += f"\nended by signal {number}"
        is_wrong = wrong_data.is_told(output)
        return code == 0 and not is_wrong, output + is_wrong * f"\n{wrong_data.NOT_WHAT_WAS_SENT}"

    def finish_both(self, client, server, end, lines):
        """@return what went wrong, with so many last lines of what each said, or None"""
        first = self.finish(client, end, server)
        until = end if first[0] else min(end, time.monotonic() + GRACE)
        results = (("client", first), ("server", self.finish(server, until, client)))
        if all(is_good for _, (is_good, _) in results):
            return None
        return "\n".join(f"-- {name}:\n" + "\n".join(output.splitlines()[-lines:])
                         for name, (_, output) in results)

    def run(self, command, seconds):
        """@return what went wrong, or None"""
        end = time.monotonic() + seconds
        words = shlex.split(command)
        if command in IBV:
            is_good, output = self.finish(self.start(0, words), end)
            return None if is_good and "uroce0" in output else output
        self.link.has_large_rings = NEEDS_EVERY_FRAME.match(command) is not None
        more = ("--lcores", ",".join(map(str, CORES[:2]))) if SECOND_LOOP in command else ()
        with tcp_ports.reserved() as port:
            words += ["-p", port]
            server = self.start(0, words, *more)
            await_listener(port, server, end)
        return self.finish_both(self.start(1, [*words, self.link.server], *more), server, end, 8)


def chosen(arguments):
    pairs = tuple("ibv_{}_pingpong {}".format(*case.split(" ", 1)) for case in PINGPONG)
    every = IBV + pairs + RC + VARIANTS + LOOPS + OTHER_TYPES + TIMED
    for command in every + (LONG if arguments.long else ()):
        if not arguments.patterns or any(pattern in command for pattern in arguments.patterns):
            yield command


def main():
    arguments = cases.arguments_of(__doc__, "--long", "--as-nobody", "--veth")
    with links.Veth() if arguments.veth else links.Shm(arguments.as_nobody) as link:
        return cases.run_cases(cases_of(arguments, Runner(arguments.uroce, link)))


def obstacle(command):
    """Why it cannot run here, or None."""
    program = command.split()[0]
    if shutil.which(program) is None:
        return "install " + next(PACKAGES[start] for start in PACKAGES if program.startswith(start))
    if SECOND_LOOP in command and len(CORES) < 2:
        return "one core"
    return None


def cases_of(arguments, runner):
    for command in chosen(arguments):
        limit = LONG_SECONDS if command in LONG else SECONDS
        yield command, obstacle(command), lambda now=command, most=limit: runner.run(now, most)


if __name__ == "__main__":
    sys.exit(main())
