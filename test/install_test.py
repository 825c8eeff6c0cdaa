#!/usr/bin/env python3
"""Installs into a scratch folder; a program outside the tree is built there by uroce.pc alone, and runs. So
is the example that README builds, and the program by CMake where it is installed.

Usage: install_test.py BUILD_FOLDER COMPILER [ARGUMENT...]
"""
import os
import pathlib
import shutil
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


CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(user CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(uroce 0.1 REQUIRED)
add_executable(main main.cc)
target_link_libraries(main uroce::uroce)
"""


def run(*command, **more):
    """The command's output; ends the test with what it said if it fails."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS,
                            env=os.environ | {name: str(value) for name, value in more.items()})
    if result.returncode:
        words = " ".join(map(str, command))
        sys.exit(f"{words}: status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def check_program(program):
    said = run(program)
    if "nonesuch" not in said:
        sys.exit(f"the program said: {said}")
    return said.strip()


def check_cmake(folder, prefix):
    """The files for CMake of what was installed below `prefix`."""
    (folder / "CMakeLists.txt").write_text(CMAKE)
    config = next(prefix.rglob("uroceConfig.cmake")).parent
    tree = folder / "by-cmake"
    # Some packages name the system's own headers, which then are looked for below the root, too.
    (folder / "root/usr/include").mkdir(exist_ok=True)
    run("cmake", "-S", folder, "-B", tree, f"-Duroce_DIR={config}", PKG_CONFIG_SYSROOT_DIR=folder / "root")
    run("cmake", "--build", tree)
    check_program(tree / "main")


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
        said = check_program(program)
        run(*compiler, "-std=c++20", "-I", ROOT, ROOT / "apps/examples/connect.cc", "-o", program, *flags)
        print(f"a program built by {description.name} runs: {said}")
        if shutil.which("cmake"):
            check_cmake(folder, prefix)
            print("so does one built by CMake")


if __name__ == "__main__":
    main()
