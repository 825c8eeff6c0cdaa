#!/usr/bin/env python3
"""The uroce program from outside: command lines, configuration, exit codes, commands between two processes.

Usage: cli_test.py UROCE_PROGRAM
"""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import tcp_ports

UROCE = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/apps/uroce").resolve()
SECONDS = 60
PATIENT = ["--keepalive-ms", 0]  # a busy machine may stop a program for longer than usual
# What runs in the background may have it ignored, and so would the programs that are started here.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # as nohup has it
    signal.signal(signal.SIGHUP, lambda *_: None)

USAGE, NOT_FOUND, NAME_IN_USE, PERMISSION, CONFIG, TIMEOUT, UNSUPPORTED, PEER = 2, 15, 16, 18, 19, 20, 21, 23


def clean_environment(**more):
    own = {name: value for name, value in os.environ.items() if not name.startswith("UROCE_")}
    return own | {name: str(value) for name, value in more.items()}


def uroce(*words, env=None, timeout=SECONDS):
    return subprocess.run([UROCE, *map(str, words)], capture_output=True, text=True, timeout=timeout,
                          env=env or clean_environment())


@contextlib.contextmanager
def started(*words, prefix=()):
    process = subprocess.Popen([*prefix, UROCE, *map(str, words)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=clean_environment())
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=SECONDS)


def await_requests(server):
    """Returns once requests of a client come in at a process."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        told = uroce("stat", server.pid, "--json", "--interval-ms", 200)
        if told.returncode == 0 and "responder_packets" in json.loads(told.stdout)["devices"][0]["counters"]:
            return
    raise AssertionError("no request comes in")


class Case(unittest.TestCase):
    def setUp(self):
        self.link = f"shm:cli-test-{os.getpid()}-{id(self)}"
        self.port = self.enterContext(tcp_ports.reserved())

    def assert_fails(self, result, code, *parts):
        """One line on stderr, nothing on stdout."""
        self.assertEqual(result.returncode, code, result.stderr)
        lines = result.stderr.strip().splitlines()
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith("uroce: "), lines[0])
        for part in parts:
            self.assertIn(part, lines[0])

    def pair(self, *words, server_words=(), client_words=()):
        """Runs server and client to their ends. @return (client's stdout, server's stdout)"""
        common = [*words, "--port", self.link, "-p", self.port, "--no-huge"]
        with started(*common, *server_words) as server:
            client = uroce(*common, *client_words, "localhost")
            self.assertEqual(client.returncode, 0, client.stderr)
            out, err = server.communicate(timeout=SECONDS)
            self.assertEqual(server.returncode, 0, err)
        return client.stdout, out

    def assert_ends_with(self, killed, *words):
        """Of a `uroce perf` of these words that is under way, the one side ends with the other one."""
        words = ["perf", *words, "--port", self.link, "-p", self.port, "--no-huge"]
        with started(*words) as server, started(*words, "localhost") as client:
            await_requests(server)
            victim, other = (server, client) if killed == "server" else (client, server)
            victim.send_signal(signal.SIGKILL)
            _, err = other.communicate(timeout=SECONDS)
            self.assertEqual(other.returncode, PEER, err)


class CommandLine(Case):
    def test_the_version_is_printed(self):
        result = uroce("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^uroce \d+\.\d+\.\d+\n$")

    def test_every_command_explains_itself(self):
        tests = [f"{verb}_{what}" for verb in ("send", "write", "read", "atomic") for what in ("lat", "bw")]
        commands = (["demo"], ["ping"], ["pingpong"], ["info"], ["config"], ["doctor"],
                    ["bench", "link"], ["bench", "scale"])
        for words in (*commands, *(["perf", test] for test in tests)):
            result = uroce(*words, "--help")
            self.assertEqual(result.returncode, 0, words)
            for option in ("--port", "--ip", "--mtu", "--mode", "--lcores", "--no-huge", "--fault", "--pcap",
                           "--json", "--config"):
                self.assertIn(option, result.stdout, words)

    def test_defaults_are_told(self):
        told = uroce("perf", "send_bw", "--help").stdout
        for part in ("--tcp-port UINT=18515", "--iters UINT", "=5000", "=65536"):
            self.assertIn(part, told)
        self.assertNotIn("\0", told)

    def test_a_senseless_command_line_is_one_line_and_exit_code_2(self):
        for words in ([], ["fly"], ["info", "--wings"], ["perf"], ["perf", "send_lat", "-s", "zero"],
                      ["perf", "send_lat", "-s", "0"], ["pingpong", "-m", "1000"],
                      ["bench", "link", "--rounds", "0"], ["bench", "scale", "--qps", "0"],
                      ["bench", "scale", "--only", "wings"]):
            self.assert_fails(uroce(*words), USAGE, "--help")

    def test_ports_that_nobody_can_be_told_are_refused(self):
        for words in (["perf", "send_lat", "localhost"], ["pingpong", "localhost"], ["ping", "10.0.0.1"]):
            for port in ("0", "65536", "-1"):
                with self.subTest(words=words, port=port):
                    self.assert_fails(uroce(*words, "-p", port), USAGE, f"{port} is no port", "1 to 65535")

    def test_what_is_mistaken_most_is_told_with_the_right_words(self):
        for words, right in ((["fly"], "uroce has no fly; its commands: demo, perf"),
                             (["perf", "latency"], "its commands: send_lat, send_bw"),
                             (["perf", "ib_send-lat"], "did you mean `uroce perf send_lat`?"),
                             (["send_lat", "localhost"], "did you mean `uroce perf send_lat`?"),
                             (["info", "--no_huge"], "does not take --no_huge: did you mean --no-huge?"),
                             (["run", "--no_huge", "--", "ls"], "did you mean --no-huge?"),
                             (["perf", "send_bw", "--Iter=5"], "did you mean --iters?"),
                             (["perf", "send_bw", "-size", 64], "--size: 'ize' is not a whole number"),
                             (["pingpong", "-s=64"], "--size: '=64' is not a whole number"),
                             (["perf", "send_bw", "-s"], "uroce: --size needs a value; see"),
                             (["bench", "scale", "--qps", "1k"], "--qps: '1k' is not a whole number"),
                             (["perf", "send_bw", "-n", "-5"], "--iters: Value -5 not in range 1 to"),
                             (["perf", "send_bw", "-w", "abc"], "--limit_bw: Value abc not in range 0.0"),
                             (["ping", "-C", "-1", "10.0.0.1"], "--count: Value -1 not in range 0 to"),
                             (["pingpong", "--give-up", "-1"], "--give-up: Value -1 not in range 0 to 86400"),
                             (["bench"], "uroce bench needs a command: link, scale, rate"),
                             (["perf", "send_lat", "-b"],
                              "does not take -b; see `uroce perf send_lat --help`"),
                             (["perf", "send_bw", "--use-srq"], "uroce run -- ib_send_bw --use-srq"),
                             (["perf", "write_bw", "--ipv6"], "does not take --ipv6: -x N takes"),
                             (["perf", "read_bw", "-W", "x"], "--counters FILE"),
                             (["perf", "send_bw", "--rate_limit=5"], "it sends as fast as it may"),
                             (["--port", "shm:x", "perf", "send_lat"],
                              "options follow the command: uroce perf send_lat --port shm:x"),
                             (["run", "ib_send_lat", "-d", "x"], "uroce run -- PROGRAM")):
            self.assert_fails(uroce(*words), USAGE, right)
        self.assert_fails(uroce("perf", "send_lat", "--port", "18515"), CONFIG, "-p 18515")
        self.assert_fails(uroce("info", "--port", "eth7"), CONFIG, "af_packet:eth7")


class Configuration(Case):
    def config(self, *words, env=None):
        result = uroce("config", "--json", *words, env=env)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_an_empty_flag_wins_too(self):
        fault = self.config("--fault", "", env=clean_environment(UROCE_FAULT="loss=1%"))["fault"]
        self.assertEqual((fault["value"], fault["origin"]), ("", "flag"))

    def test_a_flag_wins_over_environment_file_and_default(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('mtu = 2000\nmode = "auto"\nseed = 7\n')
            file.flush()
            env = clean_environment(UROCE_MTU=3000, UROCE_MODE="lcore", UROCE_CONFIG=file.name)
            keys = self.config("--mtu", "4000", env=env)
        names = ("mtu", "mode", "seed", "fault")
        seen = {name: (keys[name]["value"], keys[name]["origin"]) for name in names}
        self.assertEqual(seen, {"mtu": ("4000", "flag"), "mode": ("lcore", "environment"),
                                "seed": ("7", "file"), "fault": ("", "default")})

    def test_a_file_that_repeats_a_default_is_still_its_origin(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('mode = "app"\n')
            file.flush()
            keys = self.config("--config", file.name)
        self.assertEqual(keys["mode"]["origin"], "file")
        self.assertEqual(keys["mode"]["from"], file.name)
        self.assertEqual(keys["port"]["origin"], "default")

    def test_a_file_is_the_origin_of_what_it_names_and_of_nothing_else(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('mode = "app"\ncredits = true\n')
            file.flush()
            keys = self.config("--config", file.name)
        self.assertEqual({name for name, key in keys.items() if key["origin"] == "file"}, {"mode", "credits"})

    def test_addresses_may_be_repeated_or_listed(self):
        keys = self.config("--ip", "10.0.0.1/24", "--ip", "fd00::1/64")
        self.assertEqual(keys["ip"]["value"], "10.0.0.1/24,fd00::1/64")
        self.assertEqual(self.config("--ip", "10.0.0.1/24,fd00::1/64")["ip"], keys["ip"])

    def test_an_option_takes_one_value(self):
        self.assert_fails(uroce("info", "--port", "shm:a", "shm:b"), USAGE, "shm:b")

    def test_wrong_values_are_told_with_those_allowed(self):
        self.assert_fails(uroce("info", "--mtu", "5"), CONFIG, "--mtu", "352..9600")
        self.assert_fails(uroce("info", "--mode", "warp"), CONFIG, "lcore, app or auto")
        self.assert_fails(uroce("info", env=clean_environment(UROCE_MTU="x")), CONFIG, "UROCE_MTU")
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write("mtu = 2000\nspeed = 9\n")
            file.flush()
            self.assert_fails(uroce("info", "--config", file.name), CONFIG, f"{file.name}:2", "speed")

    def test_ports_and_faults_that_nobody_can_open_are_told_with_where_they_are_from(self):
        for key, value, hint in (("port", "warp:9", "known: shm, memif"),
                                 ("port", "shm:a b", "e.g. shm:demo"),
                                 ("port", "shm:x,rign=1M", "known: ring=, ends=, side="),
                                 ("fault", "lose=1%", "known: loss, dup"),
                                 ("lcores", "0-2", "name 2")):
            with self.subTest(key=key, value=value), \
                 tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                file.write(f'{key} = "{value}"\n')
                file.flush()
                variable = f"UROCE_{key.upper()}"
                for words in (["config"], ["run", "--env"], ["info"]):
                    self.assert_fails(uroce(*words, f"--{key}", value), CONFIG, hint)
                    self.assert_fails(uroce(*words, "--config", file.name), CONFIG, f"{file.name}: ", hint)
                    self.assert_fails(uroce(*words, env=clean_environment(**{variable: value})), CONFIG,
                                      f"environment: {variable}: ", hint)
        missing = uroce("config", "--fault", "@/no/such/file")
        self.assert_fails(missing, NOT_FOUND, "/no/such/file")
        self.config("--port", "af_packet:nosuchport0", "--fault", "loss=1%", "--lcores", "0,1")

    def test_ucx_is_told_to_deregister_memory_before_it_gives_it_back(self):
        name = "UCX_IB_REG_METHODS"
        own = clean_environment()
        own.pop(name, None)
        self.assertIn(f"export {name}='direct'\n", uroce("run", "--env", env=own).stdout)
        self.assertNotIn(name, uroce("run", "--env", env=own | {name: "rcache"}).stdout)

    def test_addresses_that_no_host_has_are_told_why(self):
        network, broadcast, not_one = "the address of the network", "the broadcast address", "not a unicast"
        for address, what in (("10.0.0.0/24", network), ("fd00::/64", network), ("10.0.0.255/24", broadcast),
                              ("10.3.255.255/14@5", broadcast), ("224.0.0.1/24", not_one),
                              ("0.0.0.0/8", not_one), ("::/64", not_one),
                              ("127.0.0.1/8", "an address of the loopback interface"),
                              ("::1/128", "an address of the loopback interface")):
            with self.subTest(address=address):
                self.assert_fails(uroce("config", "--ip", address), CONFIG, f"--ip: '{address}' is {what}",
                                  "such as 10.0.0.1/24")
        two = "10.0.0.0/31,10.0.0.3/31,10.0.0.255/32,fd00::/127,10.0.255.0/16"
        self.assertEqual(self.config("--ip", two)["ip"]["value"], two)

    def test_a_port_that_does_not_exist_is_told_before_anything_else(self):
        self.assert_fails(uroce("info", "--port", "warp:9"), CONFIG, "warp")
        missing = uroce("info", "--port", "af_packet:nosuchport0", "--no-huge")
        self.assert_fails(missing, missing.returncode)
        self.assertIn(missing.returncode, (NOT_FOUND, PERMISSION, UNSUPPORTED))


class Info(Case):
    def test_it_prints_addresses_limits_and_counters(self):
        result = uroce("info", "--port", self.link, "--ip", "10.1.2.3/24", "--no-huge", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        info = json.loads(result.stdout)
        self.assertTrue(info["gids"][0]["gid"].startswith("fe80::"))
        expected = {"gid": "::ffff:10.1.2.3", "prefix_len": 24, "vlan": 0, "type": "RoCE v2"}
        self.assertEqual(info["gids"][1], expected)
        self.assertRegex(info["mac"], r"^([0-9a-f]{2}:){5}[0-9a-f]{2}$")
        self.assertIn("max_qp_wr", info["limits"])
        self.assertTrue(info["counters"])
        text = uroce("info", "--port", self.link, "--no-huge")
        self.assertEqual(text.returncode, 0)
        self.assertIn("path MTU", text.stdout)

    def test_counters_that_cannot_be_written_are_told_once(self):
        full = "uroce: counters: '/dev/full': No space left on device"
        alone = uroce("info", "--port", self.link, "--no-huge", "--counters", "/dev/full")
        self.assertEqual(alone.returncode, 0, alone.stderr)
        self.assertEqual(alone.stderr.splitlines(), [full])
        words = ["perf", "send_lat", "-R", "--port", self.link, "-p", self.port, "--no-huge", "-n", 10,
                 *PATIENT, "--counters", "/dev/full"]  # those of its communication manager, too
        with started(*words, "--ip", "10.5.0.1/24") as server:
            client = uroce(*words, "--ip", "10.5.0.2/24", "10.5.0.1")
            _, err = server.communicate(timeout=SECONDS)
        for said in (client.stderr, err):
            self.assertEqual(said.splitlines(), [full])


class Perf(Case):
    COLUMNS = ["#bytes", "#iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]", "t_avg[usec]",
               "t_stdev[usec]", "99%", "percentile[usec]", "99.9%", "percentile[usec]"]

    def test_latency_tables_have_perftests_columns_and_say_which_half(self):
        out, _ = self.pair("perf", "send_lat", "-n", 2000, "-s", 64, "--verify")
        lines = out.splitlines()
        half = next(i for i, line in enumerate(lines) if line.startswith("RTT/2"))
        full = next(i for i, line in enumerate(lines) if line.startswith("RTT:"))
        for title in (half, full):
            self.assertEqual(lines[title + 1].split(), self.COLUMNS)
        typical = [float(lines[title + 2].split()[4]) for title in (half, full)]
        self.assertAlmostEqual(2 * typical[0], typical[1], delta=0.002)
        self.assertEqual(lines[half + 2].split()[:2], ["64", "2000"])
        self.assertIn("0 data errors", out)

    def test_each_test_verifies_its_data(self):
        for test, words in (("send_lat", ["-s", 4097]), ("send_lat", ["-Q", 0]),
                            ("write_lat", ["-s", 1, "-Q", 3]), ("read_lat", ["-s", 70000]),
                            ("atomic_lat", []), ("atomic_lat", ["-A", "CMP_AND_SWAP"]),
                            ("send_bw", ["-s", 5000, "-l", 8]), ("write_bw", ["-s", 100, "-q", 3, "-Q", 7]),
                            ("read_bw", ["-s", 9000, "-o", 4]), ("atomic_bw", ["-q", 2]),
                            ("atomic_bw", ["-A", "CMP_AND_SWAP"])):
            with self.subTest(test=test, words=words):
                out, _ = self.pair("perf", test, "-n", 300, "--verify", "--json", *words)
                result = json.loads(out)
                self.assertEqual(result["verified"], True)
                self.assertEqual(result["data_errors"], 0)
                self.assertEqual(result["test_info"]["test"], test)

    def test_both_sides_can_send(self):
        for test in ("send_bw", "write_bw", "read_bw"):
            with self.subTest(test=test):
                out, _ = self.pair("perf", test, "-n", 400, "-s", 3000, "-b", "--verify", "--json")
                row = json.loads(out)["results"][0]
                self.assertEqual(row["n_iterations"], 800)

    def test_all_sizes_are_run(self):
        out, _ = self.pair("perf", "write_bw", "-a", "-n", 20, "--json")
        sizes = [row["MsgSize"] for row in json.loads(out)["results"]]
        self.assertEqual(sizes, [1 << i for i in range(1, 24)])

    def test_json_has_perftests_names(self):
        out, _ = self.pair("perf", "read_lat", "-n", 1000, "--json")
        result = json.loads(out)
        self.assertEqual(result["test_info"]["row_is"], "rtt")
        row = result["results"][0]
        for name in ("MsgSize", "n_iterations", "t_min", "t_max", "t_typical", "t_avg", "t_stdev",
                     "percentile_99", "percentile_99.9", "rtt", "half_rtt"):
            self.assertIn(name, row)
        self.assertIsNone(row["percentile_99.9"], "one sample in a thousand is no percentile")
        out, _ = self.pair("perf", "send_bw", "-n", 100, "--json", "--report_gbits")
        row = json.loads(out)["results"][0]
        self.assertEqual(set(row), {"MsgSize", "n_iterations", "BW_peak", "BW_average", "MsgRate"})

    def test_a_duration_replaces_iterations(self):
        for test in ("send_lat", "write_bw"):
            out, _ = self.pair("perf", test, "-D", 1, "--json")
            self.assertGreater(json.loads(out)["results"][0]["n_iterations"], 10)

    def test_another_test_at_the_server_is_refused(self):
        with started("perf", "send_bw", "--port", self.link, "-p", self.port, "--no-huge") as server:
            client = uroce("perf", "write_bw", "--port", self.link, "-p", self.port, "--no-huge", "localhost")
            self.assert_fails(client, PEER, "send_bw", "write_bw")
            server.communicate(timeout=SECONDS)
            self.assertEqual(server.returncode, PEER)

    def test_without_a_server_the_client_says_so(self):
        result = uroce("perf", "send_lat", "--port", self.link, "-p", self.port, "--no-huge", "localhost")
        self.assert_fails(result, PEER, "start the server", "with -R only")

    def test_ends_that_cannot_meet_are_told_why(self):
        v4, v6 = ["--ip", "10.5.0.1/24"], ["--ip", "fd00::1/64"]
        for test in (["perf", "send_lat"], ["pingpong"]):
            common = [*test, "-p", self.port, "--no-huge", "--port"]
            for server_words, client_words, part in (
                    ([self.link], [self.link + "x"], f"nobody has the other end of {self.link}x open"),
                    ([self.link, *v4], [self.link, *v4], "both ends have the address ::ffff:10.5.0.1"),
                    ([self.link, *v4], [self.link, *v6], "give both one by --ip")):
                with self.subTest(test=test, part=part), started(*common, *server_words) as server:
                    server.stdout.readline()
                    client = uroce(*common, *client_words, "localhost")
                    if "both one" in part and test == ["pingpong"]:  # the server is the first to see it
                        self.assertIn(part, server.communicate(timeout=SECONDS)[1])
                    else:
                        self.assert_fails(client, client.returncode, part)
                    self.assertIn(client.returncode, (10, PEER))

    def test_a_killed_server_ends_the_client(self):
        words = ["perf", "send_lat", "--port", self.link, "-p", self.port, "--no-huge", "-D", 30]
        with started(*words) as server, started(*words, "localhost") as client:
            await_requests(server)
            server.send_signal(signal.SIGKILL)
            _, err = client.communicate(timeout=SECONDS)
            self.assertEqual(client.returncode, PEER, err)
            self.assertEqual(err.count("uroce: "), 1, err)

    def test_rdma_cm_agrees_and_connects_without_tcp(self):
        for test, words in (("send_lat", ["-s", 64]), ("write_lat", ["-s", 8]), ("read_lat", ["-s", 5000]),
                            ("atomic_lat", []), ("send_bw", ["-s", 5000, "-q", 3]),
                            ("write_bw", ["-q", 2, "-b"]),
                            ("read_bw", ["-s", 9000, "-m", 1024]), ("atomic_bw", ["-q", 2])):
            with self.subTest(test=test, words=words):
                common = ["perf", test, "-R", "--port", self.link, "-p", self.port, "--no-huge", "-n", 300]
                common += [*PATIENT, *words]
                with started(*common, "--ip", "10.5.0.1/24") as server:
                    client = uroce(*common, "--ip", "10.5.0.2/24", "--verify", "--json", "10.5.0.1")
                    self.assertEqual(client.returncode, 0, client.stderr)
                    result = json.loads(client.stdout)
                    self.assertEqual((result["verified"], result["data_errors"]), (True, 0))
                    out, err = server.communicate(timeout=SECONDS)
                    self.assertEqual(server.returncode, 0, err)
                    told = f"uroce perf {test} -R -p {self.port} 10.5.0.1"
                    self.assertIn(f"RDMA-CM port {self.port} ({told})", out)

    def test_rdma_cm_with_other_tests_or_nobody_there(self):
        common = ["--port", self.link, "-p", self.port, "--no-huge", "-R", *PATIENT]
        with started("perf", "send_bw", *common, "--ip", "10.5.0.1/24") as server:
            client = uroce("perf", "write_bw", *common, "--ip", "10.5.0.2/24", "10.5.0.1")
            self.assert_fails(client, PEER, "send_bw", "write_bw")
            server.communicate(timeout=SECONDS)
            self.assertEqual(server.returncode, PEER)
        client = uroce("perf", "send_bw", *common, "--ip", "10.5.0.2/24", "10.5.0.1")
        self.assert_fails(client, TIMEOUT, "10.5.0.1")
        client = uroce("perf", "send_bw", *common, "localhost")
        self.assert_fails(client, 10, "localhost is the kernel's", "which servers print")

    def test_an_empty_name_makes_no_server(self):
        for words in (["perf", "send_lat"], ["pingpong"]):
            with self.subTest(words=words):
                self.assert_fails(uroce(*words, "--no-huge", ""), USAGE, "name is empty")

    def test_a_tcp_port_in_use_is_told(self):
        with socket.socket(socket.AF_INET6) as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("::", self.port))
            other.listen()
            result = uroce("perf", "send_lat", "--port", self.link, "-p", self.port, "--no-huge")
        self.assert_fails(result, NAME_IN_USE, str(self.port))
        self.assertEqual(result.stdout, "", "it waits for nobody")

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one core")
    def test_qps_are_spread_over_the_loops(self):
        cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:2])
        for mode, words in (("lcore", ["-q", 4, "-b"]), ("auto", ["-q", 3, "-e"])):
            with self.subTest(mode=mode):
                words += ["--mode", mode, "--lcores", cores]
                out, _ = self.pair("perf", "send_bw", "-n", 200, "-s", 3000, "--verify", "--json", *words)
                self.assertEqual(json.loads(out)["data_errors"], 0)
        one = ["--port", self.link, "--no-huge", "--lcores", cores, "localhost"]
        self.assert_fails(uroce("perf", "send_bw", *one, "--mode", "lcore"), CONFIG, "name one core")
        self.assert_fails(uroce("perf", "send_lat", *one, "--mode", "lcore"), CONFIG, "name one core")
        self.assert_fails(uroce("perf", "send_bw", "-q", 4, *one, "--mode", "app"), CONFIG, "name one core")


class PerfOptions(Case):
    """Each of perftest's options that is taken."""

    TESTS = [f"{verb}_{what}" for verb in ("send", "write", "read", "atomic") for what in ("lat", "bw")]

    def result(self, test, *words, count=200):
        out, _ = self.pair("perf", test, "-n", count, "--json", *words)
        return json.loads(out)

    def test_lines_that_are_copied_from_perftest_run(self):
        for test in self.TESTS:
            with self.subTest(test=test):
                self.result(test, "-d", "mlx5_0", "-i", 1, "-F", "-c", "RC", "-u", 14, "-t", 64, "-x", 1)
                self.result(test, "--ib-dev=mlx5_0", "--ib-port=1", "--connection=RC", "--CPU-freq")

    def test_other_connection_types_are_told_the_way(self):
        self.assert_fails(uroce("perf", "read_bw", "-c", "XRC"), USAGE, "uroce run -- ib_read_bw -c XRC")
        for test, kind, has in (("atomic_lat", "UC", "RC"), ("write_lat", "UD", "RC and UC")):
            self.assert_fails(uroce("perf", test, "-c", kind), USAGE, f"{test} has {has} only")

    def test_inline_messages_have_a_limit(self):
        for test, words in (("send_lat", ["-s", 1024]), ("write_bw", ["-s", 64]), ("send_bw", ["-s", 2000])):
            result = self.result(test, "-I", 1024, "--verify", *words)
            self.assertEqual(result["test_info"]["inline_bytes"], 1024)
        for words in ([], ["localhost"]):  # before the other side is asked
            too_long = uroce("perf", "send_lat", "-I", 1025, "--port", self.link, "--no-huge", *words)
            self.assert_fails(too_long, 10, "-I 1025", "1024")
            self.assertEqual(too_long.stdout, "")

    def test_depths_and_timeouts_reach_the_test(self):
        for test in ("send_bw", "read_bw"):
            info = self.result(test, "-t", 16, "-r", 32, "-u", 18, "-Q", 4, "--verify")["test_info"]
            seen = [info[name] for name in ("tx_depth", "rx_depth", "timeout", "cq_mod")]
            self.assertEqual(seen, [16, 32, 18, 4])

    def test_no_peak_is_none(self):
        self.assertEqual(self.result("write_bw", "-N")["results"][0]["BW_peak"], 0)
        self.assertGreater(self.result("write_bw")["results"][0]["BW_peak"], 0)

    def test_the_result_goes_into_a_file_beside_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "result.json")
            out, _ = self.pair("perf", "send_lat", "-n", 100, client_words=["--out_json_file", file])
            self.assertIn("t_typical[usec]", out)
            self.assertEqual(json.loads(file.read_text())["results"][0]["n_iterations"], 100)
            nowhere = pathlib.Path(folder, "nowhere", "x")
            common = ["perf", "send_lat", "-n", 100, "--port", self.link, "-p", self.port, "--no-huge"]
            with started(*common):
                result = uroce(*common, "--out_json_file", nowhere, "localhost")
                self.assert_fails(result, CONFIG, str(nowhere))

    def samples(self, out):
        """The values below each "#, usec"."""
        blocks = out.split("#, usec\n")[1:]
        return [[float(line.split(", ")[1]) for line in block.splitlines() if ", " in line[:12]]
                for block in blocks]

    def test_what_perftest_may_be_told_and_holds_anyway_is_taken(self):
        self.result("write_bw", "--use_old_post_send", "--perform_warm_up", "--use_hugepages", "--mr_per_qp",
                    "--disable_pcie_relaxed", "--dont_xchg_versions", "--force-link=Ethernet", "--noPeak")
        self.assert_fails(uroce("perf", "write_bw", "--force-link", "IB"), USAGE, "IB")

    def test_a_bandwidth_below_its_limit_is_a_failure(self):
        for words in (["-w", "0.001", "-y", "0.000001"], ["-w", "0.001", "--report_gbits"]):
            self.result("send_bw", *words)
        for words, part in ((["-w", 1e9], "MB/sec are below the limit, -w 1e+09"),
                            (["-w", 1e6, "--report_gbits"], "Gb/sec are below the limit, -w 1e+06"),
                            (["-y", 1e6], "Mpps are below the limit, -y 1e+06")):
            with self.subTest(words=words):
                common = ["perf", "send_bw", "-n", 100, "--port", self.link, "-p", self.port, "--no-huge"]
                with started(*common) as server:
                    result = uroce(*common, *words, "localhost")
                    server.communicate(timeout=SECONDS)
                self.assertEqual((result.returncode, server.returncode), (1, 0), result.stderr)
                self.assertIn(part, result.stderr)
                self.assertIn("#bytes", result.stdout)

    def test_cycles_are_those_of_a_steady_time_stamp_counter(self):
        if "nonstop_tsc" not in pathlib.Path("/proc/cpuinfo").read_text():
            self.assert_fails(uroce("perf", "send_lat", "-C"), 21, "leave out -C")
            return
        out, _ = self.pair("perf", "send_lat", "-n", 100, "-C", client_words=["-U"])
        self.assertIn("t_typical[cycles]", out)
        self.assertIn("#, cycles\n", out)
        result = self.result("read_lat", "-C")
        self.assertEqual(result["test_info"]["unit"], "cycles")
        self.assertEqual(result["results"][0]["t_min"] % 1, 0)

    def test_a_service_level_and_a_traffic_class_reach_the_frames(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "x")
            self.pair("perf", "send_lat", "-n", 10, client_words=["-T", 106, "-S", 5, "--ip", "10.5.0.2/24@7",
                      "-x", 1, "--pcap", file], server_words=["--ip", "10.5.0.1/24@7", "-x", 1])
            frames = file.read_bytes()
        self.assertIn(bytes.fromhex("8100a0070800456a"), frames)  # 802.1Q of VLAN 7, then IPv4
        self.assert_fails(uroce("perf", "send_lat", "-R", "-S", 1, "10.0.0.1"), USAGE, "-S")

    def test_out_json_has_perftests_file(self):
        with tempfile.TemporaryDirectory() as folder:
            common = [UROCE, "perf", "send_lat", "-n", "100", "--port", self.link, "-p", str(self.port),
                      "--no-huge"]
            with started(*common[1:]):
                subprocess.run([*common, "--out_json", "localhost"], cwd=folder, env=clean_environment(),
                               stdout=subprocess.DEVNULL, timeout=SECONDS, check=True)
            row = json.loads(pathlib.Path(folder, "perftest_out.json").read_text())["results"][0]
        self.assertEqual(row["n_iterations"], 100)

    def test_each_sample_is_printed_as_it_came_and_sorted(self):
        for test in ("send_lat", "atomic_lat"):
            out, _ = self.pair("perf", test, "-n", 300, client_words=["-U", "-H"])
            came, in_order = self.samples(out)
            self.assertEqual((len(came), len(in_order)), (300, 300))
            self.assertEqual(in_order, sorted(in_order))
            for one, other in zip(sorted(came), in_order):
                self.assertAlmostEqual(one, other, delta=0.005 * one)
            row = next(line.split() for line in out.splitlines() if line.split()[1:2] == ["300"])
            for text, sample in ((row[2], in_order[0]), (row[3], in_order[-1])):
                self.assertAlmostEqual(float(text), sample, delta=0.005 * sample)
        self.assert_fails(uroce("perf", "send_lat", "-H", "--json"), USAGE, "--out_json_file")
        self.assert_fails(uroce("perf", "send_bw", "-U"), USAGE, "-U")

    def test_it_can_sleep_on_events(self):
        for test, words in (("send_lat", []), ("read_lat", ["-s", 5000]), ("send_bw", ["-b"]),
                            ("write_bw", ["-q", 3]), ("atomic_bw", []), ("send_bw", ["--mode", "lcore"])):
            with self.subTest(test=test, words=words):
                result = self.result(test, "-e", "--verify", *words)
                self.assertEqual((result["verified"], result["data_errors"]), (True, 0))
        self.assert_fails(uroce("perf", "write_lat", "-e"), USAGE, "no event")
        self.assert_fails(uroce("perf", "send_lat", "-e", "--mode", "app"), 10, "--mode auto")

    def test_who_sleeps_leaves_the_processor_to_others(self):
        common = ["perf", "send_lat", "-e", "--port", self.link, "-p", self.port, "--no-huge"]
        ask = [*common, "-D", 30, "-u", 20, "localhost"]  # unacknowledged messages are given time
        with started(*common) as server, started(*ask) as client:
            await_requests(server)
            client.send_signal(signal.SIGSTOP)
            with self.assertRaises(subprocess.TimeoutExpired):
                server.wait(0.2)
            before = self.processor_seconds(server)
            with self.assertRaises(subprocess.TimeoutExpired):
                server.wait(1)
            self.assertLess(self.processor_seconds(server) - before, 0.3)

    @staticmethod
    def processor_seconds(process):
        words = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def test_a_killed_server_ends_a_client_that_sleeps(self):
        self.assert_ends_with("server", "send_lat", "-e", "-D", 30)

    def test_numbers_are_decimal(self):
        """-s 010 was 8, as in C; perftest and `--mtu 01500` have it as users do."""
        row = self.result("send_bw", "-s", 7, "-s", "010", "-m", "01024", "-D", "01")["results"][0]
        self.assertEqual(row["MsgSize"], 10)


class Examples(Case):
    FOLDER = UROCE.parent

    def environment(self, **more):
        patient = {"UROCE_KEEPALIVE_MS": 0}  # a busy machine may stop a program for longer than usual
        return clean_environment(**{"UROCE_NO_HUGE": 1, "UROCE_PORT": self.link, **patient, **more})

    def example(self, name, *words, **more):
        return subprocess.run([self.FOLDER / f"example_{name}", *words], env=self.environment(**more),
                              text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)

    def test_server_and_client_meet(self):
        with tempfile.TemporaryDirectory() as directory:
            pipe = pathlib.Path(directory, "pipe")
            os.mkfifo(pipe)
            line = f'"{self.FOLDER}/example_server" <"{pipe}" | "{self.FOLDER}/example_client" >"{pipe}"'
            result = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True,
                                    env=self.environment(), timeout=SECONDS)
        self.assertEqual((result.returncode, result.stderr), (0, "jello"))

    def by_address(self, name, *words):
        """What the client prints."""
        server = subprocess.Popen([self.FOLDER / f"example_{name}"], env=self.environment(), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            address = [server.stdout.readline().strip() for _ in range(2)][1].removeprefix("::ffff:")
            client = self.example(name, address, *words)
            self.assertEqual((client.returncode, client.stderr), (0, ""))
            _, err = server.communicate(timeout=SECONDS)
            self.assertEqual((server.returncode, err), (0, ""))
        finally:
            server.kill()
            server.communicate()
        return client.stdout

    def test_they_meet_by_address_too(self):
        self.assertEqual(self.by_address("connect"), "jello\n")

    def test_messages_are_answered(self):
        told = self.by_address("messages", "1000")
        self.assertRegex(told, r"\Athere and back, 1000 times, us:  50 % .* 99\.9 % .*\n\Z")

    def test_calls_are_answered(self):
        told = self.by_address("calls", "1000")
        self.assertRegex(told, r"\AUROCE: 167468\na call, 1000 times, us:  50 % .*\n"
                               r".* million calls a second, 32 at once\n\Z")

    def test_each_tick_that_calls_for_an_order_gets_one(self):
        told = self.by_address("trade", "2000", "20000")
        self.assertRegex(told, r"(?m)^tick to trade, 200 times, us:  50 % ")
        none = self.example("trade", "10.77.0.1", "9")  # there is nobody to ask, either
        self.assertEqual((none.returncode, none.stdout), (1, ""))
        self.assertIn("too few ticks", none.stderr)

    def test_they_say_why_they_end(self):
        for name in ("server", "client"):
            result = self.example(name)  # there is nobody at the other end of its input
            self.assertEqual((result.returncode, result.stderr), (1, "the other program has ended\n"))
            result = self.example(name, UROCE_PORT="warp:9")
            self.assertEqual(result.returncode, CONFIG)
            self.assertIn('no driver "warp"', result.stderr)
        for name in ("server", "client", "connect", "messages", "calls", "trade"):
            result = self.example(name, UROCE_CONFIG="/no/such/file")
            self.assertEqual(result.returncode, NOT_FOUND, result.stderr)
            self.assertIn("/no/such/file", result.stderr)
        lost = subprocess.run([self.FOLDER / "example_client"], input="17 ::ffff:10.77.0.2\n", text=True,
                              env=self.environment(), capture_output=True, timeout=SECONDS)
        self.assertEqual(lost.returncode, 1)
        self.assertIn("retry counter exceeded: ", lost.stderr)
        result = self.example("connect", "somewhere")
        self.assertEqual((result.returncode, len(result.stderr.splitlines())), (1, 1), result.stderr)
        result = self.example("connect", "10.77.0.9")
        self.assertEqual(result.returncode, TIMEOUT, result.stderr)
        self.assertIn("10.77.0.9", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
