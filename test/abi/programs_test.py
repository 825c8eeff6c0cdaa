#!/usr/bin/env python3
"""Stock programs of Debian, unmodified, two processes each, on the drop-in libibverbs over one link.

Usage: programs_test.py UROCE_PROGRAM [--long] [--as-nobody] [--each OPTIONS...] [PATTERN...]

Runs the cases whose command lines contain a pattern, all without one; --long adds those of all message sizes.
Prints what became of each. Programs that are not installed are skipped, with the package to install.
"""
import argparse
import os
import pathlib
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
OTHER_TYPES = tuple(
    f"ib_{what}_{how} -c {kind} -n 500" for kind in ("UC", "UD", "XRC") for what in ("send", "write")
    for how in ("lat", "bw") if (kind, what) != ("UD", "write")) + (
        "ib_read_bw -c XRC -n 500", "ib_atomic_bw -c XRC -n 500", "ib_send_bw -c UD -b -n 500")
LONG = tuple(f"ib_{what}_{how} -a -n 20" for what in ("send", "write", "read") for how in ("lat", "bw"))
PACKAGES = {"ibv_": "ibverbs-utils", "ib_": "perftest"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def await_listener(port, process):
    """Returns once somebody listens on the TCP port, or the process is over."""
    wanted = f":{port:04X} "
    while process.poll() is None:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in pathlib.Path(table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if (fields[1] + " ").endswith(wanted) and fields[3] == "0A":
                    return
        time.sleep(0.02)


class Runner:
    def __init__(self, arguments):
        self.arguments = arguments
        self.link = f"shm:programs-{os.getpid()}"
        own = {key: value for key, value in os.environ.items() if not key.startswith("UROCE_")}
        self.environment = own | ({"UROCE_RUNTIME_DIR": "/dev/shm"} if arguments.as_nobody else {})

    def start(self, words):
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        user = nobody if self.arguments.as_nobody else []
        command = [*user, self.arguments.uroce, "run", "--port", self.link, *self.arguments.each, "--",
                   *words]
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
            is_good, output = self.finish(self.start(words), end)
            return None if is_good and "uroce0" in output else output
        port = free_port()
        words += ["-p", port]
        server = self.start(words)
        await_listener(port, server)
        results = [self.finish(self.start([*words, "127.0.0.1"]), end), self.finish(server, end)]
        if all(is_good for is_good, _ in results):
            return None
        return "\n".join(f"-- {name}:\n" + "\n".join(output.splitlines()[-8:])
                         for name, (_, output) in zip(("client", "server"), results))


def chosen(arguments):
    pairs = tuple("ibv_{}_pingpong {}".format(*case.split(" ", 1)) for case in PINGPONG)
    for command in IBV + pairs + RC + VARIANTS + OTHER_TYPES + (LONG if arguments.long else ()):
        if not arguments.patterns or any(pattern in command for pattern in arguments.patterns):
            yield command


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("uroce", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--as-nobody", action="store_true")
    parser.add_argument("--each", type=shlex.split, default=[], metavar="OPTIONS",
                        help="more options of uroce run")
    parser.add_argument("patterns", nargs="*")
    arguments = parser.parse_args()
    runner = Runner(arguments)
    count = {"pass": 0, "skip": 0, "fail": 0}
    for command in chosen(arguments):
        program = command.split()[0]
        began = time.monotonic()
        why = None
        if shutil.which(program) is None:
            result = "skip"
            why = "install " + next(PACKAGES[start] for start in PACKAGES if program.startswith(start))
        else:
            why = runner.run(command, LONG_SECONDS if command in LONG else SECONDS)
            result = "pass" if why is None else "fail"
        count[result] += 1
        print(f"{result}  {time.monotonic() - began:5.1f} s  {command}{'  ' + why if why else ''}", flush=True)
    print(", ".join(f"{number} {result}" for result, number in count.items()))
    if count["fail"] != 0:
        return 1
    return 0 if count["pass"] != 0 else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
