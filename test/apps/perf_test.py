#!/usr/bin/env python3
"""`uroce perf` and `uroce pingpong` where things are not as usual: few cores, big messages, strange peers.

Usage: perf_test.py UROCE_PROGRAM
"""
import contextlib
import json
import mmap
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from cli_test import (CONFIG, PATIENT, PEER, PERMISSION, SECONDS, TIMEOUT, UROCE, USAGE, Case, await_requests,
                      clean_environment, started, uroce)

INVALID, NO_MEMORY, NO_HUGEPAGES, SYSTEM = 10, 12, 17, 22
WIRE_SIZE = len("0000:000000:000000:" + "0" * 32) + 1  # bytes, with the terminating zero


@contextlib.contextmanager
def all_hugepages():
    """Holds those of 2 MiB that are free, so that nobody else has any."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000 | 21 << 26  # MAP_HUGETLB, 2^21 bytes each
    pool = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
    free = int(pool.read_text()) if pool.exists() else 0
    held = mmap.mmap(-1, free << 21, flags=flags) if free else contextlib.nullcontext()
    with held:
        yield


@contextlib.contextmanager
def own_network():
    """What a command begins with that is to run in a network namespace of its own, which ends with this
    program, however that ends; None if there may be none."""
    words = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo made && exec cat"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as holder:
        made = holder.stdout.readline() == "made\n"
        yield ["nsenter", f"--net=/proc/{holder.pid}/ns/net"] if made else None
        holder.stdin.close()


def await_cpu_seconds(process, seconds):
    """Returns once a process has used so many."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        if int(fields[11]) + int(fields[12]) >= seconds * os.sysconf("SC_CLK_TCK"):
            return
        time.sleep(0.02)
    raise AssertionError("it does nothing")


class Peak(Case):
    def peak_and_average(self, *words):
        out, _ = self.pair("perf", "write_bw", "-s", 4096, "--json", *words)
        row = json.loads(out)["results"][0]
        self.assertGreaterEqual(row["BW_peak"], row["BW_average"])
        return row["BW_peak"], row["BW_average"]

    def test_the_peak_of_many_qps_is_near_the_average(self):
        """In one of a few runs: where others want the cores, what waits for them counts in the average."""
        for words in (["-q", 64, "-n", 1000], ["-q", 256, "-n", 300], ["-n", 5000]):
            with self.subTest(words=words):
                seen = []
                while len(seen) < 20:
                    seen.append(self.peak_and_average(*words))
                    if seen[-1][0] < 3 * seen[-1][1]:
                        break
                else:
                    self.fail(f"peaks and averages: {seen}")


class BothWays(Case):
    def rate(self, *words):
        """Where the client's messages take long, and the server's do not."""
        slow = ["--fault", "tx.delay=2ms opcode=RC_SEND_ONLY"]
        out, _ = self.pair("perf", "send_bw", "-s", 64, "-n", 5000, "--json", *words, client_words=slow)
        return json.loads(out)["results"][0]["MsgRate"]

    def test_the_rate_of_each_way_is_its_own(self):
        """In one of a few runs, as others may want the cores. Twice the client's otherwise."""
        one_way = self.rate()
        seen = []
        while len(seen) < 20:
            seen.append(self.rate("-b"))
            if seen[-1] > 4 * one_way:
                return
        self.fail(f"{seen} both ways, {one_way} one way")


class OneCore(Case):
    """Containers and `taskset -c 0` leave one core to both ends."""

    def assert_takes_turns(self, measure, most_us):
        """In one of a few runs: others may want that core, too. Without turns it is 4 to 12 ms in each."""
        seen = []
        while len(seen) < 12:
            seen.append(measure())
            if seen[-1] < most_us:
                return
        self.fail(f"{seen} us, not below {most_us}")

    def on_one_core(self, *words):
        """What the client prints, both ends on one core."""
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(allowed)})
        try:
            out, _ = self.pair(*words)
        finally:
            os.sched_setaffinity(0, allowed)
        return json.loads(out)

    def test_ends_on_one_core_take_turns(self):
        for test in ("send_lat", "write_lat", "read_lat"):
            with self.subTest(test=test):
                words = ["perf", test, "-n", 300, "--json"]
                self.assert_takes_turns(
                    lambda: self.on_one_core(*words)["results"][0]["rtt"]["t_typical"], 200)

    def test_so_do_those_of_pingpong(self):
        for how in ([], ["-e"]):
            with self.subTest(how=how):
                mean = lambda: self.on_one_core("pingpong", "-n", 300, "--json", *how)["usec_per_iteration"]
                self.assert_takes_turns(mean, 1000)

    def test_so_do_those_that_were_pinned_to_the_same(self):
        core = min(os.sched_getaffinity(0))
        words = ["perf", "send_lat", "-n", 300, "--json", "--lcores", core]

        def measure():
            out, _ = self.pair(*words)
            return json.loads(out)["results"][0]["rtt"]["t_typical"]

        self.assert_takes_turns(measure, 200)

    def test_so_do_those_of_ping(self):
        core = min(os.sched_getaffinity(0))
        common = ["ping", "--port", self.link, "--no-huge", *PATIENT, "--lcores", core]

        def measure():
            with started(*common, "--ip", "10.5.0.1/24", "-s") as server:
                server.stdout.readline()
                client = uroce(*common, "--ip", "10.5.0.2/24", "-C", 300, "--json", "10.5.0.1")
                self.assertEqual(client.returncode, 0, client.stderr)
                return json.loads(client.stdout)["p50_us"]

        self.assert_takes_turns(measure, 400)  # two round trips in each


class Output(Case):
    def test_a_distribution_is_written_for_plotters(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "rtt.hgrm")
            out, _ = self.pair("perf", "read_lat", "-n", 2000, "--json", client_words=["--hgrm", file])
            lines = file.read_text().splitlines()
        self.assertEqual(lines[0].split(), ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"])
        rows = [line.split() for line in lines[2:] if not line.startswith("#")]
        self.assertEqual(rows[-1][1:], ["1.000000000000", "2000"])
        rtt = json.loads(out)["results"][0]["rtt"]
        self.assertAlmostEqual(float(rows[-1][0]), rtt["t_max"], delta=0.001)
        self.assertAlmostEqual(float(rows[0][0]), rtt["t_min"], delta=rtt["t_min"] / 200)  # a bucket

    def test_a_distribution_is_of_one_size(self):
        self.assert_fails(uroce("perf", "send_lat", "-a", "--hgrm", "x", "localhost"), USAGE, "-s")

    def test_a_result_file_is_opened_before_the_run(self):
        with tempfile.TemporaryDirectory() as folder:
            nowhere = pathlib.Path(folder, "nowhere", "x")
            result = uroce("perf", "send_lat", "--port", self.link, "-p", self.port, "--no-huge",
                           "--out_json_file", nowhere, "localhost")  # where there is no server
            self.assert_fails(result, CONFIG, f"{nowhere} cannot be written: No such file")

    def test_the_table_comes_before_a_result_file_that_is_full(self):
        common = ["perf", "send_lat", "-n", 100, "--port", self.link, "-p", self.port, "--no-huge"]
        with started(*common):
            result = uroce(*common, "--out_json_file", "/dev/full", "localhost")
        self.assertEqual(result.returncode, CONFIG, result.stderr)
        self.assertIn("t_typical[usec]", result.stdout)
        self.assertIn("/dev/full cannot be written", result.stderr)

    def test_a_full_disk_behind_stdout_is_a_failure(self):
        for words in (["config"], ["--version"], ["perf", "send_lat", "--help"]):
            with self.subTest(words=words), open("/dev/full", "w") as full:
                result = subprocess.run([UROCE, *words], stdout=full, stderr=subprocess.PIPE, text=True,
                                        env=clean_environment(), timeout=SECONDS)
                self.assertEqual(result.returncode, SYSTEM, result.stderr)
                self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
                self.assertIn("stdout", result.stderr)

    def test_a_closed_or_full_stderr_changes_no_exit_code(self):
        good = ["demo", "--quick", "--no-huge", "--port", self.link]
        for redirection in ("2>&-", "2>/dev/full"):
            for words, code in ((["config", "--mtu", "5"], CONFIG), (["perf"], USAGE), (good, 0)):
                with self.subTest(redirection=redirection, words=words):
                    line = ["bash", "-c", f'exec "$0" "$@" {redirection}', UROCE, *words]
                    result = subprocess.run(line, stdout=subprocess.DEVNULL, env=clean_environment(),
                                            timeout=SECONDS, check=False)
                    self.assertEqual(result.returncode, code)

    def test_messages_do_not_go_into_what_is_opened_in_place_of_stderr(self):
        with tempfile.TemporaryDirectory() as folder:
            line = ["bash", "-c", 'exec "$0" "$@" <&- >&- 2>&-', UROCE, "info", "--port", self.link,
                    "--no-huge", "--pcap", f"{folder}/x", "--counters", "/dev/stderr"]
            result = subprocess.run(line, env=clean_environment(), timeout=SECONDS, check=False)
            self.assertEqual(result.returncode, SYSTEM)  # stdout cannot be written
            capture = pathlib.Path(folder, "x").read_bytes()
        self.assertNotIn(b"port_", capture)
        self.assertNotIn(b"uroce", capture.removeprefix(b"\n\r\r\n"))

    def test_frames_that_a_capture_lacks_are_told(self):
        result = self.pair_of_processes("perf", "send_bw", "-n", 2000, "--pcap", "/dev/full")
        self.assertRegex(result.stderr, r"\d+ frames are missing in /dev/full")

    def pair_of_processes(self, *words):
        common = [*words, "--port", self.link, "-p", self.port, "--no-huge"]
        with started(*common) as server:
            client = uroce(*common, "localhost")
            self.assertEqual(client.returncode, 0, client.stderr)
            server.communicate(timeout=SECONDS)
        return client


class PingPong(Case):
    def test_two_of_them_exchange_messages(self):
        for size, iterations in ((1, 50), (4096, 1000), (100001, 20)):
            out, server = self.pair("pingpong", "-c", "-s", size, "-n", iterations)
            self.assertIn(f"{2 * size * iterations} bytes in", out)
            self.assertIn("0 bytes of received data were wrong", out)
            local = [line.split(":", 1)[1].strip() for line in out.splitlines() if "local" in line]
            remote = [line.split(":", 1)[1].strip() for line in server.splitlines() if "remote" in line]
            self.assertEqual(local, remote)

    def test_sizes_that_differ_are_told(self):
        words = ["pingpong", "--port", self.link, "-p", self.port, "--no-huge"]
        for here, there in ((4096, 1024), (1024, 4096)):
            with started(*words, "-s", here) as server:
                self.assert_fails(uroce(*words, "-s", there, "localhost"), PEER, "same -s")
                _, err = server.communicate(timeout=SECONDS)
                self.assertIn("same -s", err)

    def test_many_qps_share_their_receives(self):
        for qps, size, iterations in ((16, 1000, 500), (1, 4096, 100), (256, 64, 1000)):
            words = ["--type", "srq", "-q", qps, "-c", "-s", size, "-n", iterations]
            out, server = self.pair("pingpong", *words)
            self.assertIn(f"{2 * size * iterations} bytes in", out)
            self.assertIn("0 bytes of received data were wrong", out)
            self.assertEqual(out.count("local address"), qps)
            self.assertEqual(server.count("remote address"), qps)

    def test_it_can_sleep_on_events(self):
        for mode in ("app", "auto"):
            out, _ = self.pair("pingpong", "-e", "-c", "-n", 200, "--mode", mode)
            self.assertIn("200 iters in", out)

    def test_json_tells_the_result(self):
        out, _ = self.pair("pingpong", "-n", 100, "-m", 4096, "--json", "-c")
        result = json.loads(out)
        self.assertEqual((result["role"], result["iterations"], result["data_errors"]), ("client", 100, 0))

    def test_a_last_message_that_nobody_acknowledged_is_no_failure(self):
        """The client drops its ACKs, and ends as soon as it has all messages."""
        _, server = self.pair("pingpong", "-n", 1, client_words=["--fault", "tx.drop aeth=ack"])
        self.assertIn("1 iters in", server)

    def test_the_server_speaks_the_text_of_the_stock_tool(self):
        words = ["pingpong", "--port", self.link, "-p", self.port, "--no-huge", "--give-up", 1]
        with started(*words) as server:
            server.stdout.readline()
            peer = self.connect()
            with peer:
                text = "0000:000011:a5b6c7:0000000000000000" + "0000ffff0a4d0063"
                peer.sendall(text.encode() + b"\0")
                answer = self.receive(peer, WIRE_SIZE)
                self.assertRegex(answer, rb"^0000:[0-9a-f]{6}:[0-9a-f]{6}:[0-9a-f]{32}\0$")
                peer.sendall(b"done\0")
            out, err = server.communicate(timeout=SECONDS)
        self.assertIn("QPN 0x000011, PSN 0xa5b6c7, GID ::ffff:10.77.0.99", out)
        self.assertEqual(server.returncode, TIMEOUT, err)

    def test_the_client_speaks_the_text_of_the_stock_tool(self):
        words = ["pingpong", "--port", self.link, "-p", self.port, "--no-huge", "--give-up", 1, "127.0.0.1"]
        with socket.create_server(("127.0.0.1", self.port)) as listener, started(*words) as client:
            listener.settimeout(SECONDS)
            peer, _ = listener.accept()
            with peer:
                peer.settimeout(SECONDS)
                address = self.receive(peer, WIRE_SIZE)
                self.assertRegex(address, rb"^0000:[0-9a-f]{6}:[0-9a-f]{6}:[0-9a-f]{32}\0$")
                peer.sendall(b"0000:000012:000034:0000000000000000" + b"0000ffff0a4d0063\0")
                self.assertEqual(self.receive(peer, 5), b"done\0")
            _, err = client.communicate(timeout=SECONDS)
        self.assertIn(client.returncode, (TIMEOUT, PEER), err)

    def test_a_peer_without_gid_is_told_to_use_g(self):
        words = ["pingpong", "--port", self.link, "-p", self.port, "--no-huge"]
        with started(*words) as server:
            server.stdout.readline()
            with self.connect() as peer:
                peer.sendall(b"0000:000011:a5b6c7:" + b"0" * 32 + b"\0")
                _, err = server.communicate(timeout=SECONDS)
        self.assertEqual(server.returncode, PEER)
        self.assertIn("-g", err)

    def connect(self):
        """The server may still be about to listen."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(ConnectionRefusedError):
                return socket.create_connection(("localhost", self.port), timeout=SECONDS)
            time.sleep(0.02)
        return self.fail("nobody listens")

    @staticmethod
    def receive(peer, count):
        data = b""
        while len(data) < count:
            more = peer.recv(count - len(data))
            if not more:
                break
            data += more
        return data


class StrangePeer(Case):
    """A server and whatever may connect to it."""

    def setUp(self):
        super().setUp()
        self.wish = {"verb": 0, "connection": "RC", "latency": False, "all_sizes": False, "size": 64,
                     "iterations": 10, "seconds": 0, "qps": 1, "tx_depth": 8, "rx_depth": 8, "path_mtu": 1024,
                     "inline_bytes": 0, "post_list": 1, "cq_mod": 4, "outstanding_reads": 1, "timeout": 14,
                     "compare_swap": False, "bidirectional": False, "verify": False}

    def refuse(self, test, lines, code=PEER):
        """What a server says to a client that says this."""
        with started("perf", test, "--port", self.link, "-p", self.port, "--no-huge") as server:
            server.stdout.readline()
            with socket.create_connection(("localhost", self.port), timeout=SECONDS) as peer:
                for line in lines:
                    peer.sendall(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
                _, err = server.communicate(timeout=SECONDS)
        self.assertEqual(server.returncode, code, err)
        self.assertEqual(len(err.splitlines()), 1, err)
        return err

    def test_wishes_that_no_command_line_has_are_refused(self):
        send_bw = ("send_bw", {})
        for test, common, name, value in (
                (*send_bw, "verb", 4), (*send_bw, "verb", "send"), (*send_bw, "verb", -1),
                (*send_bw, "size", 0), (*send_bw, "size", (1 << 30) + 1), (*send_bw, "size", (1 << 32) + 64),
                (*send_bw, "size", 6.5), (*send_bw, "size", None), (*send_bw, "iterations", 0),
                (*send_bw, "qps", 0), (*send_bw, "qps", 16385), (*send_bw, "tx_depth", 0),
                (*send_bw, "tx_depth", 1 << 31),
                (*send_bw, "rx_depth", 0), (*send_bw, "path_mtu", 0), (*send_bw, "post_list", 65),
                (*send_bw, "cq_mod", 0), (*send_bw, "outstanding_reads", 129), (*send_bw, "timeout", 32),
                (*send_bw, "seconds", 86401), (*send_bw, "verify", 1), (*send_bw, "latency", [True]),
                (*send_bw, "connection", "XRC"), (*send_bw, "connection", 3),
                ("write_bw", {"verb": 1}, "connection", "UD"), ("read_bw", {"verb": 2}, "connection", "UC"),
                ("send_lat", {"latency": True, "cq_mod": 1}, "qps", 2),
                ("atomic_bw", {"verb": 3, "size": 8}, "size", 7)):
            with self.subTest(name=name, value=value):
                self.assertIn(f'"{name}"', self.refuse(test, [{**self.wish, **common, name: value}]))
        for name in self.wish:
            wish = {key: value for key, value in self.wish.items() if key != name}
            with self.subTest(without=name):
                self.assertIn(f'"{name}"', self.refuse("send_bw", [wish]))

    def test_datagrams_that_no_packet_holds_are_refused(self):
        ud = {**self.wish, "connection": "UD"}
        for wish in ({**ud, "size": 1025}, {**ud, "size": 4097, "path_mtu": 4096}, {**ud, "size": 1 << 30}):
            with self.subTest(wish=wish):
                self.assertIn("-s ", self.refuse("send_bw", [wish], INVALID))

    def test_messages_that_are_none_are_refused(self):
        address = b"0000:000011:a5b6c7:0000000000000000" + b"0000ffff0a4d0063\0"
        for lines in ([b"GET / HTTP/1.1\n"], [[1, 2]], [{}], [b'{"error": 5}\n'], [self.wish, b"x" * 60],
                      [self.wish, address, {}], [self.wish, address, {"addr": "x", "rkey": 1}]):
            with self.subTest(lines=lines):
                self.refuse("send_bw", lines)
        memory = {"addr": 0, "rkey": 1, "gid": "::ffff:10.77.0.99"}
        for request in ({"run": "x"}, {"run": 0}, {"run": 65}, {"walk": 1}):
            with self.subTest(request=request):
                self.refuse("send_bw", [self.wish, address, memory, request])

    def test_those_that_connect_and_say_nothing_are_none(self):
        words = ["perf", "send_lat", "-n", 10, "--port", self.link, "-p", self.port, "--no-huge"]
        at_once = struct.pack("ii", 1, 0)
        with started(*words) as server:
            server.stdout.readline()
            for lingers in (None, at_once, None):  # by FIN and by RST
                with socket.create_connection(("localhost", self.port), timeout=SECONDS) as peer:
                    if lingers:
                        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingers)
            client = uroce(*words, "localhost")
            self.assertEqual(client.returncode, 0, client.stderr)
            _, err = server.communicate(timeout=SECONDS)
            self.assertEqual(server.returncode, 0, err)
        self.assertRegex(err, r"\Auroce: note: .* said nothing; .*\n\Z")

    def test_memory_that_no_machine_has_is_not_asked_for(self):
        big = {**self.wish, "size": 1 << 30, "qps": 8192}
        self.assertIn("MiB", self.refuse("send_bw", [big], NO_MEMORY))


class Big(Case):
    def test_a_warm_up_does_not_take_500_messages_whatever_they_take(self):
        begin = time.monotonic()
        self.pair("perf", "send_lat", "-n", 2, "-s", 32 << 20)
        self.assertLess(time.monotonic() - begin, 20)  # a minute and more otherwise

    def test_checking_big_messages_leaves_the_connection_alone(self):
        for words in (["perf", "send_lat"], ["pingpong", "-m", 4096]):
            with self.subTest(words=words):
                check = "-c" if words[0] == "pingpong" else "--verify"
                self.pair(*words, "-s", 256 << 20, "-n", 1, check)


class Stopped(Case):
    """What signals end leaves nothing in /dev/shm."""

    def assert_stops(self, process, how, code=None):
        process.send_signal(how)
        _, err = process.communicate(timeout=SECONDS)
        self.assertEqual((process.returncode, err), (128 + how if code is None else code, ""))

    def assert_nothing_left(self, name):
        self.assertEqual([file for file in os.listdir("/dev/shm") if name in file], [])

    def test_waiting_servers_end(self):
        name = self.link.removeprefix("shm:")
        for words in (["perf", "send_lat"], ["perf", "send_bw", "-R"], ["pingpong"],
                      ["pingpong", "--type", "srq"]):
            for how in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(words=words, how=how.name), \
                     started(*words, "--port", self.link, "-p", self.port, "--no-huge") as server:
                    self.wait_for_file(name)
                    self.assert_stops(server, how)
                self.assert_nothing_left(name)

    def test_so_do_those_of_ping_which_are_meant_to_be_stopped(self):
        name = self.link.removeprefix("shm:")
        for how in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(how=how.name), \
                 started("ping", "-s", "--port", self.link, "-p", self.port, "--no-huge") as server:
                server.stdout.readline()
                self.assert_stops(server, how, 0)
            self.assert_nothing_left(name)

    def test_clients_that_ask_for_a_connection_end(self):
        name = self.link.removeprefix("shm:")
        for words in (["ping", "--give-up-ms", 60_000], ["perf", "send_lat", "-R"]):
            for how in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                common = [*words, "10.77.0.99", "--port", self.link, "-p", self.port, "--no-huge"]
                with self.subTest(words=words, how=how.name), started(*common) as client:
                    self.wait_for_file(name)
                    self.assert_stops(client, how)
                self.assert_nothing_left(name)

    def test_ends_that_exchange_messages_end(self):
        name = self.link.removeprefix("shm:")
        for words in (["perf", "send_lat", "-D", 60], ["perf", "read_lat", "-D", 60],
                      ["perf", "write_bw", "-D", 60], ["pingpong", "-n", 1_000_000_000]):
            with self.subTest(words=words):
                common = [*words, "--port", self.link, "-p", self.port, "--no-huge"]
                with started(*common) as server, started(*common, "localhost") as client:
                    await_requests(server)
                    client.send_signal(signal.SIGINT)
                    server.send_signal(signal.SIGTERM)
                    for process, how in ((client, signal.SIGINT), (server, signal.SIGTERM)):
                        process.communicate(timeout=SECONDS)
                        self.assertEqual(process.returncode, 128 + how)
                self.assert_nothing_left(name)

    def test_demo_and_bench_end(self):
        name = self.link.removeprefix("shm:")
        for words in (["demo"], ["bench", "link"]):
            for how in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(words=words, how=how.name), \
                     started(*words, "--port", self.link, "--no-huge") as process:
                    self.wait_for_file(name)
                    process.send_signal(how)
                    process.communicate(timeout=SECONDS)
                    self.assertEqual(process.returncode, 128 + how)
                self.assert_nothing_left(name)

    def test_so_does_the_doctor(self):
        with started("doctor", "--spin-ms", 600_000, "--port", self.link, "--no-huge") as process:
            await_cpu_seconds(process, 1)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS)
            self.assertEqual(process.returncode, 128 + signal.SIGINT)

    def wait_for_file(self, name):
        for _ in range(500):
            if [file for file in os.listdir("/dev/shm") if name in file]:
                return time.sleep(0.3)
            time.sleep(0.02)
        return self.fail("it does not start")


class Hints(Case):
    def test_path_mtus_and_types_that_differ_are_told(self):
        common = ["pingpong", "--port", self.link, "-p", self.port, "--no-huge"]
        for here, there, part in ((["-m", 1024], ["-m", 4096], "-m"), (["-m", 4096], ["-m", 1024], None),
                                  (["--type", "rc"], ["--type", "srq"], "--type"),
                                  (["--type", "srq"], ["--type", "rc"], "--type"),
                                  (["--type", "rc"], ["--type", "uc"], "--type"),
                                  (["--type", "ud"], ["--type", "rc"], "--type")):
            size = ["-s", 2048 if part == "-m" else 512]
            with self.subTest(here=here, there=there), started(*common, *here, *size) as server, \
                 started(*common, *there, *size, "localhost") as client:
                if part is None:
                    self.assertEqual((client.wait(SECONDS), server.wait(SECONDS)), (0, 0))
                    continue
                self.assert_told(part, client, server)

    @unittest.skipUnless("memif" in uroce("info", "--port", "warp:9").stderr, "this build has no memif")
    def test_a_smaller_path_mtu_than_the_client_wants_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ["perf", "write_bw", "-p", self.port, "--no-huge", "-n", 10, "--port"]
            memif = f"memif:{folder}/x,role="
            for mtu, told in ((1500, True), (4200, False)):
                with self.subTest(mtu=mtu), started(*words, f"{memif}server", "--mtu", mtu) as server:
                    client = uroce(*words, f"{memif}client", "--mtu", 4200, "localhost")
                    _, err = server.communicate(timeout=SECONDS)
                    self.assertEqual((client.returncode, server.returncode), (0, 0), client.stderr + err)
                    self.assertEqual("path MTU 1024: the server's port" in client.stderr, told)

    def test_a_message_that_takes_longer_than_the_patience_is_no_silence(self):
        slow = ["--max-unacked", 1, "--fault", "tx.delay=5ms opcode=RC_WRITE_MIDDLE"]
        out, _ = self.pair("perf", "write_bw", "-s", 9 << 20, "-n", 1, "-m", 4096, client_words=slow)
        self.assertRegex(out, r"(?m)^ +9437184 +1 ")

    def test_counts_that_differ_are_told_at_both_ends(self):
        common = ["pingpong", "--port", self.link, "-p", self.port, "--no-huge"]
        for kind in ("rc", "ud", "srq"):
            for here, there in ((100, 200), (200, 100)):
                with self.subTest(kind=kind, here=here), \
                     started(*common, "--type", kind, "-s", 512, "-n", here) as server:
                    client = uroce(*common, "--type", kind, "-s", 512, "-n", there, "localhost")
                    self.assert_fails(client, PEER, f"-n is {there} here and {here} at the peer", "same -n")
                    _, err = server.communicate(timeout=SECONDS)
                    self.assertEqual(server.returncode, PEER)
                    self.assertIn(f"-n is {here} here and {there} at the peer", err)

    def test_a_killed_peer_ends_who_waits_for_its_message(self):
        common = ["pingpong", "--port", self.link, "-p", self.port, "--no-huge", "--type", "uc",
                  "-n", 1_000_000_000]
        for events in ([], ["-e"]):
            with self.subTest(events=events), started(*common, *events) as server, \
                 started(*common, *events, "localhost") as client:
                server.stdout.readline()
                while "remote" not in client.stdout.readline():
                    self.assertIsNone(client.poll())
                client.send_signal(signal.SIGKILL)
                _, err = server.communicate(timeout=SECONDS)
                self.assertEqual(server.returncode, PEER, err)
                self.assertIn("the peer has ended", err)

    @unittest.skipUnless(shutil.which("ib_send_lat"), "no perftest here")
    def test_each_option_of_perftest_is_taken_or_told_what_to_do_instead(self):
        unknown = re.compile("dci_stream|aes|encrypt|sig_before|data_enc|kek|credentials")  # DC, encryption
        for test in ("send_lat", "write_bw", "read_bw", "atomic_lat"):
            told = subprocess.run([f"ib_{test}", "--help"], capture_output=True, text=True, timeout=SECONDS,
                                  check=False).stdout
            lines = re.findall(r"(?m)^\s+(?:(-\w), )?(--[\w-]+)", told)
            names = {name for line in lines for name in line if name} - {"-h", "--help"}
            self.assertGreater(len(names), 40)
            for name in sorted(name for name in names if not unknown.search(name)):
                with self.subTest(test=test, name=name), tempfile.TemporaryDirectory() as folder:
                    words = [UROCE, "perf", test, name, "--port", "no such port"]  # or a file "--port"
                    err = subprocess.run(words, capture_output=True, text=True, cwd=folder, timeout=SECONDS,
                                         env=clean_environment(), check=False).stderr
                    self.assertNotRegex(err, "does not take [^:]*; see")

    def assert_told(self, part, *processes):
        """By the first one that ends, or else by the other one, which waits for ever otherwise."""
        end = time.monotonic() + SECONDS
        while all(process.poll() is None for process in processes):
            self.assertLess(time.monotonic(), end, "nobody ends")
            time.sleep(0.05)
        in_order = sorted(processes, key=lambda process: process.poll() is None)
        self.assertNotEqual(in_order[0].returncode, 0)
        said = ""
        for process in in_order:
            said += process.communicate(timeout=SECONDS)[1]
            if part in said:
                return
        self.fail(f"{part} is not in: {said}")

    def test_a_core_that_does_not_exist_is_told_alike(self):
        for mode in ("app", "lcore"):
            for words in (["perf", "send_lat"], ["pingpong"], ["ping", "-s"], ["demo"]):
                with self.subTest(mode=mode, words=words):
                    result = uroce(*words, "--port", self.link, "--no-huge", "--mode", mode, "--lcores", 999)
                    self.assertEqual(result.returncode, CONFIG, result.stderr)
                    self.assertIn("core 999 cannot be used: choose others with --lcores", result.stderr)

    def test_links_belong_to_a_user(self):
        common = ["perf", "send_lat", "-p", self.port, "--no-huge", "--port"]
        with started(*common, self.link) as server:
            server.stdout.readline()
            client = uroce(*common, self.link + "-other", "localhost")
            self.assert_fails(client, PEER, "programs of one user")

    @unittest.skipUnless(os.geteuid() == 0, "not root")
    def test_ports_of_root_are_told(self):
        first = int(pathlib.Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
        if first <= 80:
            self.skipTest("here they are everybody's")
        nobody = 65534
        words = [UROCE, "perf", "send_lat", "-p", "80", "--port", self.link, "--no-huge"]
        try:
            result = subprocess.run(words, user=nobody, group=nobody, extra_groups=[], capture_output=True,
                                    text=True, env=clean_environment(), timeout=SECONDS, check=False)
        except PermissionError:
            self.skipTest("nobody may not run the program")
        self.assert_fails(result, PERMISSION, "above 1023 with -p")

    def test_missing_hugepages_are_told_before_anybody_waits(self):
        if int(pathlib.Path("/proc/sys/vm/nr_overcommit_hugepages").read_text()) > 0:
            self.skipTest("the kernel may make hugepages when they are asked for: vm.nr_overcommit_hugepages")
        with all_hugepages():
            for words in (["perf", "send_lat"], ["ping", "-s"], ["pingpong"]):
                with self.subTest(words=words):
                    result = uroce(*words, "--port", self.link, "-p", self.port)
                    self.assert_fails(result, NO_HUGEPAGES, "config/hugepages")
                    self.assertEqual(result.stdout, "", "it waits for nobody")

    def test_an_interface_that_is_down_is_told(self):
        with own_network() as inside:
            if inside is None:
                self.skipTest("needs root for a network namespace")
            ip = [*inside, "ip", "link"]
            if subprocess.run([*ip, "add", "ux0", "type", "veth", "peer", "name", "ux1"]).returncode != 0:
                self.skipTest("this kernel has no veth pairs")
            for name in ("ux0", "ux1"):
                subprocess.run([*ip, "set", name, "up"], check=True)
            common = ["perf", "send_lat", "-p", self.port, "--no-huge", "-D", 20, "--port"]
            server_words = [*common, "af_packet:ux0", "--ip", "10.9.8.1/24"]
            client_words = [*common, "af_packet:ux1", "--ip", "10.9.8.2/24", "localhost"]
            with started(*server_words, prefix=inside) as server:
                server.stdout.readline()
                with started(*client_words, prefix=inside) as client:
                    await_requests(server)
                    subprocess.run([*ip, "set", "ux1", "down"], check=True)
                    _, err = client.communicate(timeout=SECONDS)
            self.assertRegex(err, "interface ux[01] is down")  # a veth pair loses both ends


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
