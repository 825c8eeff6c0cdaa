#!/usr/bin/env python3
"""Compiles every header alone, so that each can be the first include of a file.

Usage: headers.py SOURCE_ROOT COMPILER [ARGUMENT...]
The build has done so with a header that is the first include of a source of lib or drivers, which it compiles
one by one. Headers below drivers/dpdk are left out where DPDK's own are not installed.
"""
import concurrent.futures
import os
import re
import subprocess
import sys

import tree

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
SECONDS = 60  # for one header


def dpdk_flags():
    """Compiler flags of DPDK, or None if it is not installed."""
    command = ["pkg-config", "--cflags", "libdpdk"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except FileNotFoundError:
        return None
    return result.stdout.split() if result.returncode == 0 else None


def compile_alone(root, compiler, header, flags):
    """What the compiler says about a source that includes `header` only; empty if it is content."""
    folders = [f"-I{root / name}" for name in ("include", "lib", ".")]
    command = [*compiler, "-std=c++20", "-fsyntax-only", *WARNINGS, *flags, *folders, "-x", "c++", "-"]
    twice = f'#include "{header}"\n' * 2
    result = subprocess.run(command, input=twice, capture_output=True, text=True, timeout=SECONDS)
    return result.stderr if result.returncode else ""


def first_includes(root):
    """What sources that the build compiles by themselves see before all else."""
    for file in tree.source_files(root, (".cc",), ("lib", "drivers")):
        include = re.search(r'^#\s*include\s+["<]([^">]+)', file.read_text(), re.MULTILINE)
        if include:
            yield include.group(1)


def main():
    root = tree.root_of(sys.argv)
    compiler = sys.argv[2:] or ["g++"]
    dpdk = dpdk_flags()
    compiled = set(first_includes(root))
    jobs = []
    count = 0
    failures = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file in tree.source_files(root, (".h",), ("include", "lib", "drivers", "apps")):
            header = file.relative_to(root).as_posix()
            uses_dpdk = header.startswith("drivers/dpdk/")
            if uses_dpdk and dpdk is None:
                continue
            count += 1
            if header.removeprefix("include/").removeprefix("lib/") in compiled:
                if "#pragma once\n" not in file.read_text():
                    failures.append((header, "no #pragma once\n"))
                continue
            flags = dpdk if uses_dpdk else []
            jobs.append((header, pool.submit(compile_alone, root, compiler, header, flags)))
    failures += [(header, job.result()) for header, job in jobs if job.result()]
    for header, text in failures:
        print(f"{header} does not compile alone:\n{text}")
    good, elsewhere = count - len(failures), count - len(jobs)
    print(f"{good} of {count} headers compile alone, {elsewhere} of them first in a source")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
