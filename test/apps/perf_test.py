#!/usr/bin/env python3
"""`uroce perf` and `uroce pingpong` where things are not as usual: few cores, big messages, strange peers.

Usage: perf_test.py UROCE_PROGRAM
"""
import contextlib
import json
import mmap
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from cli_test import CONFIG, PEER, SECONDS, UROCE, Case, clean_environment, started, uroce

NO_MEMORY, NO_HUGEPAGES, SYSTEM = 12, 17, 22


class Peak(Case):
    def test_the_peak_of_many_qps_is_near_the_average(self):
        for words in (["-q", 64, "-n", 1000], ["-q", 256, "-n", 300], ["-n", 5000]):
            with self.subTest(words=words):
                out, _ = self.pair("perf", "write_bw", "-s", 4096, "--json", *words)
                row = json.loads(out)["results"][0]
                self.assertGreaterEqual(row["BW_peak"], row["BW_average"])
                self.assertLess(row["BW_peak"], 3 * row["BW_average"])


class OneCore(Case):
    """Containers and `taskset -c 0` leave one core to both ends."""

    def p50_us(self, *words):
        """Of a round trip, both ends on one core."""
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
                row = self.p50_us("perf", test, "-n", 300, "--json")["results"][0]
                self.assertLess(row["rtt"]["t_typical"], 200)

    def test_so_do_those_of_pingpong(self):
        result = self.p50_us("pingpong", "-n", 300, "--json")
        self.assertLess(result["usec_per_iteration"], 1000)  # a mean: other programs run there, too

    def test_so_do_those_that_were_pinned_to_the_same(self):
        core = min(os.sched_getaffinity(0))
        out, _ = self.pair("perf", "send_lat", "-n", 300, "--json", "--lcores", core)
        self.assertLess(json.loads(out)["results"][0]["rtt"]["t_typical"], 200)

    def test_so_do_those_of_ping(self):
        core = min(os.sched_getaffinity(0))
        common = ["ping", "--port", self.link, "--no-huge", "--lcores", core]
        with started(*common, "--ip", "10.5.0.1/24", "-s") as server:
            server.stdout.readline()
            client = uroce(*common, "--ip", "10.5.0.2/24", "-C", 300, "--json", "10.5.0.1")
            self.assertEqual(client.returncode, 0, client.stderr)
            self.assertLess(json.loads(client.stdout)["p50_us"], 400)  # each has two round trips in it


class Output(Case):
    def test_a_result_file_is_opened_before_the_run(self):
        with tempfile.TemporaryDirectory() as folder:
            nowhere = pathlib.Path(folder, "nowhere", "x")
            result = uroce("perf", "send_lat", "--port", self.link, "-p", self.port, "--no-huge",
                           "--out_json_file", nowhere, "localhost")  # where there is no server
            self.assert_fails(result, SYSTEM, str(nowhere))

    def test_the_table_comes_before_a_result_file_that_is_full(self):
        common = ["perf", "send_lat", "-n", 100, "--port", self.link, "-p", self.port, "--no-huge"]
        with started(*common):
            result = uroce(*common, "--out_json_file", "/dev/full", "localhost")
        self.assertEqual(result.returncode, SYSTEM, result.stderr)
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


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
