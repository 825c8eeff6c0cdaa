#!/usr/bin/env python3
"""A stock program is killed in the middle of its work: who that concerns, and whom it does not.

Usage: kill_test.py UROCE_PROGRAM [--veth] [PATTERN...]

The other end must end with an error of its own in bounded time, a pair of programs on another link must
go on, and a server that outlives its clients must serve the next one. The links are shm; with --veth,
af_packet between network namespaces, which needs root.
"""
import json
import shlex
import shutil
import subprocess
import sys
import time

import cases
import cm_programs_test
import links
import programs_test
import tcp_ports

SECONDS = 90  # for one case
BOUND = 30  # seconds that the other end may take to know; the keepalive of the drop-in is 10
WORK = 100  # requests of the client before one of the two is killed
# Without -R only ends that have requests in flight can know, or that have a TCP connection besides.
ENDLESS = ("ib_send_lat -R -D 600", "ib_send_lat -R -e -n 5000000", "ib_write_bw -D 600",
           "ib_read_lat -D 600")
BESIDE = "ib_write_bw -D 600"
SERVED = "rping -s -P"
CLIENTS = ("rping -c -a {server} -C 1000000000", "rping -c -a {server} -C 10 -V")


def make_link(is_veth, which):
    return cm_programs_test.Veth(which) if is_veth else cm_programs_test.Shm(False, which)


def requests_of(uroce, client):
    """How many it has begun by now."""
    words = list(map(str, [uroce, "stat", client.pid, "--json", "--interval-ms", 200]))
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    devices = json.loads(told.stdout)["devices"] if told.returncode == 0 else []
    counters = (device["counters"].get("requester_messages", {"total": 0}) for device in devices)
    return max((counter["total"] for counter in counters), default=0)


def await_work(uroce, client, end, since=0):
    """@return true once the client has begun WORK requests more; false if it or the time is over before"""
    while client.poll() is None and time.monotonic() < end:
        if requests_of(uroce, client) >= since + WORK:
            return client.poll() is None
    return False


class Pair:
    """A server and its client at the two ends of a link."""

    def __init__(self, runner, command):
        self.runner = runner
        with tcp_ports.reserved() as port:
            words = [*shlex.split(command), "-p", port]
            self.server = runner.start(0, words)
            if "-R" in words:
                cm_programs_test.await_cm(self.server, time.monotonic() + BOUND)
            else:
                programs_test.await_listener(port, self.server, time.monotonic() + BOUND)
        self.client = runner.start(1, [*words, runner.link.cm[0] if "-R" in words else runner.link.server])

    def survivor_of(self, side, seconds):
        """Kills one end. @return what went wrong with the other, or None"""
        killed, other = (self.client, self.server) if side == "client" else (self.server, self.client)
        if killed.poll() is not None:
            return f"the {side} is over before it is killed:\n" + self.runner.finish(killed, 0)[1]
        killed.kill()
        began = time.monotonic()
        good, output = self.runner.finish(other, began + seconds)
        self.runner.finish(killed, began + seconds)
        if good or cases.HANG.search(output) or cases.CRASH.search(output):
            return f"after the {side} was killed, the other end says:\n{output}"
        return None

    def await_work(self, since=0):
        """@return what kept it from its work, or None"""
        if await_work(self.runner.uroce, self.client, time.monotonic() + BOUND, since):
            return None
        return "no work is seen:\n" + "\n".join(
            links.end(process) if process.poll() is None else self.runner.finish(process, 0)[1]
            for process in (self.client, self.server))


def kill_one_of_two(uroce, is_veth, command, side):
    """@return what went wrong, or None"""
    with make_link(is_veth, 0) as first, make_link(is_veth, 1) as second:
        pair = Pair(programs_test.Runner(uroce, first), command)
        beside = Pair(programs_test.Runner(uroce, second), BESIDE)
        idle = pair.await_work() or beside.await_work()
        if idle is not None:
            return idle
        wrong = [pair.survivor_of(side, BOUND), beside.await_work(requests_of(uroce, beside.client))]
    return "\n".join(filter(None, wrong)) or None


def serve_the_next(uroce, is_veth):
    """@return what went wrong, or None"""
    end = time.monotonic() + SECONDS
    with make_link(is_veth, 0) as link:
        runner = programs_test.Runner(uroce, link)
        server = runner.start(0, shlex.split(SERVED))
        cm_programs_test.await_cm(server, end)
        first, second = (shlex.split(client.format(server=link.cm[0])) for client in CLIENTS)
        killed = runner.start(1, first)
        was_at_work = await_work(uroce, killed, time.monotonic() + BOUND)
        killed.kill()
        said = runner.finish(killed, end)[1]
        good, output = runner.finish(runner.start(1, second), end)
        server.kill()
        of_server = runner.finish(server, end)[1]
    if was_at_work and good:
        return None
    return f"-- killed:\n{said}\n-- next:\n{output}\n-- server:\n{of_server}"


def all_cases(arguments):
    for command in ENDLESS:
        for side in ("client", "server"):
            yield (f"{command}: its {side} is killed, {BESIDE} on another link",
                   lambda now=command, end=side: kill_one_of_two(arguments.uroce, arguments.veth, now, end))
    yield (f"{SERVED}: a client is killed, then another one comes",
           lambda: serve_the_next(arguments.uroce, arguments.veth))


def obstacle(name):
    """Why it cannot run here, or None."""
    if not name.startswith("rping"):
        return programs_test.obstacle(name)
    return None if shutil.which("rping") else "install rdmacm-utils"


def chosen(arguments):
    for name, run in all_cases(arguments):
        if not arguments.patterns or any(pattern in name for pattern in arguments.patterns):
            yield name, obstacle(name), run


def main():
    arguments = cases.arguments_of(__doc__, "--veth")
    return cases.run_cases(chosen(arguments))


if __name__ == "__main__":
    sys.exit(main())
