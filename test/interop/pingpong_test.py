#!/usr/bin/env python3
"""`uroce pingpong` against ibv_rc_pingpong and its like on kernel Soft-RoCE, both ways round."""
import contextlib
import itertools
import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import wire
from lab import ENGINE_IPS, GUEST_IPS, HOST_IPS, PREFIXES, lab
from report import Wrong, clean_kernel_log, main, require, require_right_data, tail

PORT = 18515
FAMILIES = ("IPv4", "IPv6")
MTUS = (256, 1024, 4096)
ITERATIONS = {1: 100, 64: 100, 1000: 100, 4096: 50, 65536: 10, 1 << 20: 2}  # by size
LOSSY = ((256, 65536), (1024, 64), (1024, 1000), (4096, 65536), (4096, 1 << 20))  # path MTU, size
LOSSY_ITERATIONS = {64: 200, 1000: 200, 65536: 10, 1 << 20: 4}
SHORT_LINK = ((256, 1000), (1024, 4096), (1024, 65536))  # on a link of 1500
UNRELIABLE = (("uc", 256, 1), ("uc", 1024, 1000), ("uc", 4096, 65536), ("uc", 1024, 65536),
              ("ud", 4096, 1), ("ud", 4096, 1000), ("ud", 4096, 4096))
SHARED = ((256, 1), (1024, 1000), (1024, 4096), (4096, 65536))
CONTROLLED = (("rc", 1024, 64), ("rc", 4096, 65536), ("uc", 1024, 1000))  # with DCQCN on uroce's side
LIMIT_SECONDS = 25
PCAPS_KEPT = 3


@dataclass(frozen=True)
class Case:
    role: str  # uroce's
    family: str
    mtu: int
    size: int
    iterations: int
    loss: float = 0.0
    link: int = 4200
    type: str = "rc"
    marked: float = 0.0  # congestion control is on, and so many packets from the guest have marks

    @property
    def gid(self):
        return 1 + FAMILIES.index(self.family)  # on both sides: 0 is the link-local address

    def __str__(self):
        loss = f", {self.loss:.0%} loss" if self.loss else ""
        loss += f", DCQCN with {self.marked:.0%} marked" if self.marked else ""
        path = f"link {self.link}, path MTU {self.mtu}"
        kind = self.type.upper()
        return f"{kind}, uroce as {self.role}, {self.family}, {path}, {self.size} B{loss}"


def cases():
    for role, family, mtu, size in itertools.product(("client", "server"), FAMILIES, MTUS, ITERATIONS):
        yield Case(role, family, mtu, size, ITERATIONS[size])
    for role, family, (mtu, size) in itertools.product(("client", "server"), FAMILIES, LOSSY):
        yield Case(role, family, mtu, size, LOSSY_ITERATIONS[size], loss=0.01)
    for role, family, (kind, mtu, size) in itertools.product(("client", "server"), FAMILIES, UNRELIABLE):
        yield Case(role, family, mtu, size, ITERATIONS[size], type=kind)
    for role, family, (mtu, size) in itertools.product(("client", "server"), FAMILIES, SHARED):
        yield Case(role, family, mtu, size, 4 * ITERATIONS[size], type="srq")
        if size == 1000:
            yield Case(role, family, mtu, size, 4 * ITERATIONS[size], type="srq", loss=0.01)
    for role, family, (kind, mtu, size) in itertools.product(("client", "server"), FAMILIES, CONTROLLED):
        yield Case(role, family, mtu, size, ITERATIONS[size], type=kind, marked=0.5)
    for role, family, (mtu, size) in itertools.product(("client", "server"), FAMILIES, SHORT_LINK):
        yield Case(role, family, mtu, size, ITERATIONS[size], link=1500)


class Pair:
    """One exchange of the two programs."""

    def __init__(self, used, uroce, case):
        self.used = used
        self.case = case
        options = ["-s", case.size, "-n", case.iterations, "-g", case.gid, "-p", PORT]
        if case.type != "ud":
            options += ["-m", case.mtu]
        check = [] if case.type == "srq" else ["-c"]  # the stock program has no such option there
        self.stock = shlex.join(map(str, [f"ibv_{case.type}_pingpong", "-d", "rxe0", *options, *check]))
        options += ["--type", case.type, "-c"]
        addresses = [word for ip, bits in zip(ENGINE_IPS, PREFIXES) for word in ("--ip", f"{ip}/{bits}")]
        control = ["--congestion", "dcqcn", "--fault", f"ce={case.marked}"] if case.marked else []
        self.uroce = [*uroce, "--port", "af_packet:eng0", *addresses, "--no-huge", *control, *options]

    def run(self):
        """Both programs to their end; fails unless both succeed."""
        client = self.case.role == "client"
        outcome, program = (self._client if client else self._server)()
        out, err = self._finish(program)
        require(outcome.ok and program.returncode == 0,
                f"uroce: exit code {program.returncode}\n{tail(out + err)}\n"
                f"ibv_{self.case.type}_pingpong: {outcome.text()}\n"
                f"command: {shlex.join(map(str, self.uroce))}\nguest:   {self.stock}")
        moved = f"{2 * self.case.size * self.case.iterations} bytes in"
        require(moved in outcome.out, f"the stock program does not say '{moved}':\n{outcome.text()}")
        require_right_data(outcome.text())

    def _client(self):
        job = self.used.guest.start(self.stock, LIMIT_SECONDS)
        self.used.guest.wait_listening(PORT)
        program = self._start(GUEST_IPS[0])  # the stock server listens on IPv4 only, whatever the GID
        return self._await(job, program)

    def _server(self):
        program = self._start()
        try:
            self.used.wait_listening(program, PORT)
        except Exception:
            _, err = self._finish(program)
            raise AssertionError(f"uroce does not listen: {tail(err)}") from None
        host = HOST_IPS[FAMILIES.index(self.case.family)]
        job = self.used.guest.start(f"{self.stock} {host}", LIMIT_SECONDS)
        return self._await(job, program)

    def _start(self, *host):
        return self.used.popen(*self.uroce, *host, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _await(self, job, program):
        """Waits for the stock program, but not for long once uroce has failed."""
        try:
            program.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        if program.returncode != 0:
            job.kill()
        return job.wait(), program

    @staticmethod
    def _finish(program):
        try:
            return program.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            program.kill()
            return program.communicate(timeout=5)


class Matrix:
    """All cases on one guest. A failed case is tried once more while the wire is recorded. Should it fail
    again, a guest booted anew tells whose fault it is: uroce remembers nothing from one process to the next.
    That is granted once, and to nothing that received wrong data.
    """

    def __init__(self, stack, uroce, evidence):
        self.stack = stack  # where the lab is entered
        self.used = stack.enter_context(lab())
        self.uroce = uroce  # how its command line begins
        self.evidence = evidence
        self.kept = 0
        self.is_first_guest = True

    def test(self, case):
        try:
            return self._attempt(case)
        except AssertionError as failure:
            if self.kept >= PCAPS_KEPT:
                raise
            verdict, told = self._once_more(case)
            failure.args = (f"{told}\n{failure}\n{self.used.diagnosis()}",)
            if verdict == "passes" or not self.is_first_guest or isinstance(failure, Wrong):
                raise
            print(f"again {case}: fails twice\n{failure}", flush=True)
            self._boot_anew()
            return "; ".join(filter(None, ("on a guest booted anew", self._attempt(case))))

    def _attempt(self, case):
        if self.used.state["mtu"] != case.link:
            self.print_counters()
            self.used.set_mtu(case.link)  # starts Soft-RoCE's counters anew
        self.used.lose(to_guest=case.loss, to_engine=case.loss)
        try:
            with clean_kernel_log(self.used.guest):
                Pair(self.used, self.uroce, case).run()
            lost = sum(self.used.dropped().values())
            return f"{lost} frames lost" if case.loss else ""
        finally:
            self.used.heal()

    def _boot_anew(self):
        self.is_first_guest = False
        self.print_counters()
        self.stack.close()
        self.used = self.stack.enter_context(lab())

    def print_counters(self):
        counters = {name: value for name, value in self.used.guest.counters().items() if value}
        print(f"Soft-RoCE's counters, link {self.used.state['mtu']}: {counters}", flush=True)

    def _once_more(self, case):
        """@return verdict, and what is to be told of it"""
        self.kept += 1
        self.evidence.mkdir(parents=True, exist_ok=True)
        path = self.evidence / f"pingpong-{os.getpid()}-{self.kept}.pcap"
        verdict = "passes"
        with wire.watch(self.used, path) as seen:
            try:
                Pair(self.used, self.uroce, case).run()
            except AssertionError:
                verdict = "fails"
        return verdict, f"tried again it {verdict}; recorded in {path}: {seen}"


def run(arguments, report):
    with contextlib.ExitStack() as stack:
        uroce = [arguments.uroce.resolve(), "pingpong", "--mode", arguments.mode]
        matrix = Matrix(stack, uroce, arguments.evidence)
        for case in cases():
            report.case(str(case), matrix.test, case)
        matrix.print_counters()


def add_arguments(parser):
    parser.add_argument("--uroce", type=Path, required=True, help="the uroce binary")
    parser.add_argument("--mode", default="app", help="who makes uroce progress: lcore, app or auto")
    parser.add_argument("--evidence", type=Path, default=Path("interop-evidence"),
                        help="folder for captures of failures")


if __name__ == "__main__":
    main(run, __doc__, add_arguments)
