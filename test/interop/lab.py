#!/usr/bin/env python3
"""A lab: kernel Soft-RoCE in a QEMU guest, on a bridge in a network namespace of its own.

    namespace uroce-lab-N
      br0   10.99.0.254, fd99::fe     the host's kernel TCP/IP, for exchanges beside RDMA
       |- tap0 -- guest: eth0 10.99.0.2, fd99::2, device rxe0
       `- eng0p = eng0                no kernel address: the port for uroce, by custom 10.99.0.1, fd99::1

Used as a module by the tests, and as a program by people: `lab.py --help`.
"""
import argparse
import contextlib
import ctypes
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import image
from agent import Channel, GuestError
from packages import Unavailable

STATES = Path("/run/uroce-interop")
GUEST_MAC = "02:99:00:00:00:02"
ENGINE_MAC = "02:99:00:00:01:01"
GUEST_IPS = ("10.99.0.2", "fd99::2")
ENGINE_IPS = ("10.99.0.1", "fd99::1")
HOST_IPS = ("10.99.0.254", "fd99::fe")
PREFIXES = (24, 64)
ROCE = "meta l4proto udp udp dport 4791"
TOOLS = {"ip": "iproute2", "nft": "nftables", "ethtool": "ethtool", "qemu-system-x86_64": "qemu-system-x86"}
OFFLOADS = "rx off tx off sg off tso off gso off gro off rxvlan off txvlan off".split()
PR_SET_PDEATHSIG = 1
ETH_P_ALL = 3
PROBES = 5  # frames
LOCAL_EXPERIMENT = b"\x88\xb5"  # EtherType that nobody listens to. IEEE 802
NICE = -10
LIBC = ctypes.CDLL(None)


class LabError(Exception):
    """The lab could not be set up or used."""


def require():
    """Raises Unavailable unless this machine and user can run a lab."""
    if os.geteuid() != 0:
        raise Unavailable("a lab needs root (network namespace, bridge, tap)")
    if not Path("/dev/net/tun").exists():
        raise Unavailable("a lab needs /dev/net/tun (modprobe tun)")
    missing = [package for tool, package in TOOLS.items() if not shutil.which(tool)]
    if missing:
        raise Unavailable(f"programs are missing: apt-get install {' '.join(missing)}")


def _call(*command, check=True, timeout=30, **options):
    words = [str(word) for word in command]
    result = subprocess.run(words, capture_output=True, text=True, timeout=timeout, **options)
    if check and result.returncode:
        raise LabError(f"{shlex.join(words)}: {(result.stderr or result.stdout).strip()}")
    return result


def _start_time(pid):
    """When a process started, which with its pid names it for good. None: no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    except (OSError, IndexError):
        return None


def _identity(pid):
    return [pid, _start_time(pid)]


def _is_alive(identity):
    return bool(identity) and identity[1] is not None and _start_time(identity[0]) == identity[1]


class Guest:
    """Commands in the lab's guest."""

    def __init__(self, channel):
        self.channel = channel

    def start(self, command, limit_s=60):
        """Starts a shell command that may run for `limit_s` seconds. @return a Job."""
        return self.channel.run(command, limit_s)

    def run(self, command, limit_s=60, check=True):
        """Runs a shell command to its end. @return its Outcome."""
        outcome = self.start(command, limit_s).wait()
        if check and not outcome.ok:
            raise GuestError(f"in the guest: {command}\n{outcome.text()}")
        return outcome

    def put(self, source, target):
        """Copies a file of the host into the guest, with its mode."""
        mode = Path(source).stat().st_mode & 0o777
        job = self.start(f"cat >{shlex.quote(target)} && chmod {mode:o} {shlex.quote(target)}")
        job.write_stdin(Path(source).read_bytes())
        outcome = job.wait()
        if not outcome.ok:
            raise GuestError(f"cannot copy {source} into the guest: {outcome.text()}")

    def wait_listening(self, port, timeout=20):
        """Blocks until a program in the guest listens on a TCP port."""
        row = f" [0-9A-F]*:{port:04X} 0*:0000 0A"
        self.run(f"until grep -q '{row}' /proc/net/tcp /proc/net/tcp6; do usleep 20000; done", timeout)

    def configure(self, mtu):
        """Sets the link MTU and makes rxe0 anew, so that its path MTU and GID table fit."""
        lines = ["rdma link delete rxe0 2>/dev/null", "set -e", "sysctl -qw net.ipv6.conf.eth0.accept_dad=0",
                 "ip link set lo up", f"ip link set eth0 mtu {mtu}",
                 "ethtool -K eth0 gro off gso off tso off || true",
                 "ip addr flush dev eth0 scope global", "ip link set eth0 up"]
        lines += [f"ip addr add {ip}/{bits} dev eth0" + (" nodad" if ":" in ip else "")
                  for ip, bits in zip(GUEST_IPS, PREFIXES)]
        self.run("\n".join(lines + ["rdma link add rxe0 type rxe netdev eth0"]))

    def kernel_log(self):
        """All lines of the kernel log, as (level, text). Lower levels are graver, 4 is a warning."""
        lines = []
        for line in self.run("dmesg -r").out.splitlines():
            level, _, text = line.partition(">")
            lines.append((int(level.lstrip("<")) & 7 if level.lstrip("<").isdigit() else 7, text))
        return lines

    def counters(self):
        """Soft-RoCE's counters of port 1."""
        out = self.run("cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep . *").out
        pairs = (line.split(":") for line in out.splitlines())
        return {name: int(value) for name, value in pairs if value.lstrip("-").isdigit()}


class Lab:
    """A namespace with a bridge, a guest and the engine's port."""

    def __init__(self, name):
        self.name = name
        self.folder = STATES / name
        self.state = {}
        self.guest = None
        self.qemu = None

    # Setting up and taking down

    @classmethod
    def create(cls, name, mtu, life_s, dies_with_us):
        """Sets a lab up; returns when the guest is ready.

        @param life_s        seconds after which the guest ends by itself
        @param dies_with_us  QEMU ends with this process, however that ends
        """
        require()
        boot = image.prepare()
        sweep()
        lab = cls(name)
        if lab.folder.exists():
            raise LabError(f"lab {name} exists already (lab.py --name {name} down)")
        lab.folder.mkdir(parents=True)
        lab._save(owner=_identity(os.getpid()), mtu=mtu)
        try:
            lab._make_network()
            lab._start_qemu(boot, life_s, dies_with_us)
            lab.connect(timeout=120)
            lab.set_mtu(mtu)
            lab._save(owner=None)
        except BaseException:
            sys.stderr.write(lab.console()[-2000:])
            lab.destroy()
            raise
        return lab

    @classmethod
    def attach(cls, name):
        """A lab that another process has set up."""
        lab = cls(name)
        try:
            lab.state = json.loads((lab.folder / "state.json").read_text())
        except OSError:
            raise LabError(f"there is no lab {name} (lab.py --name {name} up)") from None
        return lab

    def connect(self, timeout=10):
        """Opens the channel to the guest. One process at a time can have it."""
        deadline = time.monotonic() + timeout
        while True:
            if not _is_alive(self.state.get("qemu")) or (self.qemu and self.qemu.poll() is not None):
                raise LabError("QEMU has ended: " + self._read("qemu.log")[-500:])
            try:
                self.guest = Guest(Channel(self.folder / "agent", timeout=1))
                return
            except GuestError:
                if time.monotonic() > deadline:
                    raise

    def destroy(self):
        """Ends QEMU and removes namespace and state."""
        if self.guest:
            self.guest.channel.close()
        qemu = self.state.get("qemu")
        for sign in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + 5
            while _is_alive(qemu) and time.monotonic() < deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(qemu[0], sign)
                if self.qemu:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self.qemu.wait(0.2)
                else:
                    time.sleep(0.1)
        if (Path("/run/netns") / self.name).exists():
            _call("ip", "netns", "del", self.name, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def set_mtu(self, mtu):
        """Sets the MTU of every link."""
        for link in ("br0", "tap0", "eng0p", "eng0"):
            self.run("ip", "link", "set", link, "mtu", mtu)
        self.guest.configure(mtu)
        self._save(mtu=mtu)

    def console(self):
        return self._read("console.log")

    def diagnosis(self):
        """After a failure: whether the guest lives and hears us."""
        lines = ["the guest's console ends with:", self.console()[-1000:].rstrip()]
        seen = ("dmesg | tail -n 10; ip neigh; rdma resource show qp; ip -s link show eth0; "
                "grep virtio /proc/interrupts")
        try:
            lines += ["the guest says:", self.guest.run(seen, 10, check=False).text(),
                      f"{self.heard()} of {PROBES} frames reach it"]
        except (GuestError, LabError, OSError) as fault:
            lines.append(f"the guest does not answer: {fault}")
        lines.append(self.run("ip", "-s", "link", "show", "tap0", check=False).stdout.rstrip())
        return "\n".join(lines)

    def heard(self):
        """How many of PROBES frames from the engine's port reach the guest."""
        def received():
            return int(self.guest.run("cat /sys/class/net/eth0/statistics/rx_packets", 10).out)

        before = received()
        addresses = bytes.fromhex((GUEST_MAC + ENGINE_MAC).replace(":", ""))
        with self.raw_socket("eng0") as wire:
            for _ in range(PROBES):
                wire.send(addresses + LOCAL_EXPERIMENT + bytes(46))
        end = time.monotonic() + 2
        while received() - before < PROBES and time.monotonic() < end:
            time.sleep(0.1)
        return received() - before

    def _make_network(self):
        _call("ip", "netns", "add", self.name)
        self.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "link", "add", "br0", "address", "02:99:00:00:00:fe", "type", "bridge",
                 "stp_state", 0, "forward_delay", 0, "mcast_snooping", 0)
        self.run("ip", "tuntap", "add", "tap0", "mode", "tap")
        self.run("ip", "link", "add", "eng0", "address", ENGINE_MAC, "type", "veth", "peer", "name", "eng0p")
        for link in ("tap0", "eng0p"):
            self.run("ip", "link", "set", link, "master", "br0")
        for link in ("br0", "tap0", "eng0p", "eng0"):
            self.run("ethtool", "-K", link, *OFFLOADS, check=False)
            self.run("ip", "link", "set", link, "up")
        self.run("sysctl", "-qw", "net.ipv6.conf.br0.accept_dad=0", "net.ipv6.conf.br0.disable_ipv6=0",
                 "net.ipv6.conf.br0.router_solicitations=0")  # the guest hears what tests send, no more
        for ip, bits in zip(HOST_IPS, PREFIXES):
            self.run("ip", "addr", "add", f"{ip}/{bits}", "dev", "br0")

    def _qemu_command(self, boot, life_s):
        kernel_line = f"console=ttyS0 loglevel=4 panic=-1 net.ifnames=0 mitigations=off uroce_life={life_s}"
        return ["qemu-system-x86_64", *_accelerator(), "-machine", "q35", "-m", "512", "-smp", "1",
                "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                "-kernel", str(boot.kernel), "-initrd", str(boot.initrd), "-append", kernel_line,
                "-chardev", f"file,id=console,path={self.folder}/console.log", "-serial", "chardev:console",
                "-netdev", "tap,id=net,ifname=tap0,script=no,downscript=no,vhost=off",
                "-device", _virtio_net(), "-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
                "-chardev", f"socket,id=agent,path={self.folder}/agent,server=on,wait=off",
                "-device", "virtserialport,chardev=agent,name=uroce.agent"]

    def _start_qemu(self, boot, life_s, dies_with_us):
        command = ["ip", "netns", "exec", self.name, *self._qemu_command(boot, life_s)]

        def before_exec():
            signal.alarm(life_s + 60)  # outlives exec: the last bound of its life
            _take_precedence(dies_with_us)

        with open(self.folder / "qemu.log", "wb") as log:
            self.qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                         preexec_fn=before_exec)
        self._save(qemu=_identity(self.qemu.pid))

    # Using it

    def run(self, *command, check=True, timeout=30, **options):
        """Runs a program in the namespace."""
        return _call("ip", "netns", "exec", self.name, *command, check=check, timeout=timeout, **options)

    def popen(self, *command, **options):
        """Starts a program in the namespace; it ends with this process."""
        return subprocess.Popen(["ip", "netns", "exec", self.name, *map(str, command)],
                                preexec_fn=lambda: _take_precedence(True), **options)

    def raw_socket(self, link):
        """A packet socket on one of the namespace's links."""
        made = []

        def open_there():  # a namespace belongs to a thread
            with open(f"/run/netns/{self.name}", "rb") as namespace:
                if LIBC.setns(namespace.fileno(), 0):
                    return
            made.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)))
            made[0].bind((link, 0))

        thread = threading.Thread(target=open_there)
        thread.start()
        thread.join()
        if not made:
            raise LabError(f"cannot open a packet socket on {link}")
        return made[0]

    def wait_listening(self, program, port, timeout=20):
        """Blocks until somebody in the namespace listens on a TCP port, or `program` has ended."""
        deadline = time.monotonic() + timeout
        while program.poll() is None:
            for table in ("tcp", "tcp6"):
                rows = Path(f"/proc/{program.pid}/net/{table}").read_text().splitlines()
                if any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in map(str.split, rows)):
                    return
            if time.monotonic() > deadline:
                raise LabError(f"nobody listens on port {port} after {timeout} s")
            time.sleep(0.02)
        raise LabError(f"the program has ended with exit code {program.returncode} before it listened")

    def lose(self, to_guest=0.0, to_engine=0.0, match=ROCE, marked=0.0):
        """Drops matching frames on the bridge at random, as shares of 1. Replaces what was set before.

        @param marked  share of the frames, both ways, that get congestion marks (ECN), as a switch gives them
        """
        def at_random(port, share, match=match):
            return f'iifname "{port}" {match} numgen random mod 10000 < {round(share * 10000)} counter'

        rules = [f"{at_random(port, marked, f'ether type {family} {ROCE}')} {family} ecn set ce"
                 for port in ("eng0p", "tap0") for family in ("ip", "ip6") if marked > 0]
        rules += [f"{at_random(port, share)} drop"
                  for port, share in (("eng0p", to_guest), ("tap0", to_engine)) if share > 0]
        self.put_rules(rules)

    def put_rules(self, rules):
        """Puts nft rules into the bridge's forwarding path."""
        body = "\n".join(rules)
        self.run("nft", "-f", "-", input=f"""
            table bridge fault
            delete table bridge fault
            table bridge fault {{
              chain forward {{
                type filter hook forward priority 0; policy accept;
                {body}
              }}
            }}
            """)

    def dropped(self):
        """Frames dropped so far, by the port they came in on."""
        return self._counted("drop")

    def marked(self):
        """Likewise those that got marks."""
        return self._counted("ecn")

    def _counted(self, action):
        counts = {"eng0p": 0, "tap0": 0}
        listing = self.run("nft", "list", "chain", "bridge", "fault", "forward", check=False).stdout
        for line in listing.splitlines():
            words = line.split()
            if "counter" in words and "iifname" in words and action in words:
                port = words[words.index("iifname") + 1].strip('"')
                counts[port] = counts.get(port, 0) + int(words[words.index("counter") + 2])
        return counts

    def heal(self):
        self.put_rules([])

    def _save(self, **changes):
        self.state.update(changes)
        unfinished = self.folder / "state.tmp"
        unfinished.write_text(json.dumps(self.state))
        unfinished.replace(self.folder / "state.json")

    def _read(self, name):
        with contextlib.suppress(OSError):
            return (self.folder / name).read_text(errors="replace")
        return ""


def _take_precedence(dies_with_us):
    """For a child before exec: on a busy machine both peers must run, or their timers run out."""
    os.setsid()  # the kernel may share processors out by session first
    with contextlib.suppress(OSError):
        os.nice(NICE)
        Path("/proc/self/autogroup").write_text(str(NICE))
    if dies_with_us:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _accelerator():
    """Plain emulation, which works everywhere; UROCE_INTEROP_ACCEL=kvm asks for KVM."""
    if os.environ.get("UROCE_INTEROP_ACCEL") == "kvm":
        return ["-accel", "kvm", "-cpu", "host"]
    return ["-accel", "tcg", "-cpu", "max"]


def _virtio_net():
    features = ["mq", "csum", "gso", "host_tso4", "host_tso6", "host_ufo", "host_ecn"]
    features += [f"guest_{name}" for name in ("csum", "tso4", "tso6", "ufo", "ecn")]
    return ",".join(["virtio-net-pci,netdev=net,romfile=,speed=10000,duplex=full,host_mtu=9000",
                     "rx_queue_size=1024", f"mac={GUEST_MAC}", *(f"{feature}=off" for feature in features)])


def sweep():
    """Removes what labs left behind whose processes are gone."""
    for folder in STATES.glob("*"):
        with contextlib.suppress(OSError, ValueError, LabError):
            state = json.loads((folder / "state.json").read_text())
            if not _is_alive(state.get("owner")) and not _is_alive(state.get("qemu")):
                Lab.attach(folder.name).destroy()


@contextlib.contextmanager
def lab(mtu=4200, life_s=1800):
    """A lab for the length of a `with` block, under a name of its own. SIGTERM ends the block too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    made = Lab.create(f"uroce-lab-{os.getpid()}", mtu, life_s, dies_with_us=True)
    try:
        yield made
    finally:
        made.destroy()


# The program

def _exec(used, arguments):
    used.connect()
    outcome = used.guest.run(_shell_text(arguments.command), arguments.limit, check=False)
    sys.stdout.write(outcome.out)
    sys.stderr.write(outcome.err)
    return 124 if outcome.limit_passed else outcome.code


def _host(used, arguments):
    return subprocess.run(["ip", "netns", "exec", used.name, "sh", "-c", _shell_text(arguments.command)],
                          timeout=arguments.limit).returncode


def _put(used, arguments):
    used.connect()
    used.guest.put(arguments.source, arguments.target)


def _mtu(used, arguments):
    used.connect()
    used.set_mtu(arguments.mtu)


def _lose(used, arguments):
    used.lose(arguments.to_guest / 100, arguments.to_engine / 100)


def _status(used, _):
    print(f"{used.name}: QEMU {'alive' if _is_alive(used.state.get('qemu')) else 'gone'}, "
          f"mtu {used.state['mtu']}, dropped {used.dropped()}")


def _shell_text(words):
    return words[0] if len(words) == 1 else shlex.join(words)


def _parser():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="uroce-lab", help="namespace, and name of the lab")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="set the lab up")
    up.add_argument("--mtu", type=int, default=4200, help="link MTU; 4200 allows path MTU 4096")
    up.add_argument("--life", type=int, default=3600, help="seconds after which the guest ends by itself")
    for verb, what in (("exec", "the guest"), ("host", "the namespace")):
        command = verbs.add_parser(verb, help=f"run a shell command in {what}")
        command.add_argument("-t", dest="limit", type=int, default=60, help="time limit in seconds")
        command.add_argument("command", nargs="+")
    put = verbs.add_parser("put", help="copy a file into the guest")
    put.add_argument("source")
    put.add_argument("target")
    verbs.add_parser("mtu", help="change the link MTU").add_argument("mtu", type=int)
    lose = verbs.add_parser("lose", help="lose RoCE frames on the bridge, in percent")
    lose.add_argument("to_guest", type=float)
    lose.add_argument("to_engine", type=float)
    verbs.add_parser("status")
    verbs.add_parser("down", help="take the lab down")
    return parser


def main():
    arguments = _parser().parse_args()
    if arguments.verb == "up":
        started = time.monotonic()
        Lab.create(arguments.name, arguments.mtu, arguments.life, dies_with_us=False)
        print(f"lab {arguments.name} is up after {time.monotonic() - started:.1f} s")
        return 0
    used = Lab.attach(arguments.name)
    if arguments.verb == "down":
        return used.destroy()
    verbs = {"exec": _exec, "host": _host, "put": _put, "mtu": _mtu, "lose": _lose, "status": _status}
    return verbs[arguments.verb](used, arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Unavailable as reason:
        print(f"lab: not possible here: {reason}", file=sys.stderr)
        sys.exit(77)
    except (LabError, GuestError, OSError, subprocess.SubprocessError) as failure:
        print(f"lab: {failure}", file=sys.stderr)
        sys.exit(125)
