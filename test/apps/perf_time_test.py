#!/usr/bin/env python3
"""`uroce perf` by the clock: operations that are due at fixed times, and how long a test goes on.

Usage: perf_time_test.py UROCE_PROGRAM
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from cli_test import PATIENT, SECONDS, UROCE, USAGE, Case, clean_environment, started, uroce

NO_MEMORY = 12


class Rate(Case):
    def test_operations_begin_when_they_are_due(self):
        for count in (300, 2):
            out, _ = self.pair("perf", "send_lat", "-n", count, "--rate", 3000, "--json")
            row = json.loads(out)["results"][0]
            self.assertEqual(row["rate_offered"], 3000)
            self.assertLessEqual(row["rate_achieved"], 3000)

    def test_latencies_count_from_when_they_were_due(self):
        """None is that fast, so each waits for all before it."""
        for test in ("send_lat", "read_lat"):
            with self.subTest(test=test):
                out, _ = self.pair("perf", test, "-n", 1000, "--rate", 1e8, "-U")
                samples = [float(value) for value in re.findall(r"(?m)^\d+, (\S+)$", out)]
                self.assertEqual(len(samples), 1000)
                self.assertEqual(samples, sorted(samples))
                self.assertIn("SATURATED", out)

    def test_a_queue_that_grows_slowly_is_told(self):
        """Each takes half a hundredth more time than there is from one to the next."""
        out, _ = self.pair("perf", "send_lat", "-D", 3, "--rate", 1000, "--json", *PATIENT,
                           client_words=["--fault", "delay=100%:1004us"])
        self.assertTrue(json.loads(out)["results"][0]["saturated"], out)

    def test_more_samples_than_there_is_memory_for_are_refused(self):
        words = ["perf", "send_lat", "-U", "--port", self.link, "-p", self.port, "--no-huge", "localhost"]
        self.assert_fails(uroce(*words, "-D", 86_400, "--rate", 1e8), NO_MEMORY, "-U: ", "MiB")
        memory = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
        free, all_of_it = (int(memory[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
        rate = (free + all_of_it) // 2 * 1024 // 8 / 1000
        self.assert_fails(uroce(*words, "-D", 1000, "--rate", rate), NO_MEMORY, "-U: ", "available", "--hgrm")

    def test_those_who_sleep_do_so_until_the_next_is_due(self):
        words = ["perf", "send_lat", "-e", "-n", 100, "--rate", 100, "--port", self.link, "-p", self.port,
                 "--no-huge"]
        with started(*words):
            begin = time.monotonic()
            client = subprocess.Popen([UROCE, *map(str, words), "localhost"], stdout=subprocess.DEVNULL,
                                      env=clean_environment())
            _, status, used = os.wait4(client.pid, 0)
            client.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(client.returncode, 0)
        self.assertLess(used.ru_utime + used.ru_stime, 0.6 * (time.monotonic() - begin))

    def test_what_is_no_number_is_refused(self):
        for words in (["send_lat", "--rate"], ["send_bw", "-w"], ["send_bw", "-y"]):
            for value in ("nan", "-nan", "NAN(1)", "inf", "1e999"):
                with self.subTest(words=words, value=value):
                    self.assert_fails(uroce("perf", *words, value, "localhost"), USAGE, value, "--help")

    def test_without_a_rate_none_is_told(self):
        out, _ = self.pair("perf", "send_lat", "-n", 10, "--json")
        self.assertNotIn("rate_offered", json.loads(out)["results"][0])

    def test_what_is_held_up_at_the_end_is_measured(self):
        """Or else the run is said to be saturated. The server pauses so often that it does when the time is
        over, and so briefly that all that waits is caught up with."""
        words = ["perf", "send_lat", "-D", 2, "--rate", 1000, "--port", self.link, "-p", self.port,
                 "--no-huge", *PATIENT]
        for _ in range(3):
            with started(*words) as server, started(*words, "--json", "localhost") as client:
                while client.poll() is None:
                    for how, seconds in ((signal.SIGSTOP, 0.015), (signal.SIGCONT, 0.004)):
                        server.send_signal(how)
                        time.sleep(seconds)
                out, err = client.communicate(timeout=SECONDS)
                self.assertEqual(client.returncode, 0, err)
            row = json.loads(out)["results"][0]
            self.assertEqual(row["n_iterations"] + row["n_never_begun"], 2000)
            if row["n_never_begun"] > 0:
                self.assertTrue(row["saturated"])

    def test_no_more_is_done_than_is_due_in_the_time(self):
        for test, rate, seconds in (("send_lat", 500, 1), ("read_lat", 3, 2)):
            with self.subTest(test=test):
                out, _ = self.pair("perf", test, "-D", seconds, "--rate", rate, "--json", *PATIENT)
                row = json.loads(out)["results"][0]
                self.assertEqual(row["n_iterations"] + row["n_never_begun"], rate * seconds)

    def test_what_no_link_reaches_ends_soon_and_is_told(self):
        begin = time.monotonic()
        out, _ = self.pair("perf", "send_lat", "-D", 1, "--rate", 1e8, *PATIENT)
        self.assertLess(time.monotonic() - begin, SECONDS / 2)
        self.assertRegex(out, r"SATURATED: the link is not that fast, \d+ were never begun\n")


class WarmUp(Case):
    def requests(self, test, *words):
        """Messages that have come to the server, of 100 that count."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "counters")
            out, _ = self.pair("perf", test, "-n", 100, "-t", 16, "--verify", "--json", *PATIENT, *words,
                               server_words=["--counters", file])
            told = dict(line.rsplit(maxsplit=1) for line in file.read_text().splitlines() if line)
        result = json.loads(out)
        self.assertEqual((result["data_errors"], result["results"][0]["n_iterations"]), (0, 100))
        return int(told["responder_messages"])

    def test_a_bandwidth_is_warmed_up_by_a_queue_of_operations_that_do_not_count(self):
        for test in ("send_bw", "write_bw", "read_bw", "atomic_bw"):
            with self.subTest(test=test):
                self.assertEqual(self.requests(test), 100)
                self.assertEqual(self.requests(test, "--perform_warm_up"), 116)

    def test_of_each_size_both_ways_and_over_what_loses(self):
        out, served = self.pair("perf", "send_bw", "-c", "UD", "-n", 50, "-t", 8, "-q", 2, "-a", "-b",
                                "--verify", "--perform_warm_up", "--json", *PATIENT)
        result = json.loads(out)
        self.assertEqual(result["data_errors"], 0)
        self.assertEqual({row["n_iterations"] for row in result["results"]}, {200})
        told = json.loads(served.splitlines()[-1])
        self.assertEqual(told["n_received"] + told["n_lost"], 100 * len(result["results"]))

    def test_what_counts_by_time_begins_behind_it(self):
        out, _ = self.pair("perf", "write_bw", "-D", 1, "--perform_warm_up", "--verify", "--json", *PATIENT)
        self.assertGreater(json.loads(out)["results"][0]["n_iterations"], 0)

    def test_instead_of_a_margin_it_is_told_what_counts(self):
        for test, told in (("write_bw", "from the first operation on; --perform_warm_up"),
                           ("write_lat", "from the end of the warm-up on")):
            with self.subTest(test=test):
                self.assert_fails(uroce("perf", test, "-f", 2), USAGE, told)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
