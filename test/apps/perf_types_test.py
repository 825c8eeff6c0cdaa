#!/usr/bin/env python3
"""`uroce perf` over UC and UD: what is lost is told, and nobody waits for it.

Usage: perf_types_test.py UROCE_PROGRAM
"""
import json
import socket
import sys
import unittest

from cli_test import PEER, SECONDS, USAGE, Case, started, uroce

INVALID = 10


class Types(Case):
    def both(self, *words, **sides):
        """What client and server print as JSON."""
        out, served = self.pair("perf", *words, "--json", **sides)
        return json.loads(out), json.loads(served.splitlines()[-1])

    def assert_counted(self, result, served, sent, least_lost=0):
        """The sender's figures and the receiver's are the same, of as many messages as were sent."""
        row = result["results"][0]
        self.assertEqual((row["n_iterations"], result["data_errors"]), (sent, 0))
        self.assertEqual((served["n_received"], served["n_lost"]), (sent - row["n_lost"], row["n_lost"]))
        self.assertGreaterEqual(row["n_lost"], least_lost)
        received = row["BW_average"] * served["n_received"] / sent
        self.assertAlmostEqual(row["BW_received"], received, delta=0.01)

    def fail_together(self, code, part, words, **sides):
        common = [*words, "--port", self.link, "-p", self.port, "--no-huge"]
        with started("perf", *common, *sides.get("server_words", ())) as server:
            client = uroce("perf", *common, *sides.get("client_words", ()), "localhost")
            self.assert_fails(client, code, part)
            server.communicate(timeout=SECONDS)
            self.assertNotEqual(server.returncode, 0)


class Bandwidth(Types):
    def test_messages_are_checked(self):
        for kind, test, words in (("UC", "send_bw", ["-s", 9000, "-q", 3, "-l", 8, "-Q", 7]),
                                  ("UC", "write_bw", ["-s", 9000, "-q", 2, "-t", 16]),
                                  ("UC", "write_bw", ["-s", 64, "-I", 64, "-e"]),
                                  ("UD", "send_bw", ["-s", 64, "-I", 64, "-q", 3, "-r", 1024]),
                                  ("UD", "send_bw", ["-s", 1001, "-l", 16, "-e", "-q", 2])):
            with self.subTest(kind=kind, test=test, words=words):
                result, served = self.both(test, "-c", kind, "-n", 600, "--verify", *words)
                qps = result["test_info"]["qps"]
                self.assertEqual(result["test_info"]["connection"], kind)
                self.assertEqual(result["verified"], True)
                self.assert_counted(result, served, 600 * qps)

    def test_both_sides_can_send(self):
        for kind, test in (("UC", "send_bw"), ("UC", "write_bw"), ("UD", "send_bw")):
            for fault in ([], ["--fault", "loss=3%"]):
                with self.subTest(kind=kind, test=test, fault=fault):
                    words = [test, "-c", kind, "-n", 500, "-s", 3000, "-q", 2, "-b", "--verify", *fault]
                    result, served = self.both(*words)
                    row = result["results"][0]
                    self.assertEqual((row["n_iterations"], result["data_errors"]), (2000, 0))
                    self.assertEqual(served["n_received"] + served["n_lost"], 1000)
                    self.assertGreaterEqual(row["n_lost"], served["n_lost"])
                    if fault:
                        self.assertGreater(row["n_lost"], served["n_lost"])

    def test_lost_messages_are_counted_at_both_ends(self):
        """By opcodes, which shows that the packets are those of the type."""
        for kind, test, opcode, words in (("UC", "send_bw", "UC_SEND_ONLY_IMM", ["-s", 100]),
                                          ("UC", "send_bw", "UC_SEND_LAST_IMM", ["-s", 9000, "-q", 3]),
                                          ("UC", "write_bw", "UC_WRITE_MIDDLE", ["-s", 20000, "-m", 1024]),
                                          ("UC", "write_bw", "UC_WRITE_ONLY", ["-s", 100, "-q", 3]),
                                          ("UD", "send_bw", "UD_SEND_ONLY_IMM", ["-s", 512, "-q", 3])):
            with self.subTest(kind=kind, test=test, words=words):
                fault = ["--fault", f"tx.drop opcode={opcode} every=50"]
                common = [test, "-c", kind, "-n", 500, "--verify", *words]
                result, served = self.both(*common, client_words=fault)
                sent = 500 * result["test_info"]["qps"]
                self.assert_counted(result, served, sent, least_lost=sent // 50)

    def test_the_last_message_may_be_lost(self):
        for kind, test in (("UC", "send_bw"), ("UC", "write_bw"), ("UD", "send_bw")):
            with self.subTest(kind=kind, test=test):
                opcode = f"{kind}_{'SEND_ONLY_IMM' if test == 'send_bw' else 'WRITE_ONLY'}"
                fault = ["--fault", f"tx.drop opcode={opcode} nth=100"]
                result, served = self.both(test, "-c", kind, "-n", 100, "-s", 64, client_words=fault)
                self.assert_counted(result, served, 100, least_lost=1)

    def test_what_comes_twice_counts_once_and_order_does_not_matter(self):
        fault = ["--fault", "tx.dup=20%,reorder=5%:3,loss=1%"]
        for size in (64, 9000):  # WRITEs that come twice are counted twice
            words = ["write_bw", "-c", "UC", "-n", 2000, "-s", size, "--verify"]
            result, _ = self.both(*words, client_words=fault)
            self.assertEqual(result["data_errors"], 0)
        for kind, size in (("UC", 64), ("UC", 9000), ("UD", 1000)):
            with self.subTest(kind=kind, size=size):
                words = ["send_bw", "-c", kind, "-n", 2000, "-s", size, "--verify"]
                result, served = self.both(*words, client_words=fault)
                self.assert_counted(result, served, 2000)
                self.assertLess(served["n_lost"], 2000)

    def test_losses_are_in_the_text_of_both_ends(self):
        fault = ["--fault", "tx.drop opcode=UD_SEND_ONLY_IMM every=10"]
        out, served = self.pair("perf", "send_bw", "-c", "UD", "-n", 100, "-s", 64, client_words=fault)
        lines = [line.split() for line in out.splitlines()]
        self.assertIn("#lost", lines[1])
        lost = int(lines[2][lines[1].index("#lost") - 2])  # "BW peak" and "BW average" are two words each
        self.assertGreaterEqual(lost, 10)
        self.assertIn(f"{100 - lost} messages came, {lost} were lost", served)

    def test_a_test_of_which_nothing_comes_fails(self):
        for kind, test in (("UC", "write_bw"), ("UD", "send_bw")):
            with self.subTest(kind=kind):
                self.fail_together(PEER, "none of the 100 messages came", [test, "-c", kind, "-n", 100],
                                   client_words=["--fault", "tx.loss=100%"])

    def test_a_peer_whose_ethernet_address_nobody_tells_is_named(self):
        for kind in ("UC", "UD"):
            with self.subTest(kind=kind):
                self.fail_together(PEER, "nobody answers for the Ethernet address of 10.77.0.",
                                   ["send_bw", "-c", kind, "-n", 100, "-s", 64],
                                   client_words=["--fault", "drop all"])  # ARP, too

    def test_sizes_of_datagrams_end_at_the_path_mtu(self):
        result, _ = self.both("send_bw", "-c", "UD", "-a", "-n", 50, "-m", 1024, "--verify")
        self.assertEqual([row["MsgSize"] for row in result["results"]], [1 << i for i in range(1, 11)])
        self.assertEqual(result["data_errors"], 0)
        result, _ = self.both("send_lat", "-c", "UD", "-a", "-n", 5, "-m", 512, "--verify")
        self.assertEqual([row["MsgSize"] for row in result["results"]], [1 << i for i in range(1, 10)])
        for mtu in (256, 4096):
            for words in ([], ["-s", mtu]):  # without -s it is the path MTU
                result, _ = self.both("send_bw", "-c", "UD", "-n", 100, "-m", mtu, "--verify", *words)
                self.assertEqual(result["results"][0]["MsgSize"], mtu)
                self.assertEqual(result["data_errors"], 0)

    def test_a_killed_server_ends_a_client_that_never_stops_sending(self):
        for kind in ("UC", "UD"):
            with self.subTest(kind=kind):
                self.assert_ends_with("server", "send_bw", "-c", kind, "-D", 600)

    def test_a_killed_client_ends_its_server(self):
        self.assert_ends_with("client", "write_bw", "-c", "UC", "-D", 600)


class Latency(Types):
    TESTS = (("UC", "send_lat", 9000, "UC_SEND_LAST_IMM"), ("UC", "write_lat", 1, "UC_WRITE_ONLY"),
             ("UC", "write_lat", 9000, "UC_WRITE_FIRST"), ("UD", "send_lat", 64, "UD_SEND_ONLY_IMM"))

    def test_messages_are_checked(self):
        for kind, test, size, _ in self.TESTS:
            for words in ([], ["-Q", 0], ["-Q", 3, "-I", 64]):
                with self.subTest(kind=kind, test=test, words=words):
                    result, _ = self.both(test, "-c", kind, "-n", 300, "-s", size, "--verify", *words)
                    self.assertEqual(result["results"][0]["n_iterations"], 300)
                    self.assertEqual((result["verified"], result["data_errors"]), (True, 0))
        result, _ = self.both("send_lat", "-c", "UD", "-n", 300, "-e", "--verify")
        self.assertEqual(result["data_errors"], 0)

    def test_lost_messages_are_sent_again_and_are_no_samples(self):
        for kind, test, size, opcode in self.TESTS:
            for side in ("client_words", "server_words"):
                with self.subTest(kind=kind, test=test, side=side):
                    fault = {side: ["--fault", f"tx.drop opcode={opcode} every=20"]}
                    result, _ = self.both(test, "-c", kind, "-n", 100, "-s", size, "--verify", **fault)
                    row = result["results"][0]
                    self.assertEqual((row["n_iterations"], result["data_errors"]), (100, 0))
                    self.assertGreaterEqual(row["n_sent_again"], 4)
        out, _ = self.pair("perf", "send_lat", "-c", "UD", "-n", 10)
        self.assertRegex(out, r"2 bytes: \d+ of \d+ messages found no answer, were sent again and are not")

    def test_any_faults_are_got_over(self):
        for kind, test, size, _ in self.TESTS:
            with self.subTest(kind=kind, test=test):
                fault = ["--fault", "loss=3%,dup=10%,reorder=5%:2"]
                result, _ = self.both(test, "-c", kind, "-n", 100, "-s", size, "--verify", *fault)
                self.assertEqual((result["results"][0]["n_iterations"], result["data_errors"]), (100, 0))

    def test_lost_messages_do_not_make_a_rate_too_high(self):
        fault = {"client_words": ["--fault", "tx.drop opcode=UC_WRITE_ONLY every=4"]}
        result, _ = self.both("write_lat", "-c", "UC", "-n", 60, "--rate", 50, **fault)
        row = result["results"][0]
        self.assertGreaterEqual(row["n_sent_again"], 15)
        self.assertGreaterEqual(row["rate_achieved"], 0.9 * 50)

    def test_a_test_without_any_answer_fails(self):
        self.fail_together(PEER, "no answer came", ["send_lat", "-c", "UD"],
                           client_words=["--fault", "tx.loss=100%"])


class Agreement(Types):
    def test_what_a_test_has_not_is_refused(self):
        for test, kind, part in (("read_bw", "UC", "read_bw has RC only"),
                                 ("atomic_lat", "UD", "atomic_lat has RC only"),
                                 ("write_lat", "UD", "write_lat has RC and UC only"),
                                 ("send_bw", "DC", "send_bw has RC, UC and UD only"),
                                 ("write_bw", "XRC", "uroce run -- ib_write_bw -c XRC")):
            with self.subTest(test=test, kind=kind):
                self.assert_fails(uroce("perf", test, "-c", kind), USAGE, part)
        self.assert_fails(uroce("perf", "send_bw", "-c", "UD", "-R", "10.0.0.1"), USAGE, "-c UC")
        self.assert_fails(uroce("perf", "send_lat", "-c", "UD", "-s", 257, "-m", 256), USAGE, "-s 256")
        for words in ([], ["localhost"]):  # before the other side is asked
            large = ["perf", "send_bw", "-c", "UD", "-s", 4097, "--port", self.link, "--no-huge"]
            self.assert_fails(uroce(*large, *words), INVALID, "-s 4097", "-s 4096", "--mtu")

    def test_the_clients_type_holds(self):
        common = ["--port", self.link, "-p", self.port, "--no-huge"]
        with started("perf", "send_bw", "-c", "UC", *common) as server:
            self.assertIn(f"(uroce perf send_bw -c UC -p {self.port} HOST)", server.stdout.readline())
        result, served = self.both("send_bw", "-n", 100, client_words=["-c", "UC"], server_words=["-c", "UD"])
        self.assert_counted(result, served, 100)
        self.assertEqual(result["test_info"]["connection"], "UC")

    def test_uc_connects_by_rdma_cm(self):
        for test, words in (("send_bw", ["-q", 3]), ("write_bw", ["-b", "-q", 2]), ("write_lat", []),
                            ("write_bw", ["--fault", "tx.drop opcode=UC_WRITE_LAST every=20"])):
            with self.subTest(test=test, words=words):
                common = ["perf", test, "-c", "UC", "-R", "--port", self.link, "-p", self.port, "--no-huge"]
                common += ["-n", 200, "--verify", "--keepalive-ms", 0, "--json", "-s", 9000, *words]
                with started(*common, "--ip", "10.5.0.1/24") as server:
                    client = uroce(*common, "--ip", "10.5.0.2/24", "10.5.0.1")
                    self.assertEqual(client.returncode, 0, client.stderr)
                    out, err = server.communicate(timeout=SECONDS)
                    self.assertEqual(server.returncode, 0, err)
                result = json.loads(client.stdout)
                self.assertEqual(result["data_errors"], 0)
                if words == []:
                    continue
                served = json.loads(out.splitlines()[-1])
                self.assertEqual(served["n_received"] + served["n_lost"], 200 * result["test_info"]["qps"])
                if "--fault" in words:
                    self.assertGreaterEqual(served["n_lost"], 10)

    def test_a_server_that_knows_no_types_is_told(self):
        words = ["perf", "send_bw", "-c", "UD", "--port", self.link, "-p", self.port, "--no-huge"]
        words.append("localhost")
        with socket.create_server(("127.0.0.1", self.port)) as listener, started(*words) as client:
            listener.settimeout(SECONDS)
            peer, _ = listener.accept()
            with peer, peer.makefile("rw") as lines:
                peer.settimeout(SECONDS)
                self.assertEqual(json.loads(lines.readline())["connection"], "UD")
                lines.write(json.dumps({"path_mtu": 1024, "selective_repeat": False}) + "\n")
                lines.flush()
                _, err = client.communicate(timeout=SECONDS)
        self.assertEqual(client.returncode, PEER, err)
        self.assertIn("the server takes no -c UD", err)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
