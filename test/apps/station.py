#!/usr/bin/env python3
"""Asks an address for its Ethernet address and pings it; prints "answered" or "silent".

Usage: station.py ping ADDRESS               through the kernel's IP stack; root
       station.py INTERFACE TAG OWN ADDRESS  frame by frame, in VLAN TAG (0: none); root
"""
import socket
import struct
import sys
import time

MAC = bytes.fromhex("020000000501")
SOL_PACKET, PACKET_AUXDATA = 263, 8
ETH_P_ALL, ETH_P_IP, ETH_P_ARP, ETH_P_8021Q = 3, 0x0800, 0x0806, 0x8100
PRIORITY = 3 << 13
TRIES, PATIENCE = 10, 0.2  # s


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def echo_request():
    echo = struct.pack("!BBHHH", 8, 0, 0, 7, 1) + bytes(56)
    return echo[:2] + struct.pack("!H", checksum(echo)) + echo[4:]


def ping_through_kernel(address):
    station = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    station.settimeout(PATIENCE)
    for _ in range(TRIES):
        try:
            station.sendto(echo_request(), (address, 0))
            packet, (sender, _) = station.recvfrom(2048)
        except OSError:
            continue
        if sender == address and packet[20] == 0:
            return True
    return False


class Station:
    def __init__(self, interface, tag):
        self.tag = tag
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.bind((interface, 0))
        self.socket.settimeout(PATIENCE)
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)  # the kernel puts the tag there

    def ask(self, to, ethertype, packet, is_answer):
        """Sends until a frame comes back in the same VLAN for which `is_answer`; None if none does."""
        tag = struct.pack("!HH", ETH_P_8021Q, PRIORITY | self.tag) if self.tag else b""
        for _ in range(TRIES):
            self.socket.send(to + MAC + tag + struct.pack("!H", ethertype) + packet)
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                try:
                    frame, auxiliary, _, _ = self.socket.recvmsg(2048, 256)
                except TimeoutError:
                    break
                seen = next((struct.unpack("=IIIHHHH", data)[5] & 0xfff for _, _, data in auxiliary), 0)
                if frame[:6] == MAC and seen == self.tag and is_answer(frame[12:]):
                    return frame
        return None

    def ping(self, own, address):
        arp = struct.pack("!HHBBH6s4s6s4s", 1, ETH_P_IP, 6, 4, 1, MAC, own, bytes(6), address)
        found = self.ask(b"\xff" * 6, ETH_P_ARP, arp, lambda f: f[:2] == b"\x08\x06" and f[8:10] == b"\0\2")
        if found is None:
            return False
        echo = echo_request()
        ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(echo), 0, 0, 64, 1, 0, own, address)
        ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
        is_reply = lambda f: f[:3] == b"\x08\0\x45" and f[22:24] == b"\0\0"  # IPv4, ICMP type and code
        return self.ask(found[6:12], ETH_P_IP, ip + echo, is_reply) is not None


if __name__ == "__main__":
    if sys.argv[1] == "ping":
        answered = ping_through_kernel(sys.argv[2])
    else:
        own_ip, peer_ip = (socket.inet_aton(text) for text in sys.argv[3:5])
        answered = Station(sys.argv[1], int(sys.argv[2])).ping(own_ip, peer_ip)
    print("answered" if answered else "silent")
