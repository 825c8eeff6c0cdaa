#!/usr/bin/env python3
"""`uroce stat` beside the processes that it looks at.

Usage: stat_test.py UROCE_PROGRAM
"""
import json
import os
import sys
import unittest

from cli_test import NOT_FOUND, USAGE, Case, started, uroce


class Stat(Case):
    def test_running_processes_are_seen_and_ended_ones_are_not(self):
        words = ["perf", "send_bw", "--port", self.link, "-p", self.port, "--no-huge", "-D", 60]
        with started(*words) as server:
            server.stdout.readline()
            with started(*words, "localhost"), \
                    started("stat", server.pid, "--json", "--count", 0, "--interval-ms", 200) as stat:
                for line in stat.stdout:  # until the test is under way
                    told = json.loads(line)
                    self.assertEqual(told["schema"], "uroce.stat/1")
                    (device,) = told["devices"]
                    packets = device["counters"].get("responder_packets", {"per_second": None})
                    if packets["per_second"]:
                        break
                self.assertEqual((device["pid"], device["port"]), (server.pid, self.link))
                self.assertGreaterEqual(packets["total"], device["loops"][0]["counters"]["responder_packets"])
                self.assertIn("::ffff:10.77.0.1/24", device["addresses"])
                self.assertNotIn("rp_cnp_ignored", device["counters"])
                result = uroce("stat", server.pid, "--all")
                self.assertRegex(result.stdout, rf"^pid {server.pid} uroce, {self.link}, ")
                self.assertRegex(result.stdout, r"\n +responder_packets +[1-9]\d* +\d+\n")
                self.assertRegex(result.stdout, r"\n +rp_cnp_ignored +0 +[0-9-]+\n")
                scrape = uroce("stat", server.pid, "--prometheus").stdout
                labels = rf'{{pid="{server.pid}",program="uroce",device="0",port="{self.link}",loop="0"}}'
                for line in scrape.splitlines():
                    if not line.startswith("# TYPE uroce_"):
                        self.assertRegex(line, r"^uroce_[a-z0-9_]+" + labels + r" [0-9.]+$")
                self.assertRegex(scrape, "uroce_responder_packets_total" + labels + " [1-9]")
        self.assert_fails(uroce("stat", server.pid), NOT_FOUND, str(server.pid))

    def test_others_have_nothing_to_tell(self):
        self.assert_fails(uroce("stat", os.getpid(), "--prometheus"), NOT_FOUND, f"process {os.getpid()}")
        for words in (["0"], ["me"], ["1", "--json", "--prometheus"], ["1", "--interval-ms", "10"]):
            self.assert_fails(uroce("stat", *words), USAGE, "uroce stat --help")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
