#!/usr/bin/env python3
"""rdma-core's own tests of verbs (python3-pyverbs), on the drop-in libibverbs: each in a process of its own.

Usage: pyverbs_test.py UROCE_PROGRAM [--as-nobody] [--veth] [PATTERN...]

Runs the tests whose names contain a pattern; without any, those of the modules that are not for one vendor's
adapters. The device's port is shm; with --veth, af_packet in a network namespace, which needs root: its
tests of RDMA-CM are skipped, as two processes do not share an interface. Prints what became of each and fails
if one fails or hangs, or is skipped that is not in MAY_SKIP.
"""
import gzip
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import cases
import links

PACKAGED = pathlib.Path("/usr/share/doc/rdma-core/tests")
PYTHON = "/usr/bin/python3"  # the one that Debian's packages are for
SECONDS = 60
MODULES = ("addr", "atomic", "cq", "cq_events", "cqex", "device", "fork", "mr", "odp", "parent_domain", "pd",
           "qp", "qpex", "rdmacm", "relaxed_ordering", "shared_pd")
# What the device does not have: a test's name, and the reason that it gives.
MAY_SKIP = (
    (r"\.(\w*DMTest|DeviceMemory\w*)\.", r"^Device memory is not supported"),
    (r"\.DmaBuf\w+\.", r"renderD|dma-buf MR is not supported"),
    (r"^odp\.", r"^ODP is not supported"),
    (r"_raw_qp", r"^Create Raw Packet QP with"),
    (r"_imported_", r"^Importing a device is not supported"),
    (r"_huge_", r"^There are no huge pages of size"),
)
MAY_SKIP_ON_VETH = ((r"^rdmacm\.", r"doesn.t have net interface"),)


def unpack(folder):
    """The tests as the package has them, partly compressed."""
    tests = folder / "tests"
    tests.mkdir()
    for file in PACKAGED.iterdir():
        if file.suffix == ".gz":
            (tests / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        else:
            (tests / file.name).write_bytes(file.read_bytes())


def names(folder):
    """All tests of the modules, as module.Class.method."""
    found = []
    for module in MODULES:
        text = (folder / "tests" / f"test_{module}.py").read_text(encoding="utf-8")
        owner = None
        for line in text.splitlines():
            if match := re.match(r"class (\w+)\(", line):
                owner = match.group(1)
            elif match := re.match(r"    def (test_\w+)\(", line):
                found.append(f"tests.test_{module}.{owner}.{match.group(1)}")
    return found


def run_one(uroce, link, folder, name):
    """@return (pass, skip, fail or hang; its reason)"""
    prefix, options = link.around(0)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("UROCE_")}
    environment |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    process = link.start([*prefix, uroce, "run", *options, "--", PYTHON, "tests/run_tests.py", "-v", name],
                         cwd=folder, env=environment)
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "hang", f"{SECONDS} s"
    finally:
        links.end(process)
    last = (output.strip().splitlines() or [""])[-1]
    if process.returncode != 0:
        errors = [line for line in output.splitlines() if re.match(r"\w*(\.\w+)*(Error|Exception)\b", line)]
        return "fail", errors[-1] if errors else f"exit {process.returncode}: {last}"
    if skip := re.search(r"skipped [\"'](.*)[\"']", output):
        return "skip", skip.group(1)
    return ("pass", "") if last == "OK" else ("fail", last)


def is_installed():
    if not PACKAGED.is_dir():
        return False
    found = subprocess.run([PYTHON, "-c", "import pyverbs.device"], capture_output=True, check=False)
    return found.returncode == 0


def is_expected(name, why, is_veth):
    """Whether the test may be skipped for this reason."""
    return any(re.search(test, name) and re.search(reason, why)
               for test, reason in MAY_SKIP + (MAY_SKIP_ON_VETH if is_veth else ()))


def main():
    arguments = cases.arguments_of(__doc__, "--as-nobody", "--veth")
    if not is_installed():
        print("skipped: python3-pyverbs or the tests in rdma-core's documentation are missing: config/setup")
        return cases.SKIPPED
    with links.Veth() if arguments.veth else links.Shm(arguments.as_nobody) as link:
        return run_all(arguments, link)


def run_all(arguments, link):
    """@return the exit code"""
    count = dict.fromkeys(("pass", "skip", "fail", "hang"), 0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        folder.chmod(0o755)
        unpack(folder)
        for name in names(folder):
            if arguments.patterns and not any(pattern in name for pattern in arguments.patterns):
                continue
            result, why = run_one(arguments.uroce, link, folder, name)
            short = name.removeprefix("tests.test_")
            if result == "skip" and not is_expected(short, why, arguments.veth):
                result, why = "fail", "must not be skipped: " + why
            count[result] += 1
            print(f"{result:4}  {short}{'  ' + why if why else ''}", flush=True)
    failed = count["fail"] + count["hang"]
    print(cases.counts(count["pass"], failed, count["skip"]))
    return 1 if failed or count["pass"] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
