#!/usr/bin/env python3
"""`uroce demo` and `uroce bench` keep their promises: verified data, complete rows, bounded time, JSON.

Usage: demo_test.py UROCE_PROGRAM
"""
import contextlib
import fcntl
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

UROCE = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/apps/uroce").resolve()
SECONDS = 60  # what the demo may take
# What runs in the background may have it ignored, and so would the programs that are started here.
signal.signal(signal.SIGINT, signal.default_int_handler)

HAS_UCX = os.path.exists("/usr/bin/ucx_perftest") and len(os.sched_getaffinity(0)) > 1
TESTS = {("rtt_p50", 64), ("rtt_p99", 64), ("rtt_p50", 288), ("rtt_p99", 288), ("send_rate", 64),
         ("write_goodput", 65536), ("write_goodput", 1 << 20)}


def run(*words, cores=None, **environment):
    pin = (lambda: os.sched_setaffinity(0, cores)) if cores else None
    return subprocess.run([UROCE, *map(str, words)], capture_output=True, text=True, timeout=SECONDS,
                          preexec_fn=pin, env=os.environ | environment)


def children_of(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Demo(unittest.TestCase):
    def setUp(self):
        self.port = f"shm:demo-test-{os.getpid()}-{id(self)}"

    def test_json_holds_verified_and_rows_for_every_test(self):
        result = run("demo", "--quick", "--json", "--no-huge")
        self.assertEqual(result.returncode, 0, result.stderr)
        demo = json.loads(result.stdout)
        self.assertEqual((demo["verified"], demo["errors"]), (True, 0), result.stderr)
        links = {row["link"] for row in demo["rows"]}
        self.assertIn("shm", links)
        for link in links:
            seen = {(row["test"], row["bytes"]) for row in demo["rows"] if row["link"] == link}
            self.assertEqual(seen, TESTS)
        for row in demo["rows"]:
            for name in ("link", "test", "bytes", "unit", "uroce", "raw", "tcp_spin", "tcp_block"):
                self.assertIn(name, row)
            self.assertGreater(row["uroce"], 0)
            self.assertGreater(row["tcp_block"], 0)
            self.assertEqual(row.get("list"), 32 if row["test"] == "send_rate" else None)
        if "memif" not in links:
            self.assertTrue(any("memif" in note for note in demo["notes"]), demo["notes"])

    def test_nothing_is_left_behind_when_it_is_interrupted(self):
        def until(is_so, what):
            end = time.monotonic() + 15
            while not is_so():
                self.assertLess(time.monotonic(), end, what)
                time.sleep(0.01)

        for how in (signal.SIGINT, signal.SIGKILL):
            with self.subTest(how.name), tempfile.TemporaryDirectory() as folder:
                demo = subprocess.Popen([UROCE, "demo", "--no-huge"], env={**os.environ, "TMPDIR": folder},
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                try:
                    until(lambda: list(pathlib.Path(folder).glob("uroce-demo-*/*")), "no socket")
                finally:
                    demo.send_signal(how)
                    demo.wait(SECONDS)
                until(lambda: not os.listdir(folder), "its directory is left")

    def test_its_progress_fits_a_narrow_terminal(self):
        for columns in (20, 1):
            master, slave = os.openpty()
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            demo = subprocess.Popen([UROCE, "demo", "--quick", "--no-huge", "--port", self.port],
                                    stdout=subprocess.DEVNULL, stderr=slave)
            os.close(slave)
            seen = b""
            with contextlib.suppress(OSError), open(master, "rb", buffering=0) as terminal:
                while more := terminal.read(4096):
                    seen += more
            self.assertEqual(demo.wait(SECONDS), 0)
            steps = [line for line in seen.split(b"\r\x1b[K") if b"\n" not in line]
            self.assertGreater(len(steps), 10)
            self.assertLess(max(map(len, steps)), columns)

    def test_without_a_directory_for_sockets_shm_is_left(self):
        self.assert_goes_on_with_shm("/nonexistent", "no directory")

    def test_so_it_is_where_no_port_can_name_a_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("x" * 100, "x" * (76 - len(folder)), "a,b"):  # the second: for that of the bare link
                path = pathlib.Path(folder, name)
                path.mkdir()
                with self.subTest(name=name):
                    self.assert_goes_on_with_shm(path, "its socket's path")
                    self.assertEqual(list(path.iterdir()), [])

    def assert_goes_on_with_shm(self, directory, why):
        result = run("demo", "--quick", "--json", "--no-huge", TMPDIR=str(directory))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual({row["link"] for row in json.loads(result.stdout)["rows"]}, {"shm"})
        self.assertRegex(result.stderr, f"(?m)^uroce: note: no memif.* {why}.* TMPDIR")

    def test_what_a_send_rate_is_of_is_told(self):
        for words, ucx in ((["demo", "--quick"], False),
                           (["bench", "link", "--rounds", 1, "--sample-ms", 10, "--rtt", 64, "--rate", 64,
                             "--stream", 4096], HAS_UCX)):
            with self.subTest(words=words):
                result = run(*words, "--no-huge", "--port", self.port)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("send_rate: uroce posts lists of 32 with one completion each", result.stdout)
                self.assertIn("by TCP and UDP each message is a call of its own", result.stdout)
                self.assertEqual("UCX's are means of whole runs of ucx_perftest" in result.stdout, ucx)

    def test_the_environment_names_the_port(self):
        os.environ["UROCE_PORT"] = self.port
        self.addCleanup(os.environ.pop, "UROCE_PORT")
        result = run("demo", "--quick", "--json", "--no-huge")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual({row["link"] for row in json.loads(result.stdout)["rows"]}, {"shm"})

    def test_addresses_that_both_ends_would_have_are_left_out(self):
        os.environ["UROCE_IP"] = "10.77.0.1/24"
        self.addCleanup(os.environ.pop, "UROCE_IP")
        common = ["--port", self.port, "--no-huge", "--json"]
        for words in (["demo", "--quick"], ["bench", "link", "--rounds", 1, "--sample-ms", 10, "--rtt", 64,
                                            "--rate", 64, "--stream", 4096],
                      ["bench", "scale", "--quick", "--only", "tail"],
                      ["bench", "rate", "--rates", 1000, "--sample-ms", 10, "--rounds", 1]):
            with self.subTest(words=words):
                result = run(*words, *common)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("--ip and UROCE_IP are left out", result.stderr)

    def test_text_is_one_table_with_ratios_and_what_to_try_next(self):
        result = run("demo", "--quick", "--port", self.port, "--no-huge")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count("uroce is"), 4)  # thrice in the head, once below
        self.assertIn("0 errors", result.stdout)
        for words in ("perf send_lat --no-huge ", "perf send_lat --no-huge localhost ",
                      "bench link --no-huge ", "--help\n"):
            self.assertIn(f"\n  {UROCE} {words}", result.stdout)  # as it was called
        self.assertNotIn("\x1b", result.stdout + result.stderr)

    def test_one_core_is_enough(self):
        core = {min(os.sched_getaffinity(0))}
        result = run("demo", "--quick", "--port", self.port, "--no-huge", "--json", cores=core)
        self.assertEqual(result.returncode, 0, result.stderr)
        demo = json.loads(result.stdout)
        self.assertTrue(demo["verified"])
        self.assertTrue(all(row["tcp_spin"] is None for row in demo["rows"]))

    def test_faults_do_not_reach_the_data(self):
        result = run("demo", "--quick", "--port", self.port, "--no-huge", "--json", "--seed", "3",
                     "--fault", "loss=0.1%,dup=1%,reorder=1%")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(json.loads(result.stdout)["verified"])

    def test_frames_that_a_capture_lacks_are_told(self):
        with tempfile.TemporaryDirectory() as folder:
            full = pathlib.Path(folder, "x.shm.server")
            full.symlink_to("/dev/full")
            result = run("demo", "--quick", "--port", self.port, "--no-huge", "--pcap", f"{folder}/x")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, rf"(?m)^uroce: note: \d+ frames are missing in {full}")
        self.assertNotIn("x.shm.client", result.stderr)

    def test_a_wrong_option_is_one_line_with_its_exit_code(self):
        result = run("demo", "--fault", "sharks=1%", "--no-huge")
        self.assertEqual(result.returncode, 19, result.stderr)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)

    def test_one_interface_is_no_link(self):
        for port in ("af_packet:eth0", "af_xdp:eth0", "tap:t0", "pci:0000:00:05.0"):
            result = run("demo", "--quick", "--no-huge", "--port", port)
            self.assertEqual(result.returncode, 10, result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            for part in ("shm:NAME", f"uroce bench link --port {port} --peer-port", "uroce perf"):
                self.assertIn(part, result.stderr)
        unknown = run("demo", "--quick", "--no-huge", "--port", "warp:9")
        self.assertEqual(unknown.returncode, 19, unknown.stderr)

    def test_a_killed_process_is_noticed(self):
        demo = subprocess.Popen([UROCE, "demo", "--port", self.port, "--no-huge"], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        try:
            self.assertIn("verified", demo.stderr.readline())
            children = children_of(demo.pid)
            self.assertGreaterEqual(len(children), 6)
            os.kill(children[2], signal.SIGKILL)  # the first two are TCP's
            begin = time.monotonic()
            _, err = demo.communicate(timeout=30)
            self.assertLess(time.monotonic() - begin, 20)
        finally:
            demo.kill()
            demo.communicate()
        self.assertEqual(demo.returncode, 1)
        self.assertIn("signal 9", err)

    def test_no_process_outlives_the_demo(self):
        demo = subprocess.Popen([UROCE, "demo", "--port", self.port, "--no-huge"], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        demo.stderr.readline()
        children = children_of(demo.pid)
        self.assertGreaterEqual(len(children), 6)
        demo.kill()
        demo.communicate()
        until = time.monotonic() + 5
        while any(self.is_running(child) for child in children) and time.monotonic() < until:
            time.sleep(0.01)
        self.assertFalse(any(self.is_running(child) for child in children))

    @staticmethod
    def is_running(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False


class BenchLink(unittest.TestCase):
    def test_it_shows_the_link_bare_with_crc_and_tcp(self):
        result = run("bench", "link", "--port", f"shm:bench-test-{os.getpid()}", "--no-huge", "--json",
                     "--rounds", 1, "--sample-ms", 30, "--rtt", 64, "--rate", 64, "--stream", 65536)
        self.assertEqual(result.returncode, 0, result.stderr)
        measured = json.loads(result.stdout)
        rows = measured["rows"]
        self.assertEqual([row["test"] for row in rows], ["rtt_p50", "rtt_p99", "send_rate", "write_goodput"])
        self.assertEqual([row.get("list") for row in rows], [None, None, 32, None])
        for row in rows:
            self.assertGreater(row["ref"], 0)
            self.assertGreater(row["raw"], 0)
        if len(os.sched_getaffinity(0)) > 1:
            self.assertGreater(measured["line_ns"]["most"], 0)
            self.assertEqual(set(measured["held_up"]), {"per_second", "percent"})
            self.assertTrue(0 <= measured["held_up"]["percent"] < 100, measured["held_up"])
            for row in rows[:3]:
                self.assertGreater(row["udp_spin"], 0, row)
        self.assertNotIn("udp_spin", rows[3], "no program sends 64 KiB so")
        if HAS_UCX:
            for row in (rows[0], *rows[2:]):
                self.assertGreater(row["ucx"], 0, row)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one core")
    def test_samples_tell_how_far_apart_they_are_and_who_took_the_cores(self):
        words = ["bench", "link", "--port", f"shm:bench-spread-{os.getpid()}", "--no-huge", "--rounds", 3,
                 "--sample-ms", 20, "--rtt", 64, "--rate", 64, "--stream", 65536]
        result = run(*words, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        measured = json.loads(result.stdout)
        contenders = {"uroce", "raw", "ref", "udp_spin", "tcp_spin", "tcp_block", "ucx"}
        for row in measured["rows"]:
            of_row = {name for name in contenders if row.get(name) is not None}
            self.assertEqual(set(row["spread"]), of_row, row)
            self.assertLessEqual(of_row, set(row["interruptions"]), row)
            self.assertTrue(all(spread >= 0 for spread in row["spread"].values()), row)
            self.assertGreater(sum(row["spread"].values()), 0, "no samples are all the same")
        by_case = {row["test"]: row for row in measured["rows"] if row["test"] != "rtt_p99"}
        self.assertEqual(sum(row["interruptions"]["uroce"] for row in by_case.values()),
                         measured["interruptions"])
        spreads = {row["test"]: row["spread"].get("uroce") for row in measured["rows"]}
        for goal in measured["goals"]:
            self.assertEqual(goal["spread"], spreads[goal["test"]], goal)
        # One before each sample and one behind the last.
        samples = 3 * sum(len(row["interruptions"]) for row in by_case.values())
        if not result.stderr:  # else a yardstick failed
            self.assertEqual(measured["looks"], samples + 1)
        text = run(*words)
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertIn(" spread ", text.stdout.splitlines()[0])
        self.assertRegex(text.stdout.splitlines()[1], r"^ shm +rtt_p50 +64 +us +[\d.]+ +\d+%")
        self.assertIn("Before and after each sample: a cache line", text.stdout)

    def test_on_one_core_no_goal_is_missed(self):
        core = min(os.sched_getaffinity(0))
        words = ["bench", "link", "--port", f"shm:bench-one-{os.getpid()}", "--no-huge", "--lcores", core,
                 "--rounds", 1, "--sample-ms", 30, "--rtt", 64, "--rate", 64, "--stream", 4096]
        result = run(*words, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["goals"], [])
        result = run(*words)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("On one core", result.stdout)
        self.assertNotIn("cache line", result.stdout)
        result = run("bench", "scale", "--port", f"shm:scale-one-{os.getpid()}", "--no-huge", "--quick",
                     "--json", "--only", "loops", "--lcores", core)
        self.assertEqual(result.returncode, 0, result.stderr)
        row = json.loads(result.stdout)["rows"][0]
        self.assertEqual((row["goal"], row["figure"], row["holds"]), ("15", None, None))

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one core")
    def test_what_the_goals_say_of_the_rows(self):
        result = run("bench", "link", "--port", f"shm:bench-goals-{os.getpid()}", "--no-huge", "--json",
                     "--rounds", 1, "--sample-ms", 30, "--rtt", 64, "--rate", 64, "--stream", 4096)
        self.assertEqual(result.returncode, 0, result.stderr)
        goals = json.loads(result.stdout)["goals"]
        self.assertLessEqual({"1", "4", "5", "6"}, {row["goal"] for row in goals})
        for row in goals:
            self.assertGreater(row["figure"], 0)
            beside_ref = row["goal"] in ("1", "3") and row["what"].endswith("beside ref")
            at_least = row["aim"] >= row["must"] and row["goal"] != "4" and not beside_ref
            reached = row["figure"] >= row["must"] if at_least else row["figure"] <= row["must"]
            self.assertEqual(row["holds"], reached, row)

    def test_frames_of_the_bare_link_are_no_longer_than_the_link_carries(self):
        seen = []
        while len(seen) < 10:  # in one of a few runs: either sample may be one in which others have the cores
            result = run("bench", "link", "--port", f"shm:bench-mtu-{os.getpid()}", "--mtu", 1500,
                         "--no-huge", "--json", "--rounds", 1, "--sample-ms", 30, "--rtt", 4096,
                         "--rate", 64, "--stream", 256)
            self.assertEqual(result.returncode, 0, result.stderr)
            rows = {row["test"]: row for row in json.loads(result.stdout)["rows"]}
            self.assertIsNone(rows["rtt_p50"]["raw"], "it takes several")
            self.assertGreater(rows["rtt_p50"]["uroce"], 0)
            for test in ("send_rate", "write_goodput"):
                self.assertGreater(rows[test]["raw"], 0, rows[test])
                self.assertGreater(rows[test]["ref"], 0, rows[test])
            goodput = rows["write_goodput"]
            seen.append((goodput["ref"], goodput["uroce"]))
            if goodput["ref"] < 20 * goodput["uroce"]:  # else they are not frames of 256 B
                return
        self.fail(f"ref and uroce: {seen}")

    def test_each_end_has_a_capture(self):
        with tempfile.TemporaryDirectory() as folder:
            result = run("bench", "link", "--port", f"shm:bench-pcap-{os.getpid()}", "--no-huge", "--json",
                         "--rounds", 1, "--sample-ms", 10, "--rtt", 64, "--rate", 64, "--stream", 4096,
                         "--pcap", f"{folder}/x")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(sorted(os.listdir(folder)), ["x.shm.client", "x.shm.server"])

    def test_memory_that_no_cache_holds(self):
        result = run("bench", "link", "--port", f"shm:bench-cold-{os.getpid()}", "--no-huge", "--json",
                     "--rounds", 1, "--sample-ms", 30, "--rtt", 64, "--rate", 64, "--stream", 128 << 20)
        self.assertEqual(result.returncode, 0, result.stderr)
        measured = json.loads(result.stdout)
        row = measured["rows"][-1]
        self.assertEqual((row["test"], row["bytes"]), ("write_goodput", 128 << 20))
        self.assertGreater(row["uroce"], 0)
        self.assertGreater(row["ref"], 0)
        self.assertIsNone(row["tcp_spin"], "its memory would be hot")
        if len(os.sched_getaffinity(0)) > 1:
            self.assertIn("8", {goal["goal"] for goal in measured["goals"]})


    def test_one_interface_needs_its_other_end_named(self):
        for words in (["af_packet:eth0"], ["af_packet:eth0", "--peer-port", "af_packet:eth0,ring=on"],
                      ["af_xdp:eth0"], ["af_xdp:eth0", "--peer-port", "af_xdp:eth1"]):
            result = run("bench", "link", "--no-huge", "--port", *words)
            self.assertEqual(result.returncode, 10, result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertIn("--peer-port", result.stderr)


class BenchScale(unittest.TestCase):
    TESTS = {"active-qps": 6, "idle-qps": 1, "memory": 1, "set-up": 1, "cm": 2, "icrc": 1, "loss": 4,
             "tail": 1, "loops": 1, "one-core": 2, "fairness": 3, "noisy": 2, "regions": 3,
             "calls": 3}

    def scale(self, *words):
        port = f"shm:scale-test-{os.getpid()}"
        return run("bench", "scale", "--port", port, "--no-huge", "--quick", *words)

    def test_each_figure_stands_beside_its_goal(self):
        result = self.scale("--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(result.stdout)["rows"]
        self.assertEqual({name: sum(row["test"] == name for row in rows) for name in self.TESTS}, self.TESTS)
        self.assertLessEqual({"9", "10", "11", "12", "13", "14", "15", "16", "T27"},
                             {row["goal"] for row in rows})
        measured = [row for row in rows if row["figure"] is not None]
        self.assertGreater(len(measured), len(rows) // 2, "some samples may be empty")
        for row in measured:
            self.assertGreater(row["figure"], 0, row)
            self.assertEqual(row["goal"] is None, row["holds"] is None, row)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one core")
    def test_what_the_host_did_meanwhile_is_told(self):
        measured = json.loads(self.scale("--json", "--only", "idle-qps,one-core").stdout)
        self.assertGreater(measured["line_ns"]["most"], 0)
        self.assertTrue(0 <= measured["held_up"]["percent"] < 100, measured["held_up"])
        # Two samples in turns with three looks; before and after each pair whose loops have threads.
        self.assertEqual(measured["looks"], 3 + 4)
        self.assertIn("Before and after each sample: a cache line", self.scale("--only", "tail").stdout)
        without = json.loads(self.scale("--json", "--only", "memory").stdout)
        self.assertEqual(without["looks"], 0, "nothing was sampled")

    def test_connections_by_cm_are_counted_and_timed(self):
        result = self.scale("--json", "--only", "cm")
        self.assertEqual(result.returncode, 0, result.stderr)
        rate, each = json.loads(result.stdout)["rows"]
        self.assertEqual((rate["unit"], each["unit"]), ("1/s", "us"))
        self.assertAlmostEqual(rate["value"] * each["value"], 1e6, delta=1)
        self.assertGreater(each["value"], 1, "it takes three messages")

    def test_a_loss_of_one_packet_is_a_loss(self):
        rows = json.loads(self.scale("--json", "--only", "tail").stdout)["rows"]
        self.assertGreater(rows[0]["value"], 100, "no sooner than the margin before a probe")

    def test_one_link_serves_one_pair_after_the_other(self):
        same_link = ("--peer-port", f"shm:scale-test-{os.getpid()}")
        result = self.scale("--json", "--only", "memory,tail,fairness", *same_link)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual({row["test"] for row in json.loads(result.stdout)["rows"]},
                         {"memory", "tail", "fairness"})
        result = self.scale("--only", "icrc", *same_link)
        self.assertEqual(result.returncode, 14, result.stderr)
        self.assertIn("icrc: compares several links", result.stderr)

    def test_a_link_that_must_be_there_needs_its_other_end_named(self):
        result = run("bench", "scale", "--port", "af_packet:lo", "--quick")
        self.assertEqual(result.returncode, 10, result.stderr)
        self.assertIn("--peer-port", result.stderr)

    def test_what_it_would_not_heed_is_refused(self):
        result = self.scale("--fault", "loss=1%")
        self.assertEqual(result.returncode, 10, result.stderr)
        self.assertIn("bench scale has faults of its own", result.stderr)
        self.assertEqual(self.scale("--qps", 300).returncode, 2)

    def test_frames_that_a_capture_lacks_are_told(self):
        with tempfile.TemporaryDirectory() as folder:
            full = pathlib.Path(folder, "x.tail.client")
            full.symlink_to("/dev/full")
            result = self.scale("--only", "tail", "--pcap", f"{folder}/x")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, rf"(?m)^uroce: note: \d+ frames are missing in {full}:")

    def test_loops_have_a_capture_of_their_own(self):
        with tempfile.TemporaryDirectory() as folder:
            result = self.scale("--only", "loops", "--pcap", f"{folder}/x")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(os.listdir(folder), ["x.loops.server"])

    def test_text_is_one_table_that_fits_a_terminal(self):
        result = self.scale("--only", "memory,idle-qps")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("memory of a QP", result.stdout)
        self.assertNotIn("regions", result.stdout)
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 120)


class BenchRate(unittest.TestCase):
    SYSTEMS = ["uroce", "tcp_spin"] if len(os.sched_getaffinity(0)) > 1 else ["uroce", "tcp_block"]
    FIGURES = ("achieved", "p50", "p99", "p999", "max", "cpu_s_per_million")

    def rate(self, *words):
        port = f"shm:rate-test-{os.getpid()}"
        return run("bench", "rate", "--port", port, "--no-huge", "--rounds", 2, *words)

    def assert_adds_up(self, row, sample_ms):
        self.assertEqual(set(row), {*self.FIGURES, "bytes", "offered", "system", "saturated", "spread",
                                    "times_as_fast_as_tcp_spin", "samples"})
        self.assertEqual(len(row["samples"]), 2)
        self.assertEqual(row["max"], max((sample["max"] or 0 for sample in row["samples"])) or None)
        for sample in row["samples"]:
            self.assertEqual(sample["offered"], row["offered"] * sample_ms // 1000)
            self.assertLessEqual(sample["answered"], sample["offered"])
            self.assertLessEqual(sample["achieved"] or 0, row["offered"])
            if sample["answered"] < 0.98 * sample["offered"]:
                self.assertTrue(sample["saturated"], sample)
            for name, least in (("p50", 200), ("p99", 10_000), ("p999", 100_000)):
                self.assertEqual(sample[name] is not None, sample["answered"] >= least, (name, sample))
            told = [sample[name] for name in ("p50", "p99", "p999", "max") if sample[name] is not None]
            self.assertEqual(told, sorted(told))
            self.assertEqual(sample["max"] is not None, sample["answered"] > 0)
            if sample["answered"] > 100:  # else the machine may have had no time for it
                self.assertGreater(sample["achieved"], 0)
                self.assertGreater(sample["cpu_s_per_million"], 0)

    def test_each_system_has_a_row_for_each_size_and_rate(self):
        result = self.rate("--json", "--rates", "10000,100000", "--sizes", "1,4096", "--sample-ms", 100)
        self.assertEqual(result.returncode, 0, result.stderr)
        measured = json.loads(result.stdout)
        self.assertEqual((measured["schema"], measured["unit"]), ("uroce.bench.rate/1", "us"))
        self.assertLessEqual({"machine", "port", "path_mtu", "cores", "line_ns", "tcp"}, set(measured))
        rows = measured["rows"]
        self.assertEqual([(row["bytes"], row["offered"], row["system"]) for row in rows],
                         [(size, rate, system) for size in (1, 4096) for rate in (10_000, 100_000)
                          for system in self.SYSTEMS])
        for row in rows:
            self.assert_adds_up(row, 100)
            if row["system"] == "tcp_spin" and row["p50"] is not None and not row["saturated"]:
                self.assertEqual(row["times_as_fast_as_tcp_spin"]["p50"], 1)

    def test_a_rate_that_nothing_reaches_is_told(self):
        result = self.rate("--json", "--rates", 100_000_000, "--sample-ms", 20)
        self.assertEqual(result.returncode, 0, result.stderr)
        for row in json.loads(result.stdout)["rows"]:
            self.assert_adds_up(row, 20)
            self.assertTrue(row["saturated"])
            self.assertIsNone(row["times_as_fast_as_tcp_spin"]["p50"])

    def test_lost_messages_are_sent_again_and_count(self):
        result = self.rate("--json", "--rates", 20_000, "--sample-ms", 50, "--fault", "loss=1%,dup=1%",
                           "--seed", 3)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assert_adds_up(json.loads(result.stdout)["rows"][0], 50)

    def test_text_is_one_table_with_what_its_words_mean(self):
        with tempfile.TemporaryDirectory() as folder:
            result = self.rate("--rates", 5000, "--sample-ms", 20, "--tcp-block", "--hgrm", folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            systems = [*self.SYSTEMS, "tcp_block"][:3]
            self.assertEqual(sorted(os.listdir(folder)),
                             sorted({f"{system}-288B-5000-{n}.hgrm" for system in systems for n in (1, 2)}))
            for file in pathlib.Path(folder).iterdir():
                self.assertRegex(file.read_text(), r"Total count    = +\d+\]")
        self.assertIn("TCP block", result.stdout)
        self.assertIn("n/a", result.stdout, "one in a thousand of a hundred")
        self.assertIn("Open loop", result.stdout)
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 120)

    def test_what_was_measured_before_a_failure_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ["bench", "rate", "--port", f"shm:rate-test-{os.getpid()}", "--no-huge", "--rates", 1000,
                     "--rounds", 100, "--sample-ms", 100, "--json", "--hgrm", folder]
            with subprocess.Popen([UROCE, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) as bench:
                end = time.monotonic() + SECONDS
                while len(os.listdir(folder)) < 4 and time.monotonic() < end:  # two rounds
                    time.sleep(0.02)
                os.kill(children_of(bench.pid)[-1], signal.SIGKILL)
                out, err = bench.communicate(timeout=SECONDS)
        self.assertEqual(bench.returncode, 23, err)
        measured = json.loads(out)
        self.assertIn("was ended by signal 9", err)
        self.assertIn(measured["ended"], err)
        self.assertEqual([row["system"] for row in measured["rows"]], self.SYSTEMS)
        for row in measured["rows"]:
            self.assertEqual(row["ended"], measured["ended"])
            self.assertIn(len(row["samples"]), range(1, 100))

    def test_on_one_core_nobody_spins(self):
        core = min(os.sched_getaffinity(0))
        result = self.rate("--json", "--rates", 1000, "--sample-ms", 50, "--lcores", core)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([row["system"] for row in json.loads(result.stdout)["rows"]], ["uroce", "tcp_block"])

    def test_what_makes_no_sense_is_one_line_with_its_exit_code(self):
        for words in (["--rates", 0], ["--rates", 200_000_000], ["--rates", "many"], ["--sizes", 0],
                      ["--sizes", 4097], ["--sample-ms", 1]):
            result = self.rate(*words)
            self.assertEqual(result.returncode, 2, (words, result.stderr))
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertIn(words[0], result.stderr)
        result = self.rate("--hgrm", "/nonexistent")
        self.assertEqual(result.returncode, 19, result.stderr)
        self.assertIn("/nonexistent cannot be written: No such file", result.stderr)
        result = self.rate("--port", "af_packet:eth0")
        self.assertEqual(result.returncode, 10, result.stderr)
        self.assertIn("--peer-port", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
