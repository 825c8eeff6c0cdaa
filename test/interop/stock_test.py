#!/usr/bin/env python3
"""Stock programs at both ends: one on the drop-in libraries (`uroce run`), one on the kernel's Soft-RoCE."""
import contextlib
import itertools
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from agent import GuestError
from lab import ENGINE_IPS, GUEST_IPS, HOST_IPS, PREFIXES, lab
from packages import Unavailable
from report import clean_kernel_log, main, require, require_exit_code, require_same, tail, twice

ROLES = ("client", "server")  # uroce's
CM_THREAD = "uroce-rdma-cm"  # of a program that is about to bind an address
PERFTEST_PORT = 18515  # TCP, for the exchange of those that do without RDMA-CM
LIMIT_SECONDS = 60
# The server's command line and the client's; "&": the server goes on until it is ended.
STREAMS = (
    ("rstream -S 1024 -C 100 -I 10", "rstream -S 1024 -C 100 -I 10 -s {server}"),
    ("rstream -S 65536 -C 20 -I 5 -T b", "rstream -S 65536 -C 20 -I 5 -T b -s {server}"),
    ("riostream -S 4096 -C 20 -I 10", "riostream -S 4096 -C 20 -I 10 -s {server}"),
    ("rcopy &", "rcopy {sent} {server}:{received}"),
    ("rping -s -C 10 -V", "rping -c -a {server} -C 10 -V"),
    ("ucmatose -C 20 -S 1000", "ucmatose -C 20 -S 1000 -s {server}"),
)
# -F: perftest goes on where a busy core spoils its measuring of the clock (else it gives up at the end).
PERFTEST = tuple((f"{command} -F", f"{command} -F {{server}}") for command in (
    "ib_send_bw -n 100", "ib_send_bw -R -n 100", "ib_write_lat -n 100", "ib_write_lat -R -n 100",
    "ib_read_bw -n 50", "ib_read_bw -R -n 50", "ib_atomic_lat -n 100", "ib_atomic_lat -R -n 100"))
HERE = {"rping": "rdmacm-utils", "ib_send_bw": "perftest"}
SHOW_SUM = "md5sum < "


def begins_with_cm(program):
    """Returns a moment after a program of ours has begun with RDMA-CM, or once it is over."""
    end = time.monotonic() + LIMIT_SECONDS
    while program.poll() is None and time.monotonic() < end:
        for comm in Path(f"/proc/{program.pid}/task").glob("*/comm"):
            with contextlib.suppress(OSError):
                if comm.read_text(encoding="ascii").strip() == CM_THREAD:
                    return time.sleep(0.3)
        time.sleep(0.02)
    return None


class Meeting:
    """Two programs, each at its own end."""

    def __init__(self, used, uroce, server, client):
        self.used = used
        self.guest = used.guest
        self.uroce = uroce
        self.server = server.rstrip("& ")
        self.client = client
        self.ends_by_itself = not server.endswith("&")
        self.has_tcp = client.startswith("ib_") and "-R" not in client.split()
        self.copies = "{received}" in client

    def run(self, role):
        with clean_kernel_log(self.guest), tempfile.TemporaryDirectory(prefix="uroce-stock-") as folder:
            self.sent, self.received = f"{folder}/sent", f"{folder}/received"
            self.make_sent = f"seq 1 20000 > {self.sent}"
            self.guest.run(f"mkdir -p {folder}")
            if role == "client":
                self.as_client()
            else:
                self.as_server()

    def as_client(self):
        subprocess.run(self.make_sent, shell=True, check=True)
        there = self.guest.start(self.server, LIMIT_SECONDS)
        try:
            self.await_guest()
            with self.ours(self.client_words(GUEST_IPS[0])) as here:
                self.finish(here)
                if self.ends_by_itself:
                    self.ends_well(there)
            if self.copies:
                here = self.sum_of(self.sent)
                require_same(self.guest.run(SHOW_SUM + self.received).out, here, "what arrived")
        finally:
            self.end(there)

    def as_server(self):
        self.guest.run(self.make_sent)
        with self.ours(self.server) as here:
            self.await_ours(here)
            at = HOST_IPS[0] if self.has_tcp else ENGINE_IPS[0]
            there = self.guest.start(self.client_words(at), LIMIT_SECONDS)
            try:
                self.ends_well(there)
                if self.ends_by_itself:
                    self.finish(here)
            finally:
                self.end(there)
        if self.copies:
            there = self.guest.run(SHOW_SUM + self.sent)
            require_same(self.sum_of(self.received), there.out, "what arrived")

    @staticmethod
    def sum_of(file):
        return subprocess.run(SHOW_SUM + file, shell=True, check=True, capture_output=True, text=True).stdout

    def client_words(self, server):
        return self.client.format(server=server, sent=self.sent, received=self.received)

    def await_guest(self):
        if self.has_tcp:
            return self.guest.wait_listening(PERFTEST_PORT)
        name = self.server.split()[0]
        listens = f"rdma resource show cm_id | grep -q 'LISTEN.*{name}'"
        return self.guest.run(f"until {listens}; do usleep 20000; done", 20)

    def await_ours(self, program):
        if self.has_tcp:
            return self.used.wait_listening(program, PERFTEST_PORT, LIMIT_SECONDS)
        return begins_with_cm(program)

    @contextlib.contextmanager
    def ours(self, command):
        """The program on uroce; what it has said is told if anything fails."""
        addresses = ",".join(f"{ip}/{bits}" for ip, bits in zip(ENGINE_IPS, PREFIXES))
        port = ["--port", "af_packet:eng0", "--ip", addresses]
        program = self.used.popen(self.uroce, "run", *port, "--", *shlex.split(command),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            yield program
        except (AssertionError, GuestError) as fault:
            raise AssertionError(f"{fault}\non uroce:\n{tail(self.output_of(program))}") from fault
        finally:
            self.output_of(program)

    @staticmethod
    def output_of(program):
        """All that it has said, once; it does not go on."""
        if program.poll() is None:
            program.kill()
        return "" if program.stdout.closed else program.communicate(timeout=5)[0]

    def finish(self, program):
        try:
            program.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError("the program on uroce does not end") from None
        require_exit_code(program, 0, "exit code on uroce")

    @staticmethod
    def ends_well(job):
        outcome = job.wait()
        require(outcome.ok, f"in the guest: {outcome.text()}")

    @staticmethod
    def end(job):
        if not job.ended():
            job.kill()
            job.wait()


class Meetings:
    """All of them on one guest, each tried twice. A guest that no frame reaches any more, ours or others', is
    booted anew; that is granted once.
    """

    def __init__(self, stack, uroce, report):
        self.stack = stack  # where the lab is entered
        self.uroce = uroce
        self.report = report
        self.is_first_guest = True
        self._boot()

    def meet(self, role, server, client):
        twice(client, lambda: Meeting(self.used, self.uroce, server, client).run(role), self._may_try_again)

    def _may_try_again(self):
        if self.used.heard() > 0:
            return True
        if self.is_first_guest:
            print(f"on a guest booted anew:\n{self.used.diagnosis()}", flush=True)
            self.is_first_guest = False
            self.stack.close()
            self._boot()
            return True
        return False

    def _boot(self):
        self.used = self.stack.enter_context(lab())
        self.report.diagnosis = self.used.diagnosis


def run(arguments, report):
    missing = [package for program, package in HERE.items() if shutil.which(program) is None]
    if missing:
        raise Unavailable(f"programs are missing: apt-get install {' '.join(missing)}")
    with contextlib.ExitStack() as stack:
        meetings = Meetings(stack, arguments.uroce.resolve(), report)
        for role, (server, client) in itertools.product(ROLES, STREAMS + PERFTEST):
            report.case(f"{client}, uroce as {role}", meetings.meet, role, server, client)


def add_arguments(parser):
    parser.add_argument("--uroce", type=Path, required=True, help="the uroce binary")


if __name__ == "__main__":
    main(run, __doc__, add_arguments)
