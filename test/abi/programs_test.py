#!/usr/bin/env python3
"""Stock programs of Debian, unmodified, two processes each, on the drop-in libibverbs over one link.

Usage: programs_test.py UROCE_PROGRAM [--long] [--as-nobody] [--veth] [PATTERN...]

Runs the cases whose command lines contain a pattern, all without one; --long adds those of all message sizes.
The link is shm; with --veth, af_packet between two network namespaces, which needs root. Prints what became
of each. Programs that are not installed are skipped, with the package to install.
"""
import argparse
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time

SECONDS = 60  # for one pair
LONG_SECONDS = 240
SKIPPED = 77
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


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def await_listener(port, process):
    """Returns once somebody in its network namespace listens on the TCP port, or the process is over."""
    wanted = f":{port:04X}"
    while process.poll() is None:
        with contextlib.suppress(OSError):  # the process is over
            for table in ("tcp", "tcp6"):
                lines = pathlib.Path(f"/proc/{process.pid}/net/{table}").read_text(encoding="ascii")
                for fields in (line.split() for line in lines.splitlines()[1:]):
                    if fields[1].endswith(wanted) and fields[3] == "0A":
                        return
        time.sleep(0.02)


class Shm:
    """Two processes on one machine."""
    server = "127.0.0.1"

    def __init__(self, as_nobody, which=0):
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        self.prefix = nobody if as_nobody else []
        self.options = ["--port", f"shm:programs{which}-{os.getpid()}"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def around(self, _):
        """@return what a command at that side begins with, and options of uroce run"""
        return self.prefix, self.options


class Veth:
    """Two network namespaces joined by a pair of interfaces, which the kernel uses as well."""
    server = "192.168.9.1"

    def __init__(self, which=0):
        self.names = [f"uroce-abi{side}-{which}-{os.getpid()}" for side in (0, 1)]
        self.has_large_rings = False

    def __enter__(self):
        for name in self.names:
            self.ip("netns", "add", name)
        self.ip("link", "add", "end", "netns", self.names[0], "type", "veth", "peer", "name", "end", "netns",
                self.names[1])
        for side, name in enumerate(self.names):
            self.ip("-n", name, "link", "set", "end", "mtu", "4200", "up")
            self.ip("-n", name, "link", "set", "lo", "up")  # libfabric asks a name server of its own there
            self.ip("-n", name, "addr", "add", f"192.168.9.{1 + side}/24", "dev", "end")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    def around(self, side):
        port = "af_packet:end" + (",framecnt=4096" if self.has_large_rings else "")
        return ["ip", "netns", "exec", self.names[side]], ["--port", port, "--ip", f"10.9.0.{1 + side}/24"]


class Runner:
    def __init__(self, uroce, link):
        self.uroce = uroce
        self.link = link
        self.wrapper = []  # a program around uroce run
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("UROCE_")}

    def start(self, side, words):
        prefix, options = self.link.around(side)
        command = [*prefix, *self.wrapper, self.uroce, "run", *options, "--", *words]
        return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, env=self.environment, cwd="/")

    def finish(self, process, end):
        """@return whether it ended well; what it said"""
        try:
            output, _ = process.communicate(timeout=max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            return False, output + "\nhangs"
        return process.returncode == 0, output

    def run(self, command, seconds):
        """@return what went wrong, or None"""
        end = time.monotonic() + seconds
        words = shlex.split(command)
        if command in IBV:
            is_good, output = self.finish(self.start(0, words), end)
            return None if is_good and "uroce0" in output else output
        port = free_port()
        words += ["-p", port]
        self.link.has_large_rings = NEEDS_EVERY_FRAME.match(command) is not None
        server = self.start(0, words)
        await_listener(port, server)
        results = [self.finish(self.start(1, [*words, self.link.server]), end), self.finish(server, end)]
        if all(is_good for is_good, _ in results):
            return None
        return "\n".join(f"-- {name}:\n" + "\n".join(output.splitlines()[-8:])
                         for name, (_, output) in zip(("client", "server"), results))


def chosen(arguments):
    pairs = tuple("ibv_{}_pingpong {}".format(*case.split(" ", 1)) for case in PINGPONG)
    for command in IBV + pairs + RC + VARIANTS + OTHER_TYPES + TIMED + (LONG if arguments.long else ()):
        if not arguments.patterns or any(pattern in command for pattern in arguments.patterns):
            yield command


def arguments_of(description, *flags):
    """What the command line says: UROCE_PROGRAM, any of the flags, and patterns. Ends the program as skipped
    where they ask for what only root may do."""
    parser = argparse.ArgumentParser(description=description.split("\n", 1)[0])
    parser.add_argument("uroce", type=lambda text: pathlib.Path(text).resolve())
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    parser.add_argument("patterns", nargs="*")
    arguments = parser.parse_intermixed_args()
    if (arguments.veth or getattr(arguments, "as_nobody", False)) and os.geteuid() != 0:
        print("skipped: needs root")
        sys.exit(SKIPPED)
    return arguments


def main():
    arguments = arguments_of(__doc__, "--long", "--as-nobody", "--veth")
    with Veth() if arguments.veth else Shm(arguments.as_nobody) as link:
        return run_cases(cases_of(arguments, Runner(arguments.uroce, link)))


def tried_twice(what, run):
    """These programs have bounds of their own that a busy machine may pass: once is no failure, but told.

    @return what went wrong the second time, or None
    """
    why = run()
    if why is None:
        return None
    print(f"again  {what}  {why}", flush=True)
    return run()


def run_cases(cases):
    """Runs each, and prints what became of it. @return the exit code

    A case is its name, why it cannot run here or None, and what runs it, which returns what went wrong or
    None.
    """
    count = {"pass": 0, "skip": 0, "fail": 0}
    for name, obstacle, run in cases:
        began = time.monotonic()
        why = obstacle if obstacle is not None else tried_twice(name, run)
        result = "skip" if obstacle is not None else "pass" if why is None else "fail"
        count[result] += 1
        said = "" if why is None else "  " + why
        print(f"{result}  {time.monotonic() - began:5.1f} s  {name}{said}", flush=True)
    print(", ".join(f"{number} {result}" for result, number in count.items()))
    if count["fail"] != 0:
        return 1
    return 0 if count["pass"] != 0 else SKIPPED


def obstacle(command):
    """Why it cannot run here, or None."""
    program = command.split()[0]
    if shutil.which(program) is None:
        return "install " + next(PACKAGES[start] for start in PACKAGES if program.startswith(start))
    return None


def cases_of(arguments, runner):
    for command in chosen(arguments):
        limit = LONG_SECONDS if command in LONG else SECONDS
        yield command, obstacle(command), lambda now=command, most=limit: runner.run(now, most)


if __name__ == "__main__":
    sys.exit(main())
