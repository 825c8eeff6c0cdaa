#!/usr/bin/env python3
"""Installs into a scratch folder; a program outside the tree is built there by uroce.pc alone, and runs. So
is the example that README builds.

Usage: install_test.py BUILD_FOLDER COMPILER [ARGUMENT...]
"""
import pathlib
import subprocess
import sys
import tempfile

SECONDS = 120
ROOT = pathlib.Path(__file__).parents[1]
PROGRAM = """
#include <cstdio>
#include <uroce/device.h>

int main() {
  uroce::Config config;
  config.port = "nonesuch:x";
  const auto device = uroce::Device::open(config);
  std::puts(device ? "opened" : device.error().text.c_str());
  return device ? 1 : 0;
}
"""


def run(*command):
    """The command's output; ends the test with what it said if it fails."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    if result.returncode:
        words = " ".join(map(str, command))
        sys.exit(f"{words}: status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def main():
    build, compiler = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory(prefix="uroce-install-") as scratch:
        folder = pathlib.Path(scratch)
        run("meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder / "root")
        description = next((folder / "root").rglob("uroce.pc"))
        prefix = folder / "root" / run("pkg-config", "--variable=prefix", description).strip().lstrip("/")
        query = ("pkg-config", f"--define-variable=prefix={prefix}", "--cflags", "--libs", description)
        flags = run(*query).split()
        source, program = folder / "main.cc", folder / "main"
        source.write_text(PROGRAM)
        run(*compiler, "-std=c++20", source, "-o", program, *flags)
        said = run(program)
        if "nonesuch" not in said:
            sys.exit(f"the program said: {said}")
        run(*compiler, "-std=c++20", "-I", ROOT, ROOT / "apps/examples/connect.cc", "-o", program, *flags)
        print(f"a program built by {description.name} runs: {said.strip()}")


if __name__ == "__main__":
    main()
