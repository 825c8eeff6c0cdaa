#!/usr/bin/env python3
"""Says which sources clang-format would change.

Usage: format.py [SOURCE_ROOT]
Skips (77) where clang-format-14 is missing: other versions format differently.
"""
import shutil
import subprocess
import sys

import tree

SECONDS = 120


def main():
    root = tree.root_of(sys.argv)
    if shutil.which("clang-format-14") is None:
        print("clang-format-14 is missing: apt-get install clang-format-14")
        return 77
    files = [str(file.relative_to(root)) for file in tree.source_files(root)]
    command = ["clang-format-14", "--dry-run", "-Werror", *files]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=SECONDS)
    changed = sorted({line.split(":")[0] for line in result.stderr.splitlines() if "[-Wclang-format" in line})
    if changed:
        print("not formatted; mend with: clang-format-14 -i " + " ".join(changed))
    elif result.returncode:
        print(result.stderr)
    else:
        print(f"{len(files)} files are formatted")
    return 1 if result.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
