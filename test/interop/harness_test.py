#!/usr/bin/env python3
"""Tests the lab itself with nothing but stock tools: the guest, its channel, the wire and its faults."""
import os
import pathlib
import socket
import struct
import tempfile
import time

from agent import Channel, GuestError
from lab import ENGINE_IPS, ENGINE_MAC, GUEST_IPS, GUEST_MAC, lab
from report import main, require, require_equal


def mac_bytes(text):
    return bytes.fromhex(text.replace(":", ""))


def device_has_its_addresses(used, mtu, active_mtu):
    used.set_mtu(mtu)
    info = used.guest.run("ibv_devinfo -v -d rxe0").out
    require("PORT_ACTIVE" in info, info)
    require(f"active_mtu:\t\t{active_mtu} " in info, info)
    for entry in ("GID[  0]:\t\tfe80::99:ff:fe00:2", "GID[  1]:\t\t::ffff:10.99.0.2", "GID[  2]:\t\tfd99::2"):
        require(entry in info, f"no {entry} in\n{info}")


def commands_report_their_end(used):
    guest = used.guest
    outcome = guest.run("echo out; echo err >&2; exit 7", check=False)
    require_equal((outcome.code, outcome.out, outcome.err), (7, "out\n", "err\n"), "the outcome")
    require_equal(guest.run("kill -9 $$", check=False).code, 137, "the code of a killed command")
    started = time.monotonic()
    outcome = guest.run("sleep 60", 1, check=False)
    require(outcome.limit_passed and time.monotonic() - started < 10, "the time limit is not kept")
    jobs = [guest.start(f"sleep 1; echo {i}") for i in range(16)]
    outputs = [job.wait().out for job in jobs]
    require_equal(outputs, [f"{i}\n" for i in range(16)], "what came from 16 at once")


def files_arrive_whole(used, folder):
    source = folder / "random"
    source.write_bytes(os.urandom(3 << 20))
    used.guest.put(source, "/tmp/random")
    local = used.run("sha256sum", source).stdout.split()[0]
    require_equal(used.guest.run("sha256sum /tmp/random").out.split()[0], local, "the file's digest")


def channel_survives_a_cut(used):
    """A host that goes away amid a frame leaves nothing behind for the next one."""
    channel = used.guest.channel
    job = used.guest.start("sleep 50; echo too late")
    channel.socket.sendall(b"R" + struct.pack("<II", 99, 5000) + b"cut")
    channel.close()
    try:
        job.wait()
        raise AssertionError("a job outlives its channel")
    except GuestError:
        pass
    used.guest.channel = Channel(used.folder / "agent", timeout=10)
    require_equal(used.guest.run("pidof sleep | wc -w").out, "1\n", "the number of sleepers (init has one)")


def next_frame(sock, wanted, seconds):
    """The next frame for which wanted(frame) holds, or None."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            frame = sock.recv(65536)
        except TimeoutError:
            return None
        if wanted(frame):
            return frame
    return None


def guest_is_reached_by_arp_and_ping(used):
    """Acts as the engine: answers the guest's ARP request, then gets its ping."""
    sock = used.raw_socket("eng0")
    ping = used.guest.start(f"ping -c 3 -W 5 {ENGINE_IPS[0]}", 20)
    request = next_frame(sock, lambda f: f[12:14] == b"\x08\x06" and f[20:22] == b"\0\1", 10)
    require(request, "no ARP request reaches eng0")
    require_equal(socket.inet_ntoa(request[38:42]), ENGINE_IPS[0], "the address asked for")
    guest, engine = mac_bytes(GUEST_MAC), mac_bytes(ENGINE_MAC)
    reply = request[12:20] + b"\0\2" + engine + request[38:42] + guest + request[28:32] + bytes(18)
    sock.send(guest + engine + reply)
    echo = next_frame(sock, lambda f: f[12:14] == b"\x08\0" and f[23] == 1, 10)
    require(echo, "no ICMP echo reaches eng0")
    require_equal(echo[:12], engine + guest, "the MAC addresses")
    ping.kill()
    ping.wait()


def neighbour_solicitation_reaches_the_port(used):
    sock = used.raw_socket("eng0")
    ping = used.guest.start(f"ping -6 -c 1 -W 3 {ENGINE_IPS[1]}", 20)
    require(next_frame(sock, lambda f: f[12:14] == b"\x86\xdd" and f[20] == 58 and f[54] == 135, 10),
            "no neighbour solicitation reaches eng0")
    ping.kill()
    ping.wait()


def loss_is_counted_and_real(used):
    """Frames to the guest: sent = dropped on the bridge + received."""
    sock = used.raw_socket("eng0")
    payload = b"frame for nobody".ljust(64)
    udp = struct.pack(">HHHH", 0xC000, 4791, 8 + len(payload), 0)
    ip = bytearray(struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 1, 0, 64, 17, 0,
                               socket.inet_aton(ENGINE_IPS[0]), socket.inet_aton(GUEST_IPS[0])))
    total = sum(struct.unpack(">10H", ip))
    ip[10:12] = struct.pack(">H", 0xFFFF - (total % 0xFFFF))
    frame = mac_bytes(GUEST_MAC) + mac_bytes(ENGINE_MAC) + b"\x08\0" + ip + udp + payload

    def received():
        return int(used.guest.run("cat /sys/class/net/eth0/statistics/rx_packets").out)

    before = received()
    used.lose(to_guest=0.2)
    for i in range(1000):
        sock.send(frame)
        if i % 50 == 0:
            time.sleep(0.02)
    dropped = arrived = 0
    end = time.monotonic() + 10
    while arrived + dropped < 1000 and time.monotonic() < end:
        dropped, arrived = used.dropped()["eng0p"], received() - before
    used.heal()
    require(120 <= dropped <= 280, f"{dropped} of 1000 frames dropped at 20 %")
    require(0 <= arrived + dropped - 1000 < 10, f"{arrived} arrived, {dropped} dropped")
    return f"{dropped} of 1000 frames dropped at 20 %"


def diagnosis_tells_a_deaf_guest(used):
    require("5 of 5 frames reach it" in used.diagnosis(), used.diagnosis())
    used.put_rules(['iifname "eng0p" drop'])
    told = used.diagnosis()
    used.heal()
    require("0 of 5 frames reach it" in told, told)


def run(_, report):
    with lab() as used, tempfile.TemporaryDirectory() as folder:
        report.diagnosis = used.diagnosis
        for link, path in ((1500, 1024), (4200, 4096)):
            report.case(f"Soft-RoCE has its addresses and path MTU {path} on a link of {link}",
                        device_has_its_addresses, used, link, path)
        for name, test, *more in (
                ("commands in the guest report output, exit code and time limit", commands_report_their_end),
                ("files arrive in the guest whole", files_arrive_whole, pathlib.Path(folder)),
                ("the channel survives a host that went away amid a frame", channel_survives_a_cut),
                ("ARP and ping reach the engine's port", guest_is_reached_by_arp_and_ping),
                ("neighbour solicitation reaches the engine's port", neighbour_solicitation_reaches_the_port),
                ("loss on the bridge is real and counted", loss_is_counted_and_real),
                ("a guest that hears nothing is told from others", diagnosis_tells_a_deaf_guest)):
            report.case(name, test, used, *more)


if __name__ == "__main__":
    main(run, __doc__)
