#!/usr/bin/env python3
"""RDMA-CM between uroce and the kernel: rping, ucmatose, cmtime, udaddy and mckey, both ways round."""
import contextlib
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
from report import clean_kernel_log, counters_in, main, require, require_equal, require_exit_code, tail

FAMILIES = ("IPv4", "IPv6")
ROLES = ("client", "server")  # uroce's
RPING_PORT, CMATOSE_PORT, UDADDY_PORT = 7174, 7471, 7174
ROUNDS = {64: 30, 1000: 20, 4096: 20, 65535: 5}  # round trips by size
MESSAGES = {"REQ": 0x10, "REP": 0x13, "RTU": 0x14, "DREQ": 0x15, "SIDR_REQ": 0x17, "SIDR_REP": 0x18}
FROM_CLIENT = ("REQ", "RTU", "DREQ", "SIDR_REQ")
GROUP, GROUP_MAC = "239.1.2.3", "01:00:5e:01:02:03"
CYCLES, AT_ONCE = 1000, 200  # connections one after the other, and together
CYCLES_SECONDS = 150
NO_LISTENER = 8  # reason of a REJ
LIMIT_SECONDS = 40
PEER = 23  # exit code


def ip_of(side, family):
    return side[FAMILIES.index(family)]


def first_lost(message, from_uroce):
    """nft rule: the first message of a kind on its way from one side."""
    port = "eng0p" if from_uroce else "tap0"
    return (f'iifname "{port}" {ROCE} @th,64,8 0x64 @th,352,16 {MESSAGES[message]} '
            "limit rate 1/hour burst 1 packets counter drop")


class Meeting:
    """Programs of both sides that meet by RDMA-CM."""

    def __init__(self, used, arguments):
        self.used = used
        self.guest = used.guest
        self.uroce = arguments.uroce.resolve()
        self.cm_peer = arguments.cm_peer.resolve()
        self.evidence = arguments.evidence
        self.jobs = []
        self.counters = {}  # of uroce in the meeting that was last, if it was asked to tell them

    def case(self, test, *arguments):
        """Runs a test; nothing that it started in the guest goes on."""
        try:
            return test(self, *arguments)
        finally:
            self.used.heal()
            self.end_jobs()

    def end_jobs(self):
        for job in self.jobs:
            if not job.ended():
                job.kill()
                job.wait()
        self.jobs = []

    # Starting

    @contextlib.contextmanager
    def ping(self, *words):
        """`uroce ping` on the engine's port."""
        addresses = [word for ip, bits in zip(ENGINE_IPS, PREFIXES) for word in ("--ip", f"{ip}/{bits}")]
        port = ["--port", "af_packet:eng0", *addresses, "--no-huge"]
        with self._program(self.uroce, "ping", *port, *words) as program:
            yield program

    @contextlib.contextmanager
    def peer(self, *words):
        """The test's peer of the other stock programs on the engine's port."""
        addresses = ",".join(f"{ip}/{bits}" for ip, bits in zip(ENGINE_IPS, PREFIXES))
        port = ["--port", "af_packet:eng0", "--ip", addresses]
        with self._program(self.cm_peer, words[0], *port, *words[1:]) as program:
            yield program

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
        """Starts a program in the guest."""
        self.jobs.append(self.guest.start(command, limit))
        return self.jobs[-1]

    def stock_listener(self, command, limit=LIMIT_SECONDS):
        """The same; returns when it listens."""
        job = self.stock(command, limit)
        name = shlex.split(command)[0]
        listens = f"rdma resource show cm_id | grep -q 'LISTEN.*{name}'"
        self.guest.run(f"until {listens}; do usleep 20000; done", 20)
        return job

    # Ending

    @staticmethod
    def finish(program, code=0, limit=LIMIT_SECONDS):
        """@return what it printed, once it has ended as expected."""
        try:
            out, err = program.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            program.kill()
            out, err = program.communicate(timeout=5)
            raise AssertionError(f"uroce does not end\n{tail(out + err)}\n") from None
        require_exit_code(program, code, f"uroce's exit code\n{tail(out + err)}\n")
        return out + err

    @staticmethod
    def succeed(job):
        outcome = job.wait()
        require(outcome.ok, f"in the guest: {outcome.text()}")
        return outcome.out + outcome.err

    def nothing_left(self):
        """The kernel holds no id, QP or memory region of a program that has ended."""
        self.guest.run("until rdma resource show | grep -q ' qp 1 cm_id 0 mr 0 '; do usleep 50000; done", 20)

    def no_id_left(self, said):
        require("0 ids left" in said, f"uroce's manager holds ids: {said}")
        self.counters = counters_in(said)

    @contextlib.contextmanager
    def watched(self, name):
        """What goes over the bridge. @return the capture's path, for the caller to read and remove"""
        self.evidence.mkdir(parents=True, exist_ok=True)
        path = self.evidence / f"cm-{os.getpid()}-{name}.pcap"
        seen = {}
        try:
            with wire.watch(self.used, path) as seen:
                yield path
            require(not seen["engine"].get("wrong_icrc"), f"uroce sent wrong ICRCs: {seen}")
        except AssertionError as failure:
            raise type(failure)(f"{failure}\nrecorded in {path}: {seen}") from None

    def once(self, role, family="IPv4", size=64, rounds=3, validate=True):
        """One rping with one `uroce ping`. @return uroce's JSON"""
        words = f"-C {rounds} -S {size} -v" + (" -V" if validate else "")
        if role == "client":
            job = self.stock_listener(f"rping -s -a {'::' if family == 'IPv6' else '0.0.0.0'} -S {size} -v")
            counts = ["-C", rounds, "-S", size]
            with self.ping("-c", "-a", ip_of(GUEST_IPS, family), *counts, "-V", "--json") as ours:
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
    meeting.used.put_rules([first_lost(message, from_uroce)])
    meeting.once(role, rounds=3)
    require_equal(sum(meeting.used.dropped().values()), 1, "frames dropped")
    meeting.nothing_left()


def handshake_is_the_kernels(meeting, family):
    """What uroce says as client and as server is what the kernel says in its place."""
    said = {}
    for role in ROLES:
        with meeting.watched(f"handshake-{role}-{family}") as path:
            meeting.once(role, family)
            time.sleep(0.1)
        said[role] = handshake.messages(path)
        path.unlink()
    for role, found in said.items():
        require_equal(handshake.speakers(found),
                      {"req": True, "rep": False, "rtu": True, "dreq": True, "drsp": False},
                      f"who says what, uroce as {role},")
    for kind, names in (("req", handshake.SAME_IN_REQ), ("rep", handshake.SAME_IN_REP)):
        one, other = (next(m for m in said[role] if m["kind"] == kind) for role in ROLES)
        ours, theirs = (one, other) if kind == "req" else (other, one)
        for name in names:
            require_equal(ours.get(name), theirs.get(name), f"uroce's {kind} field {name}")
    handshake_fits(said["client"], family)
    return f"{len(handshake.SAME_IN_REQ) + len(handshake.SAME_IN_REP)} fields are equal"


def handshake_fits(found, family):
    """The fields of uroce's messages that differ from connection to connection."""
    req, rep, rtu, dreq, drep = (next(m for m in found if m["kind"] == kind)
                                 for kind in ("req", "rep", "rtu", "dreq", "drsp"))
    version = "4" if family == "IPv4" else "6"
    ends = ip_of(ENGINE_IPS, family), ip_of(GUEST_IPS, family)
    header = req[f"ip_cm.sip{version}"], req[f"ip_cm.dip{version}"]
    require_equal(header, ends, "the IP header of private data")
    require_equal(int(req["serviceid.dport"], 16), RPING_PORT, "the service's port")
    require_equal({req["mad.transactionid"], rep["mad.transactionid"], rtu["mad.transactionid"]},
                  {req["mad.transactionid"]}, "transactions of REQ, REP and RTU")
    require_equal(dreq["mad.transactionid"], drep["mad.transactionid"], "transactions of DREQ and DREP")
    require_equal(rep["remotecommid"], req["cm.req"], "the REP's remote id")
    require_equal((rtu["localcommid"], rtu["remotecommid"]), (req["cm.req"], rep["cm.rep"]), "the RTU's ids")


def nobody_listens(meeting, role):
    with meeting.watched(f"nobody-{role}") as path:
        if role == "client":
            with meeting.ping("-C", 1, "-p", 7999, GUEST_IPS[0]) as ours:
                require("nobody listens" in meeting.finish(ours, PEER), "uroce does not say why")
        else:
            with meeting.ping("-s") as ours:
                ours.stdout.readline()
                outcome = meeting.stock(f"rping -c -a {ENGINE_IPS[0]} -p 7999 -C 1").wait()
                require("RDMA_CM_EVENT_REJECTED, error 8" in outcome.err, f"rping: {outcome.text()}")
    found = handshake.messages(path)
    path.unlink()
    require_equal(handshake.speakers(found), {"req": True, "rej": False}, "who says what")
    req, rej = (next(message for message in found if message["kind"] == kind) for kind in ("req", "rej"))
    require_equal(int(rej["reason"], 16), NO_LISTENER, "the reason")
    require_equal(int(rej["msgrej"], 16), 0, "what is rejected")
    if role == "server":  # the kernel names the vendor of the REQ
        require_equal(int(rej["localcommid"], 16), 0, "the REJ's own id")
    require_equal(rej["remotecommid"], req["cm.req"], "the REJ's remote id")


def one_side_is_killed(meeting, role, victim):
    """In the middle of a conversation without end; uroce notices, or can be started anew."""
    if role == "client":
        job = meeting.stock_listener("rping -s")
        program = meeting.ping(GUEST_IPS[0])
    else:
        program = meeting.ping("-s")
    with program as ours:
        if role == "server":
            ours.stdout.readline()
            job = meeting.stock(f"rping -c -a {ENGINE_IPS[0]}")
        meeting.guest.run("until rdma resource show qp | grep -q 'RC state RTS'; do usleep 20000; done", 20)
        time.sleep(0.5)
        require(ours.poll() is None and not job.ended(), "one has ended before its time")
        if victim == "uroce":
            ours.send_signal(signal.SIGKILL)
        else:
            job.kill()
            said = meeting.finish(ours, PEER if role == "client" else 0)
            require(re.search(r"[1-9][0-9]* round trips", said), f"uroce says: {said}")
    if victim == "uroce":
        job.kill()  # Soft-RoCE repeats for ever if it is told to do so 7 times, as rping does
        job.wait()
        meeting.once(role)
    meeting.nothing_left()


def ucmatose(meeting, role, connections, messages, size, ends_first):
    stock = f"ucmatose -c {connections} -C {messages} -S {size}"
    words = ["cmatose", "--connections", connections, "--messages", messages, "--bytes", size,
             "--ends-first", int(ends_first)]
    said = meeting_of(meeting, role, stock, words, CMATOSE_PORT)
    require("return status 0" in said, f"ucmatose says: {said}")


def udaddy(meeting, role, messages, size):
    said = meeting_of(meeting, role, f"udaddy -C {messages} -S {size}",
                      ["udaddy", "--messages", messages, "--bytes", size], UDADDY_PORT)
    require("return status 0" in said, f"udaddy says: {said}")


def meeting_of(meeting, role, stock, words, port):
    """Runs a stock program with the test's peer in `role`. @return what the stock program printed"""
    with clean_kernel_log(meeting.guest):
        if role == "client":
            job = meeting.stock_listener(stock)
            with meeting.peer(*words, "--to", f"{GUEST_IPS[0]}:{port}") as ours:
                meeting.no_id_left(meeting.finish(ours))
            said = meeting.succeed(job)
        else:
            with meeting.peer(*words, "--listen", port) as ours:
                ours.stdout.readline()
                said = meeting.succeed(meeting.stock(f"{stock} -s {ENGINE_IPS[0]}"))
                meeting.no_id_left(meeting.finish(ours))
    meeting.nothing_left()
    return said


def cmtime(meeting, role, connections, rounds=1):
    words = ["cmtime", "--connections", connections, "--rounds", rounds, "--messages", 0]
    began = time.monotonic()
    if role == "server":
        said = meeting_of(meeting, role, f"cmtime -c {connections}", words, CMATOSE_PORT)
        require("error" not in said, f"cmtime says: {said}")
    else:
        job = meeting.stock_listener("cmtime", CYCLES_SECONDS)
        with meeting.peer(*words, "--to", f"{GUEST_IPS[0]}:{CMATOSE_PORT}") as ours:
            meeting.no_id_left(meeting.finish(ours, limit=CYCLES_SECONDS))
        job.kill()
        job.wait()
        meeting.nothing_left()
    return f"{connections * rounds / (time.monotonic() - began):.0f} connections a second"


def mckey(meeting, role):
    """@param role  "sender" or "receiver": uroce's"""
    stock = f"mckey -m {GROUP} -b {GUEST_IPS[0]} -C 10 -S 200" + (" -s" if role == "receiver" else "")
    words = ["mckey", "--to", GROUP, "--messages", 10, "--bytes", 200, "--sender", int(role == "sender")]
    if role == "sender":
        job = meeting.stock(stock)
        meeting.guest.run(f"until ip maddr show dev eth0 | grep -q {GROUP_MAC}; do usleep 20000; done", 20)
    with meeting.peer(*words) as ours:
        if role == "receiver":
            ours.stdout.readline()
            job = meeting.stock(stock)
        meeting.finish(ours)
    require("return status 0" in meeting.succeed(job), "mckey says otherwise")
    meeting.nothing_left()


def cases():
    """(name, test, its arguments) of every case."""
    for role, family, size in itertools.product(ROLES, FAMILIES, ROUNDS):
        yield f"rping, uroce as {role}, {family}, {size} B", rping, role, family, size
    for family in FAMILIES:
        yield f"the handshake is the kernel's, {family}", handshake_is_the_kernels, family
    losses = [*itertools.product(ROLES, ("REQ", "REP", "RTU")), ("client", "DREQ")]
    for role, message in losses:  # a DREQ of rping is not repeated: it ends before
        yield f"rping, uroce as {role}: the first {message} is lost", rping_loses, role, message
    for role in ROLES:
        yield f"nobody listens, uroce as {role}", nobody_listens, role
    for role, victim in itertools.product(ROLES, ("uroce", "rping")):
        yield f"{victim} is killed, uroce as {role}", one_side_is_killed, role, victim
    for role, ends_first in (("client", False), ("client", True), ("server", True)):
        who = "uroce" if ends_first else "the kernel"
        for connections, messages, size in ((1, 20, 1000), (5, 40, 5000)):
            yield (f"ucmatose, uroce as {role}, {connections} connections, {who} ends them",
                   ucmatose, role, connections, messages, size, ends_first)
    for role in ROLES:
        yield f"udaddy, uroce as {role}", udaddy, role, 20, 500
    for role in ("sender", "receiver"):  # the kernel joins no IPv6 groups for RoCE v2
        yield f"mckey, uroce as {role}", mckey, role
    for role in ROLES:
        yield f"cmtime, uroce as {role}, {AT_ONCE} connections at once", cmtime, role, AT_ONCE
    yield f"cmtime, uroce as client, {CYCLES} connections one after the other", cmtime, "client", 1, CYCLES


def run(arguments, report):
    with lab() as used:
        report.diagnosis = used.diagnosis
        meeting = Meeting(used, arguments)
        for name, test, *rest in cases():
            report.case(name, meeting.case, test, *rest)
        counters = {name: value for name, value in used.guest.counters().items() if value}
        print(f"Soft-RoCE's counters: {counters}")


def add_arguments(parser):
    parser.add_argument("--uroce", type=Path, required=True, help="the uroce binary")
    parser.add_argument("--cm-peer", type=Path, required=True, help="uroce_cm_peer")
    parser.add_argument("--evidence", type=Path, default=Path("interop-evidence"),
                        help="folder for captures of failures")


if __name__ == "__main__":
    main(run, __doc__, add_arguments)
