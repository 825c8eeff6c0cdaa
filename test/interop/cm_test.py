#!/usr/bin/env python3
"""RDMA-CM between uroce and the kernel: rping, ucmatose, cmtime, udaddy and mckey, both ways round."""
import contextlib
import functools
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import handshake
import wire
from lab import ENGINE_IPS, GUEST_IPS, PREFIXES, ROCE, lab
from report import clean_kernel_log, main, require, require_equal, tail

FAMILIES = ("IPv4", "IPv6")
ROLES = ("client", "server")  # uroce's
RPING_PORT, CMATOSE_PORT, UDADDY_PORT = 7174, 7471, 7174
ROUNDS = {64: 30, 1000: 20, 4096: 20, 65535: 5}  # round trips by size
MESSAGES = {"REQ": 0x10, "REP": 0x13, "RTU": 0x14, "DREQ": 0x15, "SIDR_REQ": 0x17, "SIDR_REP": 0x18}
FROM_CLIENT = ("REQ", "RTU", "DREQ", "SIDR_REQ")
GROUPS = {"IPv4": "239.1.2.3", "IPv6": "ff0e::1:2"}
CYCLES = 1000
NO_LISTENER = 8  # reason of a REJ
LIMIT_SECONDS = 40
DISCONNECTED = 10  # the state in which rping's server ends
PEER, UNREACHABLE = 23, 20  # uroce's exit codes


def ip_of(side, family):
    return side[FAMILIES.index(family)]


def first_lost(message, from_uroce):
    """nft rule: the first message of a kind on its way from one side."""
    return (f'iifname "{"eng0p" if from_uroce else "tap0"}" {ROCE} @th,64,8 0x64 @th,352,16 {MESSAGES[message]} '
            "limit rate 1/hour burst 1 packets counter drop")


class Meeting:
    """Programs of both sides that meet by RDMA-CM."""

    def __init__(self, used, arguments):
        self.used = used
        self.guest = used.guest
        self.uroce = arguments.uroce.resolve()
        self.cm_peer = arguments.cm_peer.resolve()
        self.evidence = arguments.evidence

    # Starting

    @contextlib.contextmanager
    def ping(self, *words):
        """`uroce ping` on the engine's port."""
        addresses = [word for ip, bits in zip(ENGINE_IPS, PREFIXES) for word in ("--ip", f"{ip}/{bits}")]
        with self._program(self.uroce, "ping", "--port", "af_packet:eng0", *addresses, "--no-huge", *words) as it:
            yield it

    @contextlib.contextmanager
    def peer(self, *words):
        """The test's peer of the other stock programs on the engine's port."""
        addresses = ",".join(f"{ip}/{bits}" for ip, bits in zip(ENGINE_IPS, PREFIXES))
        with self._program(self.cm_peer, words[0], "--port", "af_packet:eng0", "--ip", addresses, *words[1:]) as it:
            yield it

    @contextlib.contextmanager
    def _program(self, *command):
        program = self.used.popen(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            yield program
        finally:
            if program.poll() is None:
                program.kill()
            program.communicate(timeout=5)

    def stock(self, command, limit=LIMIT_SECONDS):
        return self.guest.start(command, limit)

    def stock_listener(self, command, limit=LIMIT_SECONDS):
        """Starts a program in the guest; returns when it listens."""
        job = self.stock(command, limit)
        name = shlex.split(command)[0]
        self.guest.run(f"until rdma resource show cm_id | grep -q 'LISTEN.*{name}'; do usleep 20000; done", 20)
        return job

    # Ending

    @staticmethod
    def finish(program, code=0):
        """@return what it printed, once it has ended as expected."""
        try:
            out, err = program.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            program.kill()
            out, err = program.communicate(timeout=5)
        require_equal(program.returncode, code, f"uroce's exit code\n{tail(out + err)}\n")
        return out + err

    @staticmethod
    def succeed(job):
        outcome = job.wait()
        require(outcome.ok, f"in the guest: {outcome.text()}")
        return outcome.out + outcome.err

    def nothing_left(self):
        """No QP or id of a program that has ended stays in the guest."""
        held = "rdma resource show qp link rxe0 | grep -v 'type GSI' | grep -c comm"
        self.guest.run(f"until [ $({held}) = 0 ]; do usleep 50000; done", 20)

    @contextlib.contextmanager
    def watched(self, name):
        """What goes over the bridge. @return the capture's path; it is kept if the block fails."""
        self.evidence.mkdir(parents=True, exist_ok=True)
        path = self.evidence / f"cm-{os.getpid()}-{name}.pcap"
        seen = {}
        try:
            with wire.watch(self.used, path) as seen:
                yield path
            require(not seen["engine"].get("wrong_icrc"), f"uroce sent wrong ICRCs: {seen}")
        except AssertionError as failure:
            raise AssertionError(f"{failure}\nrecorded in {path}: {seen}") from None
        path.unlink(missing_ok=True)

    def once(self, role, family="IPv4", size=64, rounds=3, validate=True):
        """One rping with one `uroce ping`. @return uroce's JSON"""
        words = f"-C {rounds} -S {size} -v" + (" -V" if validate else "")
        if role == "client":
            job = self.stock_listener(f"rping -s -a {'::' if family == 'IPv6' else '0.0.0.0'} -S {size} -v")
            with self.ping("-c", "-a", ip_of(GUEST_IPS, family), "-C", rounds, "-S", size, "-V", "--json") as ours:
                said = self.finish(ours)
            theirs = self.succeed(job)
            require_equal(theirs.count("server ping data: rdma-ping-"), rounds, "rounds in rping")
            return json.loads(said)
        with self.ping("-s") as ours:
            require("waiting" in ours.stdout.readline(), "uroce ping does not wait for a client")
            job = self.stock(f"rping -c -a {ip_of(ENGINE_IPS, family)} {words}")
            theirs = self.succeed(job)
            said = self.finish(ours)
        require_equal(theirs.count("ping data: rdma-ping-"), rounds, "rounds in rping")
        require(f"{rounds} round trips" in said, f"uroce counts otherwise: {said}")
        return {}


# Cases

def rping(meeting, role, family, size):
    with clean_kernel_log(meeting.guest):
        result = meeting.once(role, family, size, ROUNDS[size])
    return f"p50 {result['p50_us']:.0f} us" if result else ""


def rping_loses(meeting, role, message):
    """The first message of a kind is lost on its way; it is repeated."""
    from_uroce = (message in FROM_CLIENT) == (role == "client")
    meeting.used.drop([first_lost(message, from_uroce)])
    try:
        meeting.once(role, rounds=3)
        require_equal(sum(meeting.used.dropped().values()), 1, "frames dropped")
    finally:
        meeting.used.heal()
    meeting.nothing_left()


def cases():
    """(name, test, its arguments) of every case."""
    for role, family, size in itertools.product(ROLES, FAMILIES, ROUNDS):
        yield f"rping, uroce as {role}, {family}, {size} B", rping, role, family, size
    for role, message in itertools.product(ROLES, ("REQ", "REP", "RTU", "DREQ")):
        yield f"rping, uroce as {role}: the first {message} is lost", rping_loses, role, message


def run(arguments, report):
    with lab() as used:
        meeting = Meeting(used, arguments)
        for name, test, *rest in cases():
            report.case(name, test, meeting, *rest)
        print("Soft-RoCE's counters:", {name: value for name, value in used.guest.counters().items() if value})


def add_arguments(parser):
    parser.add_argument("--uroce", type=Path, required=True, help="the uroce binary")
    parser.add_argument("--cm-peer", type=Path, required=True, help="uroce_cm_peer")
    parser.add_argument("--evidence", type=Path, default=Path("interop-evidence"),
                        help="folder for captures of failures")


if __name__ == "__main__":
    main(run, __doc__, add_arguments)
