#!/usr/bin/env python3
"""What the drop-in libibverbs exports: all that programs import, versions of rdma-core, and nothing else.

Usage: symbols_test.py LIBRARY

Looks at the stored list of imports, and at programs and libraries of this machine where they are installed.
"""
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
FOLDERS = ("/usr/bin", "/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/libibverbs",
           "/usr/lib/python3/dist-packages/pyverbs")
# Programs, and the libraries that they are linked with.
USERS = re.compile(r"(ibv_|ib_|rping|ucmatose|udaddy|cmtime|mckey|rdma_|riostream|rstream|qperf|fi_|ucx_).*|"
                   r"(libmlx5|libefa|librdmacm|libucx|libuct_ib|libfabric|libopen-pal).*\.so.*|"
                   r".*\.cpython-.*\.so")


def output_of(*words):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False).stdout


def symbols(path, *options):
    """(name, version) of each symbol of a version of ours."""
    text = output_of("nm", "-D", *options, path)
    return {(match.group(1), match.group(2)) for match in re.finditer(r"(\w+)@@?(IBVERBS_\w+\.?\d*)", text)}


def users():
    for folder in map(pathlib.Path, FOLDERS):
        if folder.is_dir():
            yield from (path for path in folder.iterdir() if path.is_file() and USERS.fullmatch(path.name))


def main():
    library = pathlib.Path(sys.argv[1])
    exported = symbols(library, "--defined-only")
    problems = []

    stored = (HERE / "imports.txt").read_text(encoding="ascii").split("\n")
    wanted = {tuple(line.split("@")): "imports.txt" for line in stored if line and not line.startswith("#")}
    looked_at = 0
    for path in users():
        imported = symbols(path, "--undefined-only")
        looked_at += bool(imported)
        wanted |= dict.fromkeys(imported, path.name)
    for symbol, who in sorted(wanted.items()):
        if symbol not in exported:
            problems.append(f"{'@'.join(symbol)} is missing; {who} imports it")

    for line in output_of("nm", "-D", "--defined-only", library).splitlines():
        name = line.split()[-1]
        if "@" not in name and not name.startswith(("IBVERBS_", "UROCE_")):
            problems.append(f"{name} is exported, and is no name of verbs")

    if "STATIC_TLS" in output_of("readelf", "--dynamic", "--wide", library):
        problems.append("the library wants static thread-local storage: programs could not load it later")
    for name in re.findall(r"NEEDED\s+(\S+)", output_of("objdump", "-p", library)):
        if name.startswith(("libstdc++", "librte_", "libibverbs", "libmlx")):
            problems.append(f"the library needs {name}, which must be inside or absent")

    print("\n".join(problems) or
          f"{len(exported)} exports serve {len(wanted)} imports; {looked_at} files looked at")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
