#!/usr/bin/env python3
"""`uroce stat` beside the processes that it looks at.

Usage: stat_test.py UROCE_PROGRAM
"""
import contextlib
import json
import os
import subprocess
import sys
import time
import unittest

from cli_test import NOT_FOUND, SECONDS, USAGE, Case, started, uroce


def qps_of(process):
    """{QPN of the peer: row} of the connected QPs of its only device; empty until it has one."""
    result = uroce("stat", "--qp", process.pid, "--json")
    if result.returncode != 0:
        return {}
    told = json.loads(result.stdout)
    assert told["schema"] == "uroce.stat.qps/1"
    (device,) = told["devices"]
    return {row["peer_qpn"]: row for row in device["qps"] if row["state"] == "RTS"}


def awaited(look, is_there):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if is_there(seen := look()):
            return seen
    raise AssertionError("what was to come did not")


class Stat(Case):
    @contextlib.contextmanager
    def two_qps(self, *of_server):
        """The client of WRITEs by two QPs that nothing but a loss makes send again."""
        link = self.link + "".join(of_server[:1]).strip("-")
        words = ["perf", "write_bw", "--port", link, "-p", self.port, "--no-huge", "--probe-us", 0,
                 "-q", 2, "-u", 24, "-D", 60]
        with started(*words, "--seed", 7, *of_server) as server:
            server.stdout.readline()
            with started(*words, "localhost") as client:
                yield client

    def test_the_qp_that_loses_packets_is_the_one_that_counts(self):
        with self.two_qps() as client:
            qps = awaited(lambda: qps_of(client), lambda seen: len(seen) == 2)
            self.assertEqual([row["counters"] for row in qps.values()], [{}, {}])
            lossy, clean = qps
        with self.two_qps("--fault", f"drop qpn={lossy} nth=5") as client:
            qps = awaited(lambda: qps_of(client), lambda seen: lossy in seen and
                          "requester_repeated_packets" in seen[lossy]["counters"])
            self.assertEqual((qps[lossy]["type"], qps[lossy]["peer"]), ("RC", "::ffff:10.77.0.1"))
            self.assertGreaterEqual(qps[lossy]["counters"]["requester_seq_naks"], 1)
            self.assertEqual(qps[clean]["counters"], {})
            text = uroce("stat", "--qp", client.pid).stdout
            self.assertRegex(text, rf"^pid {client.pid} uroce, {self.link}.*, 2 QPs\n")
            self.assertRegex(text, rf"0x{qps[lossy]['qpn']:06x}  RC +RTS +10\.77\.0\.1 +0x{lossy:06x}"
                                   r"  requester_repeated_packets [1-9]\d*, requester_seq_naks [1-9]\d*\n"
                                   rf" 0x{qps[clean]['qpn']:06x}  RC +RTS +10\.77\.0\.1 +0x{clean:06x}  -\n$")
            scrape = uroce("stat", "--qp", client.pid, "--prometheus").stdout
            self.assertRegex(scrape, r'uroce_qp_requester_seq_naks_total{[^}]*,type="RC",peer="10\.77\.0\.1",'
                                     rf'peer_qp="0x{lossy:06x}"}} [1-9]\d*\n')

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
                    if not line.startswith(("# HELP uroce_", "# TYPE uroce_", "uroce_devices 1")):
                        self.assertRegex(line, r"^uroce_[a-z0-9_]+" + labels + r" [0-9.]+$")
                self.assertRegex(scrape, "uroce_responder_packets_total" + labels + " [1-9]")
        self.assert_fails(uroce("stat", server.pid), NOT_FOUND, str(server.pid))

    def test_prometheus_is_told_that_there_is_no_device(self):
        alone = ("unshare", "--pid", "--fork", "--mount-proc")
        if subprocess.run([*alone, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("needs a PID namespace: root")
        for words, said in (([], r"(?m)^uroce_devices 0$"), (["--qp"], r"^$")):
            with self.subTest(words=words), started("stat", "--prometheus", *words, prefix=alone) as stat:
                out, err = stat.communicate(timeout=SECONDS)
                self.assertEqual((stat.returncode, err), (0, ""))
                self.assertRegex(out, said)

    def test_others_have_nothing_to_tell(self):
        self.assert_fails(uroce("stat", os.getpid(), "--prometheus"), NOT_FOUND, f"process {os.getpid()}")
        for words in (["0"], ["me"], ["1", "--json", "--prometheus"], ["1", "--interval-ms", "10"]):
            self.assert_fails(uroce("stat", *words), USAGE, "uroce stat --help")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
