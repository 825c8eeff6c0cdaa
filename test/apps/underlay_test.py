#!/usr/bin/env python3
"""VLANs and RoCE v1 between two processes, a tagged address as the kernel sees it, processes that share an
interface, a server's name with an address that does not answer.

Usage: underlay_test.py UROCE_PROGRAM
The latter three need root and a network namespace of their own; without, they are skipped.
"""
import contextlib
import pathlib
import subprocess
import sys
import tempfile
import unittest

from cli_test import SECONDS, TIMEOUT, UROCE, Case, started, uroce

ROCE_V1 = b"\x89\x15\x60"  # ethertype, and the first byte of a GRH
TAG_OF_5 = b"\x81\x00\x00\x05\x08\x00\x45"  # tag, ethertype, and the first byte of IPv4


class TwoProcesses(Case):
    def captured(self, *words, server_words=(), client_words=()):
        """Runs a verified ping-pong. @return the bytes of the server's capture"""
        with tempfile.TemporaryDirectory() as folder:
            capture = pathlib.Path(folder, "capture")
            out, _ = self.pair("pingpong", "-c", "-n", 200, *words, client_words=client_words,
                               server_words=[*server_words, "--pcap", capture])
            self.assertIn("0 bytes of received data were wrong", out)
            return capture.read_bytes()

    def test_roce_v1_carries_messages(self):
        for transport in ("rc", "uc", "ud"):
            for index in (2, 3):  # link-local, and the IPv4 address, which ARP finds
                frames = self.captured("--roce-v1", "-g", index, "--type", transport)
                self.assertGreaterEqual(frames.count(ROCE_V1), 400, (transport, index))

    def test_the_indices_of_roce_v2_stay_when_v1_is_there(self):
        self.assertNotIn(ROCE_V1, self.captured("--roce-v1", "-g", 1))

    def test_an_address_in_a_vlan_carries_tagged_messages(self):
        for transport in ("rc", "uc", "ud"):
            frames = self.captured("--type", transport, server_words=["--ip", "10.5.0.1/24@5"],
                                   client_words=["--ip", "10.5.0.2/24@5"])
            self.assertGreaterEqual(frames.count(TAG_OF_5), 400, transport)

    def test_perf_runs_over_roce_v1_and_vlans(self):
        for words in (["--roce-v1", "-x", 3], ["-x", 1]):
            self.pair("perf", "write_bw", "-s", 4096, "-n", 500, *words,
                      server_words=["--ip", "10.5.0.1/24@7"], client_words=["--ip", "10.5.0.2/24@7"])

    def test_ends_in_different_vlans_do_not_meet(self):
        words = ["pingpong", "--type", "uc", "--port", self.link, "-p", self.port, "--no-huge",
                 "--give-up", 2]
        for vlan, code in ((5, 0), (6, TIMEOUT)):
            with started(*words, "--ip", "10.5.0.1/24@5") as server:
                client = uroce(*words, "--ip", f"10.5.0.2/24@{vlan}", "localhost")
                _, errors = server.communicate(timeout=SECONDS)
            self.assertEqual((client.returncode, server.returncode), (code, code), client.stderr + errors)

    def test_info_tells_types_and_vlans(self):
        text = uroce("info", "--port", self.link, "--no-huge", "--roce-v1", "--ip", "10.5.0.1/24@5").stdout
        self.assertRegex(text, r"GID 1 +::ffff:10\.5\.0\.1/24  RoCE v2  VLAN 5\n")
        self.assertRegex(text, r"GID 2 +fe80::.*/64  RoCE v1\n")
        self.assertRegex(text, r"GID 3 +::ffff:10\.5\.0\.1/24  RoCE v1  VLAN 5\n")


STATION = pathlib.Path(__file__).with_name("station.py")
KERNEL = """
ip link add ux0 type veth peer name ux1 || exit
for end in ux0 ux1; do sysctl -qw net.ipv6.conf.$end.disable_ipv6=1; ip link set $end up; done
exec 3< <(exec {uroce} pingpong --port af_packet:ux1 --no-huge --mode auto -p {port} \\
  --ip 10.5.0.2/24@5 --ip 10.6.0.2/24)
server=$!
trap 'kill -9 $server' EXIT
read -r -t {seconds} line <&3 || exit  # its local address
{commands}
"""
VLAN_INTERFACE = """
ip link add link ux0 name ux0.5 type vlan id 5
ip addr add 10.5.0.1/24 dev ux0.5
ip link set ux0.5 up
{python} {station} ping 10.5.0.2
"""


# Two servers at one end of a link, a client of each at the other, until each client has seen a frame of the
# other's.
SHARED = """
ip link add ux0 type veth peer name ux1 || exit
for end in ux0 ux1; do sysctl -qw net.ipv6.conf.$end.disable_ipv6=1; ip link set $end up; done
ping() {{
  exec {uroce} ping --no-huge --mode auto --keepalive-ms 10000 --port af_packet:$1 \\
    --ip 10.5.0.$2/24 "${{@:3}}"
}}
trap 'kill -9 $servers $clients 2> /dev/null' EXIT
for end in 1 2; do
  ping ux1 $end -s > {folder}/waits$end &
  servers="$servers $!"
done
for end in 1 2; do
  until [ -s {folder}/waits$end ] || [ $SECONDS -ge {seconds} ]; do sleep 0.02; done
  ping ux0 1$end -c -a 10.5.0.$end -S 5000 -V --give-up-ms 20000 --counters {folder}/$end \\
    > {folder}/said$end &
  clients="$clients $!"
done
for one in $clients; do
  for wanted in drop_wrong_address[^a-z]+total[^a-z]+[1-9] requester_messages[^a-z]+total[^a-z]+[0-9]{{4}}; do
    until {uroce} stat $one --json --interval-ms 200 | grep -qE $wanted || [ $SECONDS -ge {seconds} ]; do
      kill -0 $one || break
    done
  done
done
kill $clients
for one in $clients $servers; do wait $one; echo $?; done
"""


# A name with two addresses, of which the first one swallows all, as a firewall does. Says how both ended.
SILENT_ADDRESS = """
ip link add ux0 type veth peer name ux1 || exit
ip address add 2001:db8::1/64 dev ux0 nodad
ip address add 10.9.9.1/24 dev lo
for end in lo ux0 ux1; do ip link set $end up; done
ip neighbour add 2001:db8::2 lladdr 02:00:00:00:00:09 dev ux0 nud permanent
printf '%s dual\\n' 2001:db8::2 10.9.9.1 > {folder}/hosts
mount --bind {folder}/hosts /etc/hosts
getent ahosts dual | head -n 1 | cut -d ' ' -f 1
common="--port {link} -p {port} --no-huge"
{uroce} pingpong $common > {folder}/server & server=$!
trap 'kill -9 $server 2> /dev/null' EXIT
until [ -s {folder}/server ] || [ $SECONDS -ge {seconds} ]; do sleep 0.02; done
{uroce} pingpong $common dual > {folder}/client; status=$?; echo $status
[ $status = 0 ] || kill $server
wait $server; echo $?
"""


def succeeds(script):
    """Whether it does in a network namespace of its own."""
    with contextlib.suppress(OSError):
        done = subprocess.run(["unshare", "--net", "bash", "-c", script], capture_output=True, check=False)
        return done.returncode == 0
    return False


@unittest.skipUnless(succeeds("ip link add ux0 type veth peer name ux1"),
                     "needs root for a network namespace")
class Kernel(Case):
    def run_in_namespace(self, commands):
        script = KERNEL.format(uroce=UROCE, port=self.port, seconds=SECONDS // 2, commands=commands)
        result = subprocess.run(["unshare", "--net", "bash", "-c", script], capture_output=True, text=True,
                                timeout=SECONDS, check=False)
        return result.stdout.split(), result.stderr

    def test_stations_reach_the_addresses_of_their_vlan_only(self):
        asked = ((5, "10.5.0.2"), (5, "10.6.0.2"), (0, "10.5.0.2"), (6, "10.5.0.2"), (0, "10.6.0.2"))
        commands = "\n".join(f"{sys.executable} {STATION} ux0 {tag} 10.6.0.9 {address}"
                             for tag, address in asked)
        said, errors = self.run_in_namespace(commands)
        self.assertEqual(said, ["answered", "silent", "silent", "silent", "answered"], errors)

    def test_processes_share_an_interface(self):
        with tempfile.TemporaryDirectory() as folder:
            script = SHARED.format(uroce=UROCE, folder=folder, seconds=SECONDS // 2)
            result = subprocess.run(["unshare", "--net", "bash", "-c", script], capture_output=True,
                                    text=True, timeout=SECONDS, check=False)
            statuses = [line for line in result.stdout.splitlines() if line.isdigit()]
            self.assertEqual(statuses, ["0"] * 4, result.stdout + result.stderr)
            for end in (1, 2):
                self.assertRegex(pathlib.Path(folder, f"said{end}").read_text(), r"[1-9]\d\d+ round trips")
                counters = pathlib.Path(folder, str(end)).read_text()
                self.assertRegex(counters, r"\bdrop_wrong_address [1-9]")  # the other one's
                self.assertNotIn("drop_unknown_qpn", counters)

    def test_an_address_that_does_not_answer_leaves_time_for_the_next(self):
        with tempfile.TemporaryDirectory() as folder:
            script = SILENT_ADDRESS.format(uroce=UROCE, folder=folder, link=self.link, port=self.port,
                                           seconds=SECONDS // 2)
            result = subprocess.run(["unshare", "--net", "--mount", "bash", "-c", script],
                                    capture_output=True, text=True, timeout=SECONDS, check=False)
        self.assertEqual(result.stdout.split(), ["2001:db8::2", "0", "0"], result.stderr)

    @unittest.skipUnless(succeeds("ip link add ux0 type veth peer name ux1 && "
                                  "ip link add link ux0 name ux0.5 type vlan id 5"),
                         "this kernel has no VLAN interfaces")
    def test_a_vlan_interface_of_the_kernel_pings_the_tagged_address(self):
        said, errors = self.run_in_namespace(VLAN_INTERFACE.format(python=sys.executable, station=STATION))
        self.assertEqual(said, ["answered"], errors)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
