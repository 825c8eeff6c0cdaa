#!/usr/bin/env python3
"""`uroce perf` and `uroce pingpong` where things are not as usual: few cores, big messages, strange peers.

Usage: perf_test.py UROCE_PROGRAM
"""
import json
import sys
import unittest

from cli_test import Case


class Peak(Case):
    def test_the_peak_of_many_qps_is_near_the_average(self):
        for words in (["-q", 64, "-n", 1000], ["-q", 256, "-n", 300], ["-n", 5000]):
            with self.subTest(words=words):
                out, _ = self.pair("perf", "write_bw", "-s", 4096, "--json", *words)
                row = json.loads(out)["results"][0]
                self.assertGreaterEqual(row["BW_peak"], row["BW_average"])
                self.assertLess(row["BW_peak"], 3 * row["BW_average"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
