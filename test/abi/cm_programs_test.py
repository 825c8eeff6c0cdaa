#!/usr/bin/env python3
"""Stock programs that connect by RDMA-CM, unmodified, two processes each, over one link.

Usage: cm_programs_test.py UROCE_PROGRAM [--as-nobody] [--veth | --mesh] [PATTERN...]

librdmacm is the system's. Runs the cases whose command lines contain a pattern, all without one. The link is
shm, with --mesh one of four ends; with --veth, af_packet between two network namespaces, which needs root.
Prints what became of each.
Programs that are not installed are skipped, with the package to install.
"""
import filecmp
import os
import pathlib
import shlex
import shutil
import sys
import tempfile
import time

import cases
import links
import programs_test
import wrong_data

SECONDS = 60  # for one pair
LINES = 12  # of what each says, where it fails
RSOCKETS = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"
PYTHON = "/usr/bin/python3"  # not one that was linked to another C library
CM_THREAD = "uroce-rdma-cm"  # of a process that is about to bind or to resolve an address

# server, client. {server} and {client} are addresses, {folder} has files; "&": the server never ends.
PLAIN = (
    ("rping -s -C 20 -V", "rping -c -a {server} -C 20 -V"),
    ("rping -s -a {server} -C 5 -S 60000 -V", "rping -c -a {server} -I {client} -C 5 -S 60000 -V"),
    ("rping -s -P -p 7200 &", "rping -c -a {server} -C 10 -V -p 7200"),
    ("ucmatose", "ucmatose -s {server}"),
    ("ucmatose -c 20 -C 50 -S 1000", "ucmatose -c 20 -C 50 -S 1000 -s {server}"),
    ("ucmatose -c 5 -m", "ucmatose -c 5 -m -s {server}"),
    ("ucmatose -b {server} -t 32", "ucmatose -b {client} -t 32 -s {server}"),
    ("udaddy", "udaddy -s {server}"),
    ("udaddy -c 20 -C 20 -S 1000", "udaddy -c 20 -C 20 -S 1000 -s {server}"),
    ("cmtime &", "cmtime -c 100 -s {server}"),
    ("rdma_server", "rdma_client -s {server}"),
    ("rdma_xserver", "rdma_xclient -s {server}"),
    ("rdma_xserver -c x", "rdma_xclient -c x -s {server}"),
    ("mckey -m 239.1.2.3 -b {server}", "mckey -m 239.1.2.3 -b {client} -s"),
    ("mckey -m 239.1.2.3 -b {server} -c 3 -C 20", "mckey -m 239.1.2.3 -b {client} -c 3 -C 20 -s"),
)
PERFTEST = tuple(
    (f"{command} -R", f"{command} -R {{server}}") for command in (
        "ib_send_lat -n 500", "ib_write_lat -n 500", "ib_read_lat -n 500", "ib_send_bw -n 500",
        "ib_write_bw -n 500", "ib_read_bw -n 500", "ib_atomic_bw -n 500", "ib_write_bw -n 500 -q 4",
        "ib_send_bw -c UD -n 500", "ib_send_lat -n 500 -c UD", "ib_send_bw -n 500 -e",
        "ib_write_bw -n 500 -T 32"))
RSOCKET = (
    ("rstream -S 1024 -I 10", "rstream -S 1024 -I 10 -s {server}"),
    ("rstream -S 65536 -I 10 -T b", "rstream -S 65536 -I 10 -T b -s {server}"),
    ("rstream -S 4096 -I 10 -T n", "rstream -S 4096 -I 10 -T n -s {server}"),
    ("riostream -S 4096 -I 10", "riostream -S 4096 -I 10 -s {server}"),
    ("rcopy -p 7500 &", "rcopy {folder}/sent {server}:{folder}/received -p 7500"),
    (f"{PYTHON} {{folder}}/serve.py 8000", "curl -sS -o {folder}/received http://{server}:8000/sent"),
)
PACKAGES = {"ib_": "perftest", "curl": "curl", PYTHON: "python3"}  # else rdmacm-utils

# librspreload takes over socket() and accept(), but not with SOCK_CLOEXEC, and not accept4(): Python's.
SERVE = """
import ctypes, http.server, os, socket, sys

C = ctypes.CDLL(None, use_errno=True)

class Plain(socket.socket):
    def __init__(self):
        made = C.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
        super().__init__(socket.AF_INET, socket.SOCK_STREAM, 0, made)
    def accept(self):
        taken = C.accept(self.fileno(), None, None)
        if taken < 0:
            raise OSError(ctypes.get_errno(), "accept")
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, taken), ("client", 0)

os.chdir(os.path.dirname(sys.argv[0]))
at = ("0.0.0.0", int(sys.argv[1]))
server = http.server.HTTPServer(at, http.server.SimpleHTTPRequestHandler, False)
server.socket = Plain()
server.socket.bind(at)
server.server_activate()
server.handle_request()
"""


class Shm(links.Shm):
    cm = ("10.77.0.1", "10.77.0.2")

    def around(self, side):
        prefix, options = super().around(side)
        return prefix, [*options, "--ip", f"{self.cm[side]}/24"]


class Veth(links.Veth):
    cm = ("10.9.0.1", "10.9.0.2")


def await_cm(process, end):
    """Returns a moment after the process has begun with RDMA-CM, or once it or the time is over."""
    tasks = pathlib.Path(f"/proc/{process.pid}/task")
    while process.poll() is None and time.monotonic() < end:
        for task in tasks.glob("*/comm"):
            try:
                if task.read_text(encoding="ascii").strip() == CM_THREAD:
                    return time.sleep(0.1)
            except OSError:
                pass  # that thread is over
        time.sleep(0.02)
    return None


class Runner(programs_test.Runner):
    def __init__(self, uroce, link, folder):
        super().__init__(uroce, link)
        self.folder = folder

    def words(self, command):
        filled = command.rstrip("& ").format(server=self.link.cm[0], client=self.link.cm[1],
                                             folder=self.folder)
        return shlex.split(filled)

    def run_pair(self, pair):
        """@return what went wrong, or None"""
        end = time.monotonic() + SECONDS
        self.wrapper = ["env", f"LD_PRELOAD={RSOCKETS}"] if takes_over_sockets(pair) else []
        self.link.has_large_rings = programs_test.NEEDS_EVERY_FRAME.match(pair[0]) is not None
        received = self.folder / "received"
        received.unlink(missing_ok=True)
        server = self.start(0, self.words(pair[0]))
        await_cm(server, end)
        client = self.start(1, self.words(pair[1]))
        if pair[0].endswith("&"):
            why = self.finish_first(client, server, end)
        else:
            why = self.finish_both(client, server, end, LINES)
        if why is None and "{folder}/received" in pair[1]:
            same = filecmp.cmp(self.folder / "sent", received, shallow=False)
            return None if same else wrong_data.NOT_WHAT_WAS_SENT
        return why

    def finish_first(self, client, server, end):
        """Of a server that never ends. @return what went wrong, or None"""
        is_good, said = self.finish(client, end, server)
        ends = server.poll() is not None
        server.kill()
        of_server = self.finish(server, end)[1]
        if is_good and not ends:
            return None
        return "\n".join(f"-- {name}:\n" + "\n".join(output.splitlines()[-LINES:])
                         for name, output in (("client", said), ("server", of_server)))


def missing(pair):
    """The package to install, or None."""
    for command in pair:
        program = command.split()[0]
        if shutil.which(program) is None:
            return next((PACKAGES[start] for start in PACKAGES if program.startswith(start)), "rdmacm-utils")
    return None


def takes_over_sockets(pair):
    return pair[1].startswith("curl")


def obstacle(pair):
    """Why it cannot be run, or None."""
    package = missing(pair)
    return None if package is None else f"install {package}"


def cases_of(runner, patterns):
    for pair in PLAIN + PERFTEST + RSOCKET:
        if patterns and not any(pattern in command for pattern in patterns for command in pair):
            continue
        yield " | ".join(pair), obstacle(pair), lambda now=pair: runner.run_pair(now)


def main():
    arguments = cases.arguments_of(__doc__, "--as-nobody", "--veth", "--mesh")
    ends = 4 if arguments.mesh else 2
    chosen_link = Veth() if arguments.veth else Shm(arguments.as_nobody, ends=ends)
    with tempfile.TemporaryDirectory() as name, chosen_link as link:
        folder = pathlib.Path(name)
        folder.chmod(0o777)
        (folder / "sent").write_bytes(os.urandom(3_000_000))
        (folder / "serve.py").write_text(SERVE, encoding="ascii")
        return cases.run_cases(cases_of(Runner(arguments.uroce, link, folder), arguments.patterns))


if __name__ == "__main__":
    sys.exit(main())
