#!/usr/bin/env python3
"""What commands of the uroce program print, alike in all of them: help and JSON.

Usage: output_test.py UROCE_PROGRAM
"""
import datetime
import json
import pathlib
import re
import signal
import sys
import tempfile
import time
import unittest

from cli_test import CONFIG, PATIENT, SECONDS, USAGE, Case, await_requests, started, uroce


class Help(Case):
    def test_every_command_tells_what_options_may_be_and_what_they_are_without(self):
        keys = json.loads(uroce("config", "--json").stdout)
        tests = [f"{verb}_{what}" for verb in ("send", "write", "read", "atomic") for what in ("lat", "bw")]
        for words in (["demo"], ["ping"], ["pingpong"], ["info"], ["doctor"], ["stat"], ["run"],
                      ["bench", "link"], ["bench", "scale"], ["bench", "rate"],
                      *(["perf", test] for test in tests)):
            told = uroce(*words, "--help").stdout
            flat = " ".join(told.split())
            for name, key in keys.items():
                if words == ["stat"] or name in ("mode", "keepalive-ms") and words == ["run"]:
                    continue
                if key["allowed"].startswith("true or false"):
                    continue  # a flag
                self.assertIn(f"({key['allowed']}; default: {key['value'] or 'empty'})", flat, (words, name))
            for line in told.splitlines():
                if re.match(r" +-.* U?INT", line) and not re.search("--(rate|duration) ", line):
                    self.assertRegex(line + flat[flat.index(line.split()[0]):][:300], r"=\S|default", words)
        told = " ".join(uroce("run", "--help").stdout.split())
        for part in ("(lcore, app or auto; default: auto)", "default: 10000)", "(default: true)"):
            self.assertIn(part, told)

    def test_a_program_that_is_run_prints_its_own(self):
        self.assert_fails(uroce("run", "--json", "--", "true"), USAGE, "--json")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
