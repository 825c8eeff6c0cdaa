#!/usr/bin/env python3
"""What commands of the uroce program print, alike in all of them: help and JSON.

Usage: output_test.py UROCE_PROGRAM
"""
import datetime
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time
import unittest

from cli_test import CONFIG, PATIENT, PEER, SECONDS, USAGE, Case, await_requests, started, uroce


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

    def test_what_means_the_same_is_spelled_the_same(self):
        for words, names in ((["perf", "send_lat"], ("--verify", "--gid-index")), (["ping"], ("--verify",)),
                             (["pingpong"], ("--verify", "--gid-index", "--give-up-ms"))):
            told = uroce(*words, "--help").stdout
            for name in names:
                self.assertIn(name, told, words)
        for words in (["--give-up", 1], ["--give-up-ms", 1000]):
            result = uroce("pingpong", "--port", self.link, "-p", self.port, "--no-huge", *words, "localhost")
            self.assertNotEqual(result.returncode, USAGE, result.stderr)

    def test_every_counter_is_explained(self):
        told = uroce("stat", "--explain").stdout
        info = uroce("info", "--port", self.link, "--no-huge", "--json")
        self.assertEqual(info.returncode, 0, info.stderr)
        for name in json.loads(info.stdout)["counters"]:
            self.assertRegex(told, rf"(?m)^ {name} +\S+ \S+", "a clause, not a word")

    def test_a_program_that_is_run_prints_its_own(self):
        self.assert_fails(uroce("run", "--json", "--", "true"), USAGE, "--json")


class Json(Case):
    """It says what was measured, when, and by which uroce."""

    def assert_says_what_was_run(self, text, schema, *words):
        told = json.loads(text)
        self.assertEqual(told["schema"], f"uroce.{schema}/1")
        for word in words:
            self.assertIn(str(word), told["command"].split(" "))
        then = datetime.datetime.strptime(told["time"], "%Y-%m-%dT%H:%M:%S%z")
        age = datetime.datetime.now(datetime.timezone.utc) - then
        self.assertLess(abs(age.total_seconds()), 2 * SECONDS)
        self.assertEqual(told["config"]["no-huge"], "true")
        self.assertRegex(told["revision"], r"^\S+$")
        self.assertIn(told["trained"], (True, False))
        return told

    def test_of_single_commands(self):
        for words, schema in ((["info"], "info"), (["doctor", "--spin-ms", 0], "doctor"),
                              (["demo", "--quick"], "demo"),
                              (["bench", "link", "--rounds", 1, "--sample-ms", 10, "--rtt", 64, "--rate", 64,
                                "--stream", 4096], "bench.link"),
                              (["bench", "scale", "--quick", "--only", "tail"], "bench.scale"),
                              (["bench", "rate", "--rates", 1000, "--sample-ms", 10, "--rounds", 1],
                               "bench.rate")):
            with self.subTest(words=words):
                result = uroce(*words, "--json", "--no-huge", "--port", self.link)
                self.assertEqual(result.returncode, 0, result.stderr)
                told = self.assert_says_what_was_run(result.stdout, schema, *words, self.link)
                self.assertEqual(told["config"]["port"], self.link)

    def test_of_pairs(self):
        out, served = self.pair("perf", "send_lat", "-n", 10, "--json", "--mtu", 2000)
        told = self.assert_says_what_was_run(out, "perf", "send_lat", "localhost")
        self.assertEqual((told["config"]["mtu"], told["test_info"]["host"]), ("2000", "localhost"))
        self.assertRegex(told["test_info"]["gid"], r"^::ffff:10\.77\.0\.[12]$")
        self.assert_says_what_was_run(served, "perf.served", "send_lat")
        for out in self.pair("pingpong", "-n", 10, "--json"):
            self.assert_says_what_was_run(out, "pingpong", "-n", 10)

    def test_of_a_file_whose_name_is_not_utf8(self):
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/caf\udce9"  # Python's way to write the byte e9
            out, _ = self.pair("perf", "send_lat", "-n", 10, client_words=["--pcap", file])
            self.assertIn("t_typical", out)
            out, _ = self.pair("perf", "send_lat", "-n", 10, "--json", client_words=["--pcap", file])
            self.assertEqual(json.loads(out)["config"]["pcap"], f"{folder}/caf\ufffd")
            self.assertEqual([entry.name for entry in pathlib.Path(folder).iterdir()], ["caf\udce9"])


class Progress(Case):
    def test_without_a_terminal_there_is_a_line_now_and_then(self):
        result = uroce("bench", "rate", "--rates", 1000, "--sample-ms", 3000, "--rounds", 2, "--no-huge",
                       "--port", self.link)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"(?m)^288 B, 1000 a second: \w+ \([12]/2\)$")

    def test_each_second_of_a_test_that_runs_for_a_time_is_told(self):
        for test, told in (("write_bw", r"65536 bytes: [1-9]\d*\.\d\d MB/sec, \d\.\d{6} Mpps"),
                           ("send_bw -b --report_gbits", r"65536 bytes: \d+\.\d\d Gb/sec, .* Mpps, one way"),
                           ("send_lat", r"2 bytes: [1-9]\d* round trips a second")):
            with self.subTest(test=test):
                name, *words = test.split()
                words = ["perf", name, *words, "--port", self.link, "-p", self.port, "--no-huge", "-u", 20,
                         *PATIENT]
                with started(*words) as server:
                    client = uroce(*words, "-D", 3, "--json", "localhost")
                    self.assertEqual(client.returncode, 0, client.stderr)
                    server.communicate(timeout=SECONDS)
                self.assertEqual(json.loads(client.stdout)["schema"], "uroce.perf/1")
                lines = [line for line in client.stderr.splitlines() if not line.startswith("uroce: ")]
                self.assertIn(len(lines), (1, 2), client.stderr)  # two, unless a second is missed
                for line in lines:
                    self.assertRegex(line, rf"^{name}: [12] s: {told}$")


class Captures(Case):
    def test_whose_file_is_whose_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            result = uroce("bench", "rate", "--rates", 1000, "--sample-ms", 10, "--rounds", 1, "--no-huge",
                           "--port", self.link, "--pcap", f"{folder}/x")
            self.assertEqual(result.returncode, 0, result.stderr)
            files = sorted(map(str, pathlib.Path(folder).iterdir()))
        self.assertEqual(len(files), 2)
        self.assertIn(f"{folder}/x.LINK.client and {folder}/x.LINK.server", result.stderr)


class Results(Case):
    def common(self, *words):
        return ["perf", *words, "--port", self.link, "-p", self.port, "--no-huge", *PATIENT]

    def test_a_file_for_results_that_never_come_is_not_left(self):
        with tempfile.TemporaryDirectory() as folder:
            made, kept = pathlib.Path(folder, "made"), pathlib.Path(folder, "kept")
            kept.write_text("")
            result = uroce(*self.common("send_lat"), "--hgrm", made, "--out_json_file", kept, "localhost")
            self.assertNotEqual(result.returncode, 0)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [kept])

    def test_files_that_cannot_be_written_have_one_exit_code(self):
        for words in (["info", "--pcap"], ["info", "--counters"], ["perf", "read_lat", "localhost", "--hgrm"],
                      ["perf", "read_lat", "localhost", "--out_json_file"], ["bench", "rate", "--hgrm"]):
            with self.subTest(words=words):
                result = uroce(*words, "/nonexistent/x", "--port", self.link, "--no-huge")
                self.assert_fails(result, CONFIG, "/nonexistent/x", "No such file or directory")

    def test_a_server_tells_what_it_takes_in_vain(self):
        common = self.common("send_bw", "-n", 10)
        with started(*common, "-w", 1, "-y", 2, "--out_json") as server:
            client = uroce(*common, "localhost")
            self.assertEqual(client.returncode, 0, client.stderr)
            self.assertEqual(client.stderr, "")
            _, err = server.communicate(timeout=SECONDS)
        self.assertIn("--out_json_file, -w, -y are the client's: a server has no results", err)

    def test_what_a_server_lacks_for_a_test_its_client_tells(self):
        for words, host in (([], "localhost"), (["-R"], "10.77.0.1")):
            with self.subTest(words=words):
                common = self.common("write_bw", *words)
                with started(*common, "--max-qp", 4) as server:
                    server.stdout.readline()  # it has the link's first address
                    client = uroce(*common, "-q", 8, host)
                    _, err = server.communicate(timeout=SECONDS)
                self.assertNotEqual(server.returncode, 0)
                self.assertIn("4 QPs", err)
                self.assert_fails(client, PEER, "the peer: " + err.strip().removeprefix("uroce: "))

    def test_the_link_mtu_where_a_path_mtu_is_meant_is_told(self):
        told = "uroce: note: --mtu is the link's; the path MTU is -m"
        for test in (["perf", "send_lat"], ["pingpong"]):
            common = [*test, "-n", 10, "-m", 256, "--port", self.link, "-p", self.port, "--no-huge", *PATIENT]
            for mtu, is_told in ((1024, True), (4096, True), (2000, False)):
                with self.subTest(test=test, mtu=mtu), started(*common, "--mtu", mtu) as server:
                    server.stdout.readline()
                    client = uroce(*common, "--mtu", mtu, "localhost")
                    _, err = server.communicate(timeout=SECONDS)
                    for stderr in (client.stderr, err):
                        self.assertEqual(f"{told} {mtu}\n" in stderr, is_told, stderr)
                    self.assertEqual((client.returncode, server.returncode), (0, 0), client.stderr + err)

    def test_who_is_stopped_tells_what_was_measured_until_then(self):
        for test, column in (("send_lat", "t_typical"), ("read_lat", "t_typical"),
                             ("write_bw", "BW average")):
            with self.subTest(test=test):
                common = self.common(test, "-D", 600)
                with started(*common) as server, started(*common, "localhost") as client:
                    await_requests(server)
                    await_work(client)
                    client.send_signal(signal.SIGINT)
                    out, err = client.communicate(timeout=SECONDS)
                    _, server_err = server.communicate(timeout=SECONDS)
                self.assertEqual((client.returncode, err.count("uroce: ")), (128 + signal.SIGINT, 0), err)
                self.assertIn(column, out)
                self.assertEqual(server.returncode, PEER, server_err)
                self.assertRegex(server_err, "the peer (has ended|closed its TCP connection)")

    def test_who_loses_its_peer_tells_what_was_measured_until_then(self):
        for test in ("send_lat", "read_lat", "write_bw"):
            with self.subTest(test=test):
                common = self.common(test, "-D", 600, "--verify")
                with started(*common) as server, started(*common, "--json", "localhost") as client:
                    await_requests(server)
                    await_work(client)
                    server.send_signal(signal.SIGINT)
                    out, err = client.communicate(timeout=SECONDS)
                    server.communicate(timeout=SECONDS)
                self.assertEqual(client.returncode, PEER, err)
                result = json.loads(out)
                row = result["results"][0]
                self.assertGreater(row["n_iterations"], 0)
                self.assertIn(row["ended"], err)
                self.assertIsNone(result["verified"])

    def test_the_rate_of_long_messages_is_as_exact_in_json_as_in_the_table(self):
        out, _ = self.pair("perf", "write_bw", "-s", 8 << 20, "-n", 20, "--json")
        row = json.loads(out)["results"][0]
        self.assertAlmostEqual(row["MsgRate"] * 1e6 * 8, row["BW_average"], delta=8)


def await_work(client):
    """Returns once a client has long been past its warm-up: it lasts 500 operations, or 0.2 s."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        told = json.loads(uroce("stat", client.pid, "--json").stdout)
        if told["devices"][0]["counters"].get("requester_messages", {"total": 0})["total"] >= 2000:
            return
    raise AssertionError("it does nothing")


class Doctor(Case):
    def test_the_machine_is_told(self):
        result = uroce("doctor", "--json", "--spin-ms", 20, "--port", self.link, "--no-huge")
        self.assertEqual(result.returncode, 0, result.stderr)
        told = json.loads(result.stdout)
        self.assertEqual(told["schema"], "uroce.doctor/1")
        result, _ = self.pair("perf", "read_lat", "-n", 10, "--json")  # figures come with it
        self.assertEqual(json.loads(result)["machine"]["cpu"], told["machine"]["cpu"])
        self.assertEqual(set(told["machine"]["cores"]), os.sched_getaffinity(0))
        self.assertEqual(told["machine"]["kernel"], os.uname().release)
        self.assertEqual([one["grade"] for one in told["findings"] if one["what"] == "port"], ["ok"])
        self.assertIn("hiccups", [one["what"] for one in told["findings"]])

    def test_the_cores_are_those_that_there_were_before_it_was_pinned(self):
        core = min(os.sched_getaffinity(0))
        result, _ = self.pair("perf", "read_lat", "-n", 10, "--json", client_words=["--lcores", core])
        self.assertEqual(set(json.loads(result)["machine"]["cores"]), os.sched_getaffinity(0))

    def test_hiccups_are_those_of_the_cores_that_are_named(self):
        for core in os.sched_getaffinity(0):
            result = uroce("doctor", "--spin-ms", 5, "--lcores", core, "--port", self.link, "--no-huge")
            self.assertRegex(result.stdout, rf"hiccups +core {core}: ")
        result = uroce("doctor", "--spin-ms", 1, "--lcores", 1023, "--port", self.link, "--no-huge", "--json")
        found = [one for one in json.loads(result.stdout)["findings"] if one["what"] == "hiccups"]
        self.assertEqual([one["grade"] for one in found], ["WRONG"])
        self.assertIn("--lcores", found[0]["mend"])
        self.assertNotEqual(result.returncode, 0)

    def test_a_port_that_does_not_open_is_told_and_counts(self):
        words = ["--port", "af_packet:no-such-if", "--no-huge"]
        alone = uroce("info", *words)
        self.assertNotEqual(alone.returncode, 0)
        result = uroce("doctor", "--spin-ms", 0, *words)
        self.assertEqual(result.returncode, alone.returncode, result.stderr)
        self.assertIn(alone.stderr.strip().removeprefix("uroce: "), result.stdout)
        self.assertNotIn("hiccups", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
