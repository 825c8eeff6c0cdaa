#!/usr/bin/env python3
"""`uroce ping` between two processes.

Usage: ping_test.py UROCE_PROGRAM
"""
import fcntl
import json
import pathlib
import re
import select
import signal
import struct
import sys
import termios
import time
import unittest

from cli_test import NOT_FOUND, PEER, SECONDS, TIMEOUT, USAGE, Case, await_requests, started, uroce

SERVER, CLIENT = "10.5.0.1", "10.5.0.2"
PATIENT = ["--keepalive-ms", 3000]  # a busy machine may stop a program for longer than usual


def await_full_pipe(process):
    """Returns once it waits for somebody to read what it prints."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        space = fcntl.fcntl(process.stdout, fcntl.F_GETPIPE_SZ)
        used = struct.unpack("i", fcntl.ioctl(process.stdout, termios.FIONREAD, bytes(4)))[0]
        state = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        if space - used < select.PIPE_BUF and state == "S":
            return
        time.sleep(0.02)
    raise AssertionError("it does not wait")


def await_taken_signal(process):
    """Returns once the one that it was sent is no longer pending, nor the call that it came in."""
    end = time.monotonic() + SECONDS
    status = pathlib.Path(f"/proc/{process.pid}/status")
    while time.monotonic() < end:
        if re.search(r"(?m)^ShdPnd:\s*0+$", status.read_text()):
            return
        time.sleep(0.02)
    raise AssertionError("it does not take the signal")


class Ping(Case):
    def words(self, address, *more):
        return ["ping", "--port", self.link, "--ip", f"{address}/24", "--no-huge", *PATIENT, *more]

    def serve(self, *more):
        return started(*self.words(SERVER, "-s", *more))

    def ask(self, *more):
        return uroce(*self.words(CLIENT, *more))

    def assert_served(self, server, said):
        out, err = server.communicate(timeout=SECONDS)
        self.assertEqual(server.returncode, 0, err)
        self.assertIn(said, out)
        return out

    def test_data_go_there_and_back(self):
        for size, count, mode in ((26, 5, "app"), (64, 300, "app"), (65535, 20, "app"), (4096, 100, "auto"),
                                  (64, 100, "lcore")):
            with self.subTest(size=size, mode=mode), self.serve("--mode", mode) as server:
                server.stdout.readline()
                client = self.ask("-c", "-a", SERVER, "-C", count, "-S", size, "-V", "--json", "--mode", mode)
                self.assertEqual(client.returncode, 0, client.stderr)
                result = json.loads(client.stdout)
                self.assertEqual((result["bytes"], result["round_trips"]), (size, count))
                self.assertEqual((result["verified"], result["data_errors"]), (True, 0))
                self.assertTrue(0 < result["min_us"] <= result["p50_us"] <= result["max_us"], result)
                self.assertEqual(result["p99_us"] is not None, count >= 100)
                self.assert_served(server, f"{count} round trips with {CLIENT}:")

    def test_an_address_is_enough(self):
        with started("ping", "-s", "--port", self.link, "--no-huge", *PATIENT) as server:
            address = server.stdout.readline().split()[-1].rstrip(")")  # "... (uroce ping ADDRESS)"
            client = uroce("ping", "--port", self.link, "--no-huge", *PATIENT, "-C", 3, address)
            self.assertEqual(client.returncode, 0, client.stderr)
            self.assertIn(f"3 round trips of 64 bytes with {address}:7174: min ", client.stdout)
            self.assert_served(server, "3 round trips")

    def test_both_sides_print_rpings_text(self):
        with self.serve("-v", "-p", 7175) as server:
            server.stdout.readline()
            client = self.ask("-C", 2, "-S", 40, "-v", "-d", "-p", 7175, SERVER)
            texts = ["rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ", "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ["]
            self.assertEqual(client.stdout.splitlines()[:2], [f"ping data: {text}" for text in texts])
            self.assertIn("ping: round 1:", client.stderr)
            out = self.assert_served(server, "2 round trips")
            self.assertEqual(out.splitlines()[:2], [f"server ping data: {text}" for text in texts])

    def test_a_persistent_server_serves_one_after_the_other(self):
        with self.serve("-P", "--json") as server:
            for count in (1, 2):
                # The server does not tell when it listens, as that is no JSON.
                client = self.ask("-C", count, "--give-up-ms", 20000, SERVER)
                self.assertEqual(client.returncode, 0, client.stderr)
                self.assertEqual(json.loads(server.stdout.readline())["round_trips"], count)
            server.send_signal(signal.SIGINT)
            self.assert_served(server, "")

    def test_a_stopped_client_tells_what_it_saw(self):
        with self.serve() as server:
            server.stdout.readline()
            with started(*self.words(CLIENT, "-v", SERVER)) as client:
                client.stdout.readline()
                await_full_pipe(client)
                client.send_signal(signal.SIGINT)
                await_taken_signal(client)
                out, err = client.communicate(timeout=SECONDS)
                self.assertEqual(client.returncode, 0, err)
                self.assertRegex(out, rf"(?m)^[1-9]\d* round trips of 64 bytes with {SERVER}:")
            self.assert_served(server, "round trips")

    def test_nobody_listens(self):
        with self.serve("-p", 7175) as server:
            self.assertIn(f"(uroce ping -p 7175 {SERVER})", server.stdout.readline())
            begin = time.monotonic()
            client = self.ask("--give-up-ms", 2400, SERVER)
            self.assert_fails(client, PEER, "nobody listens", f"{SERVER}:7174")
            self.assertGreater(time.monotonic() - begin, 1.5)  # it may be about to

    def test_nobody_answers(self):
        client = self.ask("--give-up-ms", 300, SERVER)
        self.assert_fails(client, TIMEOUT, f"nobody answers for the Ethernet address of {SERVER}")
        self.assertNotIn("ping -s", client.stderr)
        client = self.ask("--give-up-ms", 300, "10.6.0.1")
        self.assert_fails(client, TIMEOUT, "10.6.0.1 is in no prefix", "--gateway")

    def test_addresses_that_do_not_fit(self):
        self.assert_fails(self.ask("fd00::1"), NOT_FOUND, "fd00::1", "--ip")
        strange = self.ask("-I", "10.9.9.9", SERVER)
        self.assert_fails(strange, NOT_FOUND, "10.9.9.9 is no address of this port", CLIENT)
        self.assert_fails(self.ask("localhost"), 10, "localhost is the kernel's", "which servers print")
        self.assert_fails(self.ask("no-such-host.invalid"), NOT_FOUND, "no-such-host.invalid")
        self.assert_fails(uroce(*self.words(SERVER, "-s", "-a", "10.5.0.9")), NOT_FOUND, "10.5.0.9")

    def test_senseless_command_lines(self):
        for words in ([], ["-c"], ["-s", SERVER], ["-s", "-c"], ["-S", 25, SERVER], ["-C", "some", SERVER],
                      ["-v", "--json", SERVER], ["-s", "-v", "--json"]):
            self.assert_fails(uroce("ping", *words), USAGE, "--help")

    def test_a_client_with_more_bytes_than_the_server_has_is_told(self):
        with self.serve() as server:
            server.stdout.readline()
            client = self.ask("-S", 65537, "-C", 1, SERVER)
            self.assert_fails(client, PEER, "ended the connection after 0 round trips")
            _, err = server.communicate(timeout=SECONDS)
            self.assertEqual(server.returncode, PEER)
            self.assertIn("-S 65537", err)

    def test_a_killed_server_ends_the_client(self):
        with self.serve() as server:
            server.stdout.readline()
            with started(*self.words(CLIENT, SERVER)) as client:
                await_requests(server)
                server.send_signal(signal.SIGKILL)
                _, err = client.communicate(timeout=SECONDS)
                self.assertEqual(client.returncode, PEER, err)
                self.assertEqual(len(err.strip().splitlines()), 1, err)

    def test_a_killed_client_ends_the_server(self):
        with self.serve() as server:
            server.stdout.readline()
            with started(*self.words(CLIENT, SERVER)) as client:
                await_requests(server)
                client.send_signal(signal.SIGKILL)
                _, err = server.communicate(timeout=SECONDS)
                self.assertEqual(server.returncode, PEER, err)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
