#!/usr/bin/env python3
"""Stacks over verbs, unmodified: UCX, libfabric, Open MPI; qperf; two processes.

Usage: stacks_test.py UROCE_PROGRAM [--veth | --mesh] [PATTERN...]

Runs the cases whose command lines contain a pattern, all without one. The link is shm, with --mesh one of
four ends, which Open MPI has as many ranks at; with --veth, af_packet between two network namespaces, which
needs root. Each names its transport, so that it can only pass over the drop-in. Prints what became of each.
Programs that are not installed are skipped, with the package to install.
"""
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

import cases
import links
import programs_test
import tcp_ports

SECONDS = 60  # for one case
MPI_SECONDS = 150
LINES = 10  # of what each says, where it fails

# what is looked for in the output, command
ALONE = (
    ("Transport: rc_verbs", "ucx_info -d"),
    ("Transport: ud_verbs", "ucx_info -d"),
    ("FI_PROTO_RDMA_CM_IB_RC", "fi_info -p verbs -t FI_EP_MSG"),
    ("FI_PROTO_RXM", "fi_info -p verbs;ofi_rxm"),
)
UCT = tuple(f"ucx_perftest -d uroce0:1 -x {transport} -t {what} -n 500" for transport, what in (
    ("rc_verbs", "am_lat"), ("rc_verbs", "put_lat"), ("rc_verbs", "get -D bcopy"), ("rc_verbs", "fadd"),
    ("ud_verbs", "am_lat"), ("ud_verbs", "am_bw")))
UCP = tuple(f"env UCX_TLS={transport} ucx_perftest -t {what} -n 500" for transport, what in (
    ("rc_verbs,ud_verbs", "tag_lat"), ("rc_verbs,ud_verbs", "tag_bw -s 65536"),
    ("rc_verbs,ud_verbs", "ucp_get -s 65536"), ("rc_verbs,ud_verbs", "ucp_fadd"),
    ("ud_verbs", "tag_lat"), ("ud_verbs", "tag_bw -s 65536"), ("ud_verbs", "stream_lat")))
FABRIC = tuple(f"fi_pingpong -p {endpoint} -c -I 100 -S {size}" for endpoint, size in (
    ("verbs -e msg", 64), ("verbs -e msg", 65536), ("verbs -e dgram", 64), ("verbs;ofi_rxm -e rdm", 64),
    ("verbs;ofi_rxm -e rdm", 65536), ("verbs;ofi_rxm -e rdm -m tagged", 1024)))
# Not uc_*, which connects UC QPs by ids made for RC, nor ud_*, which names LIDs.
QPERF = "qperf -t 1 -cm 1 HOST " + " ".join((
    "rc_lat", "rc_bw", "rc_bi_bw", "rc_rdma_read_lat", "rc_rdma_read_bw", "rc_rdma_write_lat",
    "rc_rdma_write_bw"))
MPIRUN = "mpirun.openmpi --allow-run-as-root --oversubscribe --mca btl ^openib"
MPI = (
    f"{MPIRUN} --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm",
    f"{MPIRUN} --mca pml ucx -x UCX_TLS=rc_verbs,ud_verbs,self",
    f"{MPIRUN} --mca pml ucx -x UCX_TLS=ud_verbs,self",
)
PACKAGES = {"ucx_": "ucx-utils", "fi_": "libfabric-bin", "qperf": "qperf",
            "mpi": "openmpi-bin and libopenmpi-dev"}

# Each rank sends to each other one what that compares; ends with a sum over all.
MPI_PROGRAM = """
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static char sent[1 << 20], got[1 << 20];

int main(int argc, char** argv) {
  int rank, ranks, step, sum, bytes, i, wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (bytes = 1; bytes <= 1 << 20; bytes *= 4) {
    for (i = 0; i < 20; ++i) {
      for (step = 1; step < ranks; ++step) {
        int to = (rank + step) % ranks, from = (rank + ranks - step) % ranks;
        memset(sent, i + rank, bytes);
        MPI_Sendrecv(sent, bytes, MPI_CHAR, to, i, got, bytes, MPI_CHAR, from, i, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        memset(sent, i + from, bytes);
        wrong += memcmp(sent, got, bytes) != 0;
      }
    }
  }
  MPI_Allreduce(&wrong, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("wrong messages: %d\\n", sum);
  MPI_Finalize();
  return sum != 0;
}
"""


# What mpirun starts its daemon on the other machine with, "AGENT ADDRESS COMMAND...": here a namespace that
# has a name of its own, by which Open MPI knows machines.
MPI_AGENT = """#!/bin/sh
shift
exec ip netns exec {namespace} unshare --uts sh -c "hostname uroce-rank1; $*"
"""
# One rank, which has a port of its own.
MPI_RANK = """#!/bin/sh
exec {uroce} run --port af_packet:end --ip 192.168.9.$((1 + OMPI_COMM_WORLD_RANK))/24 -- {program}
"""


class Veth(links.Veth):
    """The ports have the addresses of the kernel's interfaces: these programs use one for TCP and RDMA."""

    def around(self, side):
        prefix, _ = super().around(side)
        return prefix, ["--port", "af_packet:end", "--ip", f"192.168.9.{1 + side}/24"]


class Runner(programs_test.Runner):
    def __init__(self, uroce, link, folder):
        super().__init__(uroce, link)
        self.folder = folder

    def alone(self, wanted, command, seconds=SECONDS):
        """@return what went wrong, or None"""
        good, output = self.finish(self.start(0, words_of(command)), time.monotonic() + seconds)
        return None if good and wanted in output else last_lines(output)

    def pair(self, command):
        """A server that listens at a TCP port, and its client."""
        end = time.monotonic() + SECONDS
        words = words_of(command)
        is_fabric = words[0].startswith("fi_")
        with tcp_ports.reserved() as port:
            server = self.start(0, [*words, "-B" if is_fabric else "-p", port])
            programs_test.await_listener(port, server, end)
        client = self.start(1, [*words, "-P" if is_fabric else "-p", port, self.link.server])
        return self.finish_both(client, server, end, LINES)

    def with_daemon(self, command):
        end = time.monotonic() + SECONDS
        with tcp_ports.reserved() as port:
            daemon = self.start(0, ["qperf", "-lp", port])
            programs_test.await_listener(port, daemon, end)
        words = words_of(command.replace("HOST", self.link.server))
        good, output = self.finish(self.start(1, [words[0], "-lp", port, *words[1:]]), end, daemon)
        links.end(daemon)
        return None if good else last_lines(output)

    def ranks(self, command):
        program = self.folder / "mpi"
        if not program.exists():
            source = self.folder / "mpi.c"
            source.write_text(MPI_PROGRAM, encoding="ascii")
            subprocess.run(["mpicc.openmpi", "-O1", "-o", str(program), str(source)], check=True)
        if isinstance(self.link, links.Shm):
            return self.alone("wrong messages: 0\n", f"{command} -n {self.link.ends} {program}",
                              MPI_SECONDS)
        return self.ranks_of_two_machines(command, program)

    def ranks_of_two_machines(self, command, program):
        """mpirun and the first rank in one namespace, the second rank in the other."""
        agent, rank = self.folder / "agent", self.folder / "rank"
        agent.write_text(MPI_AGENT.format(namespace=self.link.names[1]), encoding="ascii")
        rank.write_text(MPI_RANK.format(uroce=self.uroce, program=program), encoding="ascii")
        for script in (agent, rank):
            script.chmod(0o755)
        prefix, _ = self.link.around(0)
        words = [*prefix, *words_of(command), "--mca", "plm_rsh_agent", agent, "--mca", "oob_tcp_if_include",
                 "end", "--host", "192.168.9.1,192.168.9.2", "-n", "2", rank]
        process = self.link.start(words, env=self.environment, cwd="/")
        good, output = self.finish(process, time.monotonic() + MPI_SECONDS)
        return None if good and "wrong messages: 0\n" in output else last_lines(output)


def words_of(command):
    lexer = shlex.shlex(command, punctuation_chars="", posix=True)
    lexer.whitespace_split = True
    return list(lexer)


def last_lines(output):
    return "\n".join(output.splitlines()[-LINES:])


def missing(command):
    """The package to install, or None."""
    needed = ["mpirun.openmpi", "mpicc.openmpi"] if command.startswith("mpirun") else [
        next(word for word in words_of(command) if word != "env" and "=" not in word)]
    for program in needed:
        if shutil.which(program) is None:
            return next(PACKAGES[start] for start in PACKAGES if program.startswith(start))
    return None


def all_cases(runner):
    """Command, and what runs it."""
    for wanted, command in ALONE:
        yield command, lambda now=command, text=wanted: runner.alone(text, now)
    for command in UCT + UCP + FABRIC:
        yield command, lambda now=command: runner.pair(now)
    yield QPERF, lambda: runner.with_daemon(QPERF)
    for command in MPI:
        yield command, lambda now=command: runner.ranks(now)


def chosen(runner, patterns):
    for command, run in all_cases(runner):
        if patterns and not any(pattern in command for pattern in patterns):
            continue
        package = missing(command)
        yield command, f"install {package}" if package else None, run


def main():
    arguments = cases.arguments_of(__doc__, "--veth", "--mesh")
    ends = Veth() if arguments.veth else links.Shm(False, ends=4 if arguments.mesh else 2)
    with tempfile.TemporaryDirectory() as name, ends as link:
        runner = Runner(arguments.uroce, link, pathlib.Path(name))
        return cases.run_cases(chosen(runner, arguments.patterns))


if __name__ == "__main__":
    sys.exit(main())
