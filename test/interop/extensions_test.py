#!/usr/bin/env python3
"""Selective repeat and DCQCN switched on at uroce's side: Soft-RoCE, which knows neither, works as before.

A few cases of the other tests, with what only these options show; --all: all of their cases, too.
"""
import contextlib
import itertools
import os
import shutil
import socket
import threading
from pathlib import Path

import cm_test
import dialog_test
import handshake
import pingpong_test
import stock_test
import wire
from agent import GuestError
from lab import lab
from packages import Unavailable
from report import clean_kernel_log, main, require, require_equal, twice

SWITCHED_ON = {"UROCE_SELECTIVE_REPEAT": "true", "UROCE_CONGESTION": "dcqcn"}
LOSS, MARKED = 0.01, 0.3  # shares
ENOUGH = 10  # of what is left to chance: then none of a kind is no accident
STORMS = ((0.0, 0.0), (LOSS, MARKED))
VENDOR, SELECTIVE_REPEAT = 0x027572, 1 << 1  # include/uroce/ece.h
PINGPONGS = ((1024, 1000, "IPv4"), (4096, 65536, "IPv6"))  # path MTU, size
DIALOG = "send:3000:40 write:30000:20 read:30000:20 faa:8:40 mixed:9000:64".split()
NOTIFIED = "send:3000:100 write:30000:40".split()
STOCK = (("rping -s -C 10 -V", "rping -c -a {server} -C 10 -V"),
         ("ib_send_bw -R -n 100 -F", "ib_send_bw -R -n 100 -F {server}"),  # -F: as in stock_test
         ("ib_write_bw -R -n 100 -F", "ib_write_bw -R -n 100 -F {server}"))
SELECTIVE_COUNTERS = ("requester_selective_naks", "requester_held_responses",
                      "responder_selective_naks", "responder_held_requests")


class Lab:
    """What the cases share."""

    def __init__(self, used, arguments):
        self.used = used
        self.evidence = arguments.evidence
        self.uroce = arguments.uroce.resolve()
        self.meeting = cm_test.Meeting(used, arguments)
        self.dialog = dialog_test.Dialog(used, arguments.dialog, arguments.evidence)

    def case(self, test, *arguments):
        """Runs a test; nothing that it started in the guest goes on."""
        return self.meeting.case(lambda _: test(self, *arguments))

    @contextlib.contextmanager
    def storm(self, loss, marked):
        """Frames are lost and marked, and what is on the wire fits. @return what each side sent, once over"""
        self.evidence.mkdir(parents=True, exist_ok=True)
        path = self.evidence / f"extensions-{os.getpid()}.pcap"
        self.used.lose(loss, loss, marked=marked)
        try:
            with clean_kernel_log(self.used.guest), wire.watch(self.used, path) as seen:
                yield seen
        except (AssertionError, GuestError) as fault:
            kept = path.rename(path.with_stem(f"{path.stem}-{os.urandom(3).hex()}"))
            raise type(fault)(f"{fault}\nrecorded in {kept}: {seen}") from fault
        finally:
            seen["marked"] = self.used.marked()["tap0"]
            seen["lost"] = sum(self.used.dropped().values())
            self.used.heal()
        path.unlink()
        self.speaks_plainly(seen)
        self.was_a_storm(seen, loss, marked)

    @staticmethod
    def speaks_plainly(seen):
        """Soft-RoCE gets packets that it knows, and CNPs for the marks of its own, which it passes over."""
        engine = seen["engine"]
        require(not engine.get("wrong_icrc"), f"uroce sent wrong ICRCs: {seen}")
        require_equal(engine.get("extensions", 0), 0, f"uroce's packets that IBA does not know, of {seen},")
        require(engine["ecn_capable"] > 0, f"uroce's packets may not be marked: {seen}")
        cnps = engine.get("cnps", 0)
        require(cnps <= seen["marked"], f"CNPs without marks: {seen}")
        # Marked MADs and frames that are lost behind their mark ask for none.
        require(cnps > 0 or seen["marked"] < ENOUGH, f"marks without CNPs: {seen}")

    @staticmethod
    def was_a_storm(seen, loss, marked):
        """As many frames as there were, some were lost and marked."""
        for what, share, sides in (("lost", loss, ("engine", "guest")), ("marked", marked, ("guest",))):
            due = share * sum(seen[side].get("roce", 0) for side in sides)
            require(seen[what] > 0 or due < ENOUGH,
                    f"nothing was {what}, about {due:.0f} packets should be: {seen}")


def note_of(seen):
    return (f"{seen['lost']} packets lost, {seen['marked']} marked, "
            f"{seen['engine'].get('cnps', 0)} CNPs")


def goes_back(counters):
    """Whether nothing was repeated selectively."""
    for name in SELECTIVE_COUNTERS:
        require_equal(counters[name], 0, name)


def pingpong(shared, case, loss, marked):
    with shared.storm(loss, marked) as seen:
        pingpong_test.Pair(shared.used, [shared.uroce, "pingpong"], case).run()
    return note_of(seen)


def dialog(shared, active, loss, marked):
    """Every kind of request; uroce's own counters."""
    with shared.storm(loss, marked) as seen:
        shared.dialog.run(active, DIALOG, mtu=1024)
    counters = shared.dialog.counters
    goes_back(counters)
    require_equal(counters["np_cnp_sent"], seen["engine"].get("cnps", 0), "np_cnp_sent")
    require((counters["np_ecn_marked_roce_packets"] > 0) == (marked > 0), f"counted otherwise: {counters}")
    if loss:
        again = counters["requester_go_backs"] + counters["responder_out_of_sequence"]
        require(again > 0, f"nothing was sent again: {counters}")
    return note_of(seen)


class Notifier:
    """Answers Soft-RoCE's ACKs by CNPs, as a network card in its place would that got marked packets."""

    def __init__(self, used):
        self.heard = used.raw_socket("tap0")
        self.sends = used.raw_socket("eng0p")
        self.heard.settimeout(0.1)
        self.is_over = False
        self.sent = 0
        self.thread = threading.Thread(target=self._go_on)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.thread.join()
        self.heard.close()
        self.sends.close()

    def _go_on(self):
        while not self.is_over:
            with contextlib.suppress(TimeoutError):
                frame, address = self.heard.recvfrom(65536)
                parts = wire.roce_parts(frame)
                if address[2] != socket.PACKET_OUTGOING and parts and parts[1][8] == wire.ACK:
                    self.sends.send(wire.cnp(frame))
                    self.sent += 1


def notified(shared):
    """uroce is slowed down by CNPs, and still comes to an end."""
    # There is more to send whenever a CNP comes, and the rate rises slowly again.
    slow = {"UROCE_MAX_UNACKED": "8", "UROCE_LINE_MBPS": "1000"}
    os.environ.update(slow)
    sent = 0
    try:
        # A notifier that gets no core comes too late for a whole dialog.
        for _ in range(5):
            with clean_kernel_log(shared.used.guest), Notifier(shared.used) as notifier:
                shared.dialog.run("uroce", NOTIFIED, mtu=1024)
            sent += notifier.sent
            counters = shared.dialog.counters
            if counters["rp_cnp_handled"] > 0:
                break
    finally:
        for name in slow:
            del os.environ[name]
    require(sent > 0, "no acknowledgement was heard")
    require(counters["rp_cnp_handled"] > 0, f"none of {sent} CNPs was taken: {counters}")
    require(counters["requester_gate_paced"] > 0, f"{counters['rp_cnp_handled']} CNPs slow nothing down")
    return f"{counters['rp_cnp_handled']} CNPs taken, {counters['requester_gate_paced']} waits"


def options_of(message):
    return int(message["mad.attributemodifier"], 16)


def offer_is_passed_over(shared, role):
    """uroce's REQ offers selective repeat, and the kernel's REP does not take it; nor uroce's REP after a
    REQ without it."""
    with shared.meeting.watched(f"offer-{role}") as path:
        shared.meeting.once(role)
    found = handshake.messages(path)
    path.unlink()
    req, rep = (next(message for message in found if message["kind"] == kind) for kind in ("req", "rep"))
    offered, taken = (options_of(message) & SELECTIVE_REPEAT for message in (req, rep))
    require_equal(offered, SELECTIVE_REPEAT if role == "client" else 0, "what the REQ offers")
    require_equal(taken, 0, "what the REP takes")


def rping(shared, role, loss, marked):
    with shared.storm(loss, marked) as seen:
        shared.meeting.once(role, size=65535, rounds=5)
    return note_of(seen)


def ucmatose(shared, role, loss, marked):
    """Without the last acknowledgement a connection's last send is flushed, and behind uroce's last word
    nobody is left to say it again: a packet lost there fails one of the two, whatever RoCE is beneath.
    """
    meeting = shared.meeting
    stock_command = "ucmatose -c 2 -C 40 -S 5000"
    words = ["cmatose", "--connections", 2, "--messages", 40, "--bytes", 5000, "--counters", 1]
    words += ["--ends-first", int(role == "server")]

    def once():
        with shared.storm(loss, marked) as seen:
            try:
                cm_test.meeting_of(meeting, role, stock_command, words, cm_test.CMATOSE_PORT)
            finally:
                meeting.end_jobs()
        goes_back(meeting.counters)
        cnps = seen["engine"].get("cnps", 0)
        require((meeting.counters["np_cnp_sent"] > 0) == (cnps > 0), f"{cnps} CNPs: {meeting.counters}")
        return note_of(seen)

    return twice(stock_command, once)


def stock(shared, role, server, client, loss, marked):
    """The last acknowledgement is lost as often as any, and perftest leaves right behind it: then the other
    end sends again and again to a queue pair that is no more, whatever RoCE is beneath.
    """
    def once():
        with shared.storm(loss, marked) as seen:
            stock_test.Meeting(shared.used, shared.uroce, server, client).run(role)
        return note_of(seen)

    return twice(client, once)


def cases(arguments):
    """(name, test, its arguments) of every case."""
    for role in cm_test.ROLES:
        for (mtu, size, family), storm in itertools.product(PINGPONGS, STORMS):
            case = pingpong_test.Case(role, family, mtu, size, 20)
            yield f"{case}{told(*storm)}", pingpong, case, *storm
    for active, storm in itertools.product(("uroce", "rxe"), STORMS):
        yield f"{active}'s requests{told(*storm)}", dialog, active, *storm
    yield "uroce's requests, Soft-RoCE's network card sends CNPs", notified
    for role in cm_test.ROLES:
        yield f"the kernel passes an offer over, uroce as {role}", offer_is_passed_over, role
        yield f"rping, uroce as {role}{told(LOSS, MARKED)}", rping, role, LOSS, MARKED
        yield f"ucmatose, uroce as {role}{told(LOSS, MARKED)}", ucmatose, role, LOSS, MARKED
    if arguments.sanitized:
        return  # stock programs would need its runtime
    for role, (server, client) in itertools.product(stock_test.ROLES, STOCK):
        yield f"{client}, uroce as {role}{told(LOSS, MARKED)}", stock, role, server, client, LOSS, MARKED


def told(loss, marked):
    return f", {loss:.0%} loss, {marked:.0%} marked" if loss or marked else ""


def run(arguments, report):
    missing = [package for program, package in stock_test.HERE.items() if shutil.which(program) is None]
    if missing:
        raise Unavailable(f"programs are missing: apt-get install {' '.join(missing)}")
    os.environ.update(SWITCHED_ON)
    with lab() as used:
        report.diagnosis = used.diagnosis
        used.guest.put(arguments.guest_dialog, dialog_test.GUEST_PROGRAM)
        shared = Lab(used, arguments)
        for name, test, *rest in cases(arguments):
            report.case(name, shared.case, test, *rest)
        print("Soft-RoCE's counters:", used.guest.counters())
    if arguments.all:
        tests = [pingpong_test, cm_test, dialog_test] + ([] if arguments.sanitized else [stock_test])
        for one in tests:
            one.run(arguments, report)


def add_arguments(parser):
    cm_test.add_arguments(parser)
    parser.add_argument("--dialog", type=Path, required=True, help="the dialog linked with uroce")
    parser.add_argument("--guest-dialog", type=Path, required=True, help="the dialog linked with libibverbs")
    parser.add_argument("--mode", default="app", help="who makes uroce progress: lcore, app or auto")
    parser.add_argument("--sanitized", action="store_true", help="uroce has been built with a sanitizer")
    parser.add_argument("--all", action="store_true", help="all cases of the other tests, too")


if __name__ == "__main__":
    main(run, __doc__, add_arguments)
