#!/usr/bin/env python3
"""SEND, WRITE, READ and atomics between uroce and kernel Soft-RoCE, every byte verified on both sides.

Both ends run the same dialog (dialog/), linked with uroce here and with libibverbs in the guest.
"""
import os
import shlex
import subprocess
from pathlib import Path

import wire
from lab import ENGINE_IPS, GUEST_IPS, PREFIXES, ROCE, lab
from report import clean_kernel_log, counters_in, main, require, tail

LIMIT_SECONDS = 60
TCP_PORT = 18600
GUEST_PROGRAM = "/tmp/dialog"
GIDS = {"IPv4": 1, "IPv6": 2}
ALL = ("send:0:4 send:1:20 send:4096:20 send:1000000:2 sendimm:100:8 write:0:2 write:1:20 write:65537:8 "
       "writeimm:0:2 writeimm:3000:8 read:1:20 read:4096:20 read:300000:8 cas:8:16 faa:8:64 "
       "mixed:5000:128").split()
LOSSY = ("send:64:100 send:30000:40 write:30000:40 writeimm:5000:40 read:30000:40 read:64:100 "
         "cas:8:60 faa:8:100 mixed:9000:128 mixed:3000:128").split()
WRONG_KEY = 10  # enum ibv_wc_status: remote access error
INVALID_REQUEST, OPERATION_ERROR = 9, 11
RESPONSES = ROCE + " @th,64,8 { 13-16, 18 }"  # BTH opcodes: READ responses, atomic acknowledge
ACK_TIMEOUT = 16  # 268 ms: an emulated machine may stand still for long
ALMOST_WRAPPING = 0xFFFFF0


class Dialog:
    """The two programs of one test."""

    def __init__(self, used, program, evidence):
        self.used = used
        self.program = program.resolve()
        self.evidence = evidence
        self.number = 0
        self.counters = {}  # of uroce in the dialog that was last

    def run(self, active, steps, mtu=4096, family="IPv4", **options):
        """@param active  "uroce" or "rxe": who posts the requests of `steps`"""
        common = {"mtu": mtu, "gid": GIDS[family], "tcp": TCP_PORT, "psn": ALMOST_WRAPPING}
        common |= {"timeout": ACK_TIMEOUT} | options
        flags = [word for name, value in common.items() for word in (f"--{name.replace('_', '-')}", value)]
        sides = {"rxe": ["passive"], "uroce": ["passive"], active: ["active", *steps]}
        guest = [GUEST_PROGRAM, *flags, *sides["rxe"]]
        ours = [self.program, "--port", "af_packet:eng0", "--connect", GUEST_IPS[0], "--counters", "1"]
        ours += flags
        for ip, bits in zip(ENGINE_IPS, PREFIXES):
            ours += ["--ip", f"{ip}/{bits}"]
        ours += sides["uroce"]

        job = self.used.guest.start(shlex.join(map(str, guest)), LIMIT_SECONDS)
        try:
            self.used.guest.wait_listening(TCP_PORT)
            program = self.used.popen(*ours, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            code, said = self._finish(program)
        except BaseException:
            job.kill()
            raise
        if code:
            job.kill()
        outcome = job.wait()
        self.counters = counters_in(said)
        require(code == 0 and outcome.ok,
                f"uroce: exit code {code}\n{tail(said)}\nguest: {outcome.text()}\n"
                f"command: {shlex.join(map(str, ours))}\nguest:   {shlex.join(map(str, guest))}")

    @staticmethod
    def _finish(program):
        """@return exit code and output; the code is negative if its time ran out."""
        try:
            said, _ = program.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            program.kill()
            said, _ = program.communicate()
        return program.returncode, said

    def watched(self, *arguments, loss=0.0, match=ROCE, marked=0.0, **options):
        """Like run(), with loss both ways. @return what each side sent. The capture is kept if it fails."""
        self.number += 1
        self.evidence.mkdir(parents=True, exist_ok=True)
        path = self.evidence / f"dialog-{os.getpid()}-{self.number}.pcap"
        self.used.lose(loss, loss, match, marked)
        try:
            with clean_kernel_log(self.used.guest), wire.watch(self.used, path) as seen:
                self.run(*arguments, **options)
        except AssertionError as failure:
            raise AssertionError(f"{failure}\nrecorded in {path}") from None
        finally:
            lost = self.used.dropped()
            self.used.heal()
        path.unlink()
        require(not seen["engine"].get("wrong_icrc"), f"uroce sent wrong ICRCs: {seen}")
        return seen, lost


def every_operation(dialog, active, mtu, family):
    dialog.watched(active, ALL, mtu=mtu, family=family)


def loss_is_recovered(dialog, active, family):
    """Whoever's requests or READ responses are lost has them sent again."""
    seen, lost = dialog.watched(active, LOSSY, mtu=1024, family=family, loss=0.01)
    require(min(lost.values()) > 0, f"nothing was lost: {lost}")
    side = "engine" if active == "uroce" else "guest"
    again = seen[side].get("retransmitted_requests", 0)
    require(again > 0, f"no request was sent again: {seen}")
    return f"{lost['eng0p']} and {lost['tap0']} frames lost, {again} requests sent again"


def lost_response_is_fetched_again(dialog, active):
    """No acknowledgement may pass for the data of a READ or atomic whose response is lost."""
    steps = ["sendread:200:128", "sendread:3000:64", "mixed:2500:128", "mixed:2500:128"]
    _, lost = dialog.watched(active, steps, mtu=1024, loss=0.2, match=RESPONSES)
    require(sum(lost.values()) > 0, f"nothing was lost: {lost}")
    return f"{sum(lost.values())} responses lost"


def late_receive_is_awaited(dialog, active):
    """The passive side posts its receive 200 ms too late and asks to wait."""
    steps = ["send:10", "late:5000:200", "late:64:50", "send:10"]
    seen, _ = dialog.watched(active, steps, mtu=1024, rnr_timer=20)
    naks = seen["guest" if active == "uroce" else "engine"].get("rnr_naks", 0)
    require(naks >= 2, f"no RNR NAK on the wire: {seen}")
    return f"{naks} RNR NAKs"


def refusal_is_told(dialog, active, step):
    dialog.watched(active, ["send:100", step])


def cases():
    """(name, test, its arguments) of every case."""
    for active, who in (("uroce", "uroce's requests"), ("rxe", "Soft-RoCE's requests")):
        for mtu, family in ((256, "IPv4"), (1024, "IPv6"), (4096, "IPv4"), (4096, "IPv6")):
            yield (f"{who}: every operation leaves the right bytes, {family}, path MTU {mtu}",
                   every_operation, active, mtu, family)
        too_long = OPERATION_ERROR if active == "uroce" else INVALID_REQUEST
        yield f"{who}: a late receive is awaited after RNR NAKs", late_receive_is_awaited, active
        yield f"{who}: a wrong key is refused", refusal_is_told, active, f"wrongkey:{WRONG_KEY}"
        yield (f"{who}: a send too long for the receive is refused",
               refusal_is_told, active, f"toolong:{too_long}")
        yield f"{who}: data of a lost response are fetched again", lost_response_is_fetched_again, active
        for family in GIDS:
            yield f"{who}: 1 % loss both ways is recovered, {family}", loss_is_recovered, active, family


def run(arguments, report):
    with lab() as used:
        report.diagnosis = used.diagnosis
        used.guest.put(arguments.guest_dialog, GUEST_PROGRAM)
        dialog = Dialog(used, arguments.dialog, arguments.evidence)
        for name, test, *rest in cases():
            report.case(name, test, dialog, *rest)
        print("Soft-RoCE's counters:", used.guest.counters())


def add_arguments(parser):
    parser.add_argument("--dialog", type=Path, required=True, help="the dialog linked with uroce")
    parser.add_argument("--guest-dialog", type=Path, required=True, help="the dialog linked with libibverbs")
    parser.add_argument("--evidence", type=Path, default=Path("interop-evidence"),
                        help="folder for captures of failures")


if __name__ == "__main__":
    main(run, __doc__, add_arguments)
