"""Watches the lab's bridge: what each side sends, before any loss. Runs as a program inside the namespace.

    wire.py FILE.pcap      records until its standard input closes, then prints a summary as JSON
"""
import contextlib
import json
import select
import socket
import struct
import sys
import time
import zlib
from collections import Counter
from pathlib import Path

PORTS = {"tap0": "guest", "eng0p": "engine"}  # where a side's frames enter the bridge
ROCE_PORT = 4791
MAX_FILE_BYTES = 256 << 20
ACK, ATOMIC_ACK = 17, 18
READ_RESPONSES = range(13, 17)
READ_REQUEST = 12
CNP, CNP_UDP_BYTES = 0x81, 8 + 12 + 16 + 4
FIRST_OF_MANUFACTURERS = 0xC0
NAK_NAMES = {0: "sequence", 1: "invalid_request", 2: "remote_access", 3: "remote_operation"}


class Side:
    """What one side sent on all its RC connections."""

    def __init__(self):
        self.count = Counter()
        self.newest = {}  # destination QPN -> newest request PSN

    def note_request(self, opcode, qpn, psn):
        newest = self.newest.get(qpn)
        ahead = 1 if newest is None else (psn - newest) & 0xFFFFFF
        # A READ takes a PSN for every response packet, so the next request may be far ahead.
        if 0 < ahead < 1 << 23:
            self.newest[qpn] = psn
        else:
            self.count["retransmitted_requests"] += 1
        self.count["requests"] += 1
        self.count["read_requests"] += opcode == READ_REQUEST

    def note_ack(self, syndrome):
        kind = syndrome >> 5 & 3
        if kind == 1:
            self.count["rnr_naks"] += 1
        elif kind == 3:
            self.count["nak_" + NAK_NAMES.get(syndrome & 31, "reserved")] += 1
        else:
            self.count["acks"] += 1


def roce_parts(frame):
    """@return (IP header, UDP header and what follows) of a RoCE v2 frame, or None."""
    ethertype, = struct.unpack_from(">H", frame, 12)
    if ethertype == 0x0800 and frame[23] == 17:
        header = (frame[14] & 15) * 4
        ip = frame[14:14 + struct.unpack_from(">H", frame, 16)[0]]
    elif ethertype == 0x86DD and frame[20] == 17:
        header = 40
        ip = frame[14:14 + 40 + struct.unpack_from(">H", frame, 18)[0]]
    else:
        return None
    if len(ip) < header + 24 or struct.unpack_from(">H", ip, header + 2)[0] != ROCE_PORT:
        return None
    return ip[:header], ip[header:]


def icrc(ip, udp):
    """The invariant CRC of a packet's headers and payload: fields that routers change count as ones.
    IBA A17.3.3."""
    masked = bytearray(ip)
    if len(ip) == 40:
        masked[0] |= 0x0F
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF
    else:
        masked[1] = 0xFF
        masked[8] = 0xFF
        masked[10:12] = b"\xff\xff"
    transport = bytearray(udp)
    transport[6:8] = b"\xff\xff"
    transport[12] = 0xFF
    return struct.pack("<I", zlib.crc32(bytes(8 * [0xFF]) + masked + transport))


def cnp(frame):
    """The congestion notification that a frame's destination QP could get from the frame's sender: IBA
    A17.9.3. IPv4."""
    ip, udp = roce_parts(frame)
    header, ports = bytearray(ip), bytearray(udp[:8])
    struct.pack_into(">BHH", header, 1, 48 << 2, 20 + CNP_UDP_BYTES, 0)
    struct.pack_into(">H", header, 10, 0)
    total = sum(struct.unpack(">10H", header))
    struct.pack_into(">H", header, 10, ~(total % 0xFFFF) & 0xFFFF)
    struct.pack_into(">HH", ports, 4, CNP_UDP_BYTES, 0)
    body = bytes(ports) + bytes([CNP, 0]) + udp[10:12] + bytes(1) + udp[13:16] + bytes(4 + 16)
    return frame[:14] + header + body + icrc(header, body)


class Watcher:
    """Sorts frames by sender and keeps them in a capture file."""

    def __init__(self, path):
        self.sides = {side: Side() for side in PORTS.values()}
        self.file = open(path, "wb")
        self.file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))

    def frame(self, side, frame):
        count = self.sides[side].count
        count["frames"] += 1
        if self.file.tell() < MAX_FILE_BYTES:
            now = time.time()
            record = struct.pack("<IIII", int(now), int(now % 1 * 1e6), len(frame), len(frame))
            self.file.write(record + frame)
        if frame[12:14] == b"\x08\x06":
            count["arp"] += 1
        parts = roce_parts(frame)
        if parts:
            self._roce(self.sides[side], *parts)

    def _roce(self, side, ip, udp):
        side.count["roce"] += 1
        side.count["ecn_capable"] += (ip[1] if len(ip) != 40 else ip[1] >> 4) & 3 != 0
        if icrc(ip, udp[:-4]) != udp[-4:]:
            side.count["wrong_icrc"] += 1
            return
        bth = udp[8:20]
        opcode, qpn, psn = bth[0], int.from_bytes(bth[5:8], "big"), int.from_bytes(bth[9:12], "big")
        if opcode == ACK:
            side.note_ack(udp[20])
        elif opcode in READ_RESPONSES or opcode == ATOMIC_ACK:
            side.count["responses"] += 1
        elif opcode < 24:
            side.note_request(opcode, qpn, psn)
        side.count["cnps"] += opcode == CNP
        side.count["extensions"] += opcode >= FIRST_OF_MANUFACTURERS

    def summary(self):
        self.file.close()
        return {name: dict(side.count) for name, side in self.sides.items()}


def _open(port):
    ETH_P_ALL = 3
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)  # SO_RCVBUFFORCE
    sock.bind((port, 0))
    sock.setblocking(False)
    return sock


def _drain(sock, side, watcher):
    with contextlib.suppress(BlockingIOError):
        for _ in range(1000):
            frame, address = sock.recvfrom(65536)
            if address[2] != socket.PACKET_OUTGOING:
                watcher.frame(side, frame)


def _overruns(sock):
    """Frames the kernel could not queue for us."""
    SOL_PACKET, PACKET_STATISTICS = 263, 6
    return struct.unpack("II", sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]


def main():
    watcher = Watcher(sys.argv[1])
    sockets = {_open(port): side for port, side in PORTS.items()}
    print("watching", flush=True)
    while True:
        readable = select.select([*sockets, sys.stdin], [], [], 1)[0]
        for sock in readable:
            if sock is not sys.stdin:
                _drain(sock, sockets[sock], watcher)
        if readable == [sys.stdin]:
            break
    overruns = sum(_overruns(sock) for sock in sockets)
    print(json.dumps(watcher.summary() | {"not_recorded": overruns}))


@contextlib.contextmanager
def watch(lab, path):
    """Records what both sides send during a `with` block; fills the yielded dictionary after it."""
    import subprocess
    found = {}
    program = lab.popen(sys.executable, Path(__file__).resolve(), path, stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, text=True)
    try:
        if program.stdout.readline().strip() != "watching":
            raise OSError("cannot watch the bridge")
        try:
            yield found
        finally:
            found.update(json.loads(program.communicate(timeout=60)[0]))  # closes its standard input
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()


if __name__ == "__main__":
    main()
