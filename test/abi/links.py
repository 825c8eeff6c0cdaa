"""What joins two programs: shared memory, or two network namespaces. Nothing of it outlives the test."""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys

PATIENCE = 10  # seconds that a killed process may hold its output
NAMESPACE = "uroce-abi"
NAMESPACES = pathlib.Path("/run/netns")


def leave_on_sigterm():
    """Ends this program so that its context managers run: tests whose time is over are sent SIGTERM."""
    def leave(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + signal.SIGTERM)
    signal.signal(signal.SIGTERM, leave)


def end(process):
    """Kills what Link.start() gave, with all that it has started. @return what it said"""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired as held:  # by a process that has left the group
        process.stdout.close()
        return (held.output or b"").decode(errors="replace")
    return output or ""


class Link:
    """Programs are started at its ends, and end with it."""

    def __init__(self):
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        alive = [process for process in self.running if process.returncode is None]
        for process in alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in alive:
            end(process)

    def start(self, words, **more):
        """A process in a session of its own, whose output is a pipe."""
        process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, errors="replace", start_new_session=True, **more)
        self.running = [other for other in self.running if other.returncode is None] + [process]
        return process


class Shm(Link):
    """Two processes on one machine, at a link of two ends or more."""
    server = "127.0.0.1"

    def __init__(self, as_nobody, which=0, ends=2):
        super().__init__()
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        self.prefix = nobody if as_nobody else []
        self.ends = ends
        self.options = ["--port", f"shm:programs{which}-{os.getpid()},ends={ends}"]

    def around(self, _):
        """@return what a command at that side begins with, and options of uroce run"""
        return self.prefix, self.options


class Veth(Link):
    """Two network namespaces joined by a pair of interfaces, which the kernel uses as well."""
    server = "192.168.9.1"

    def __init__(self, which=0):
        super().__init__()
        self.names = [f"{NAMESPACE}{side}-{which}-{os.getpid()}" for side in (0, 1)]
        self.has_large_rings = False
        self.made = contextlib.ExitStack()

    def __enter__(self):
        sweep()
        with contextlib.ExitStack() as made:
            self.make(made)
            self.made = made.pop_all()
        return self

    def make(self, made):
        for name in self.names:
            made.callback(remove, name)
            self.ip("netns", "add", name)
        self.ip("link", "add", "end", "netns", self.names[0], "type", "veth", "peer", "name", "end", "netns",
                self.names[1])
        for side, name in enumerate(self.names):
            self.ip("-n", name, "link", "set", "end", "mtu", "4200", "up")
            self.ip("-n", name, "link", "set", "lo", "up")  # libfabric asks a name server of its own there
            self.ip("-n", name, "addr", "add", f"192.168.9.{1 + side}/24", "dev", "end")

    def __exit__(self, *what):
        with self.made:
            super().__exit__(*what)

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    def around(self, side):
        port = "af_packet:end" + (",framecnt=4096" if self.has_large_rings else "")
        return ["ip", "netns", "exec", self.names[side]], ["--port", port, "--ip", f"10.9.0.{1 + side}/24"]


def remove(name):
    """A network namespace, and who is left in it."""
    found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    for pid in map(int, found.stdout.split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def sweep():
    """Removes the namespaces of programs that were killed before they could."""
    for path in NAMESPACES.glob(f"{NAMESPACE}*"):
        owner = path.name.rpartition("-")[2]
        if owner.isdigit() and not pathlib.Path("/proc", owner).exists():
            remove(path.name)
