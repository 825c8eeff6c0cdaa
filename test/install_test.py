#!/usr/bin/env python3
"""Installs into a scratch folder; a program outside the tree is built there by uroce.pc alone, and runs. So
is the example that README builds, and the program by CMake where it is installed. A build without DPDK asks
its users for nothing that only the ports over DPDK need.

Usage: install_test.py BUILD_FOLDER COMPILER [ARGUMENT...]
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SECONDS = 240
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
find_package(uroce 0.1 REQUIRED)
add_executable(main main.cc)
target_link_libraries(main uroce::uroce)
"""
WITHOUT = """
cmake_minimum_required(VERSION 3.16)
project(user NONE)
find_package(uroce 0.1 QUIET)
if(uroce_FOUND OR TARGET uroce::uroce)
  message(FATAL_ERROR "it is there")
endif()
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
    run("cmake", "-S", folder, "-B", tree, f"-Duroce_DIR={config}")
    run("cmake", "--build", tree)
    check_program(tree / "main")
    (folder / "CMakeLists.txt").write_text(WITHOUT)  # what uroce.pc requires
    run("cmake", "-S", folder, "-B", folder / "without", f"-Duroce_DIR={config}", PKG_CONFIG_LIBDIR=folder)


def check_without_dpdk(folder):
    """A build that is only set up, with all that it has beside."""
    build = folder / "no-dpdk"
    run("meson", "setup", "-Ddpdk=disabled", build, ROOT)
    description = build / "meson-private/uroce.pc"
    required = run("pkg-config", "--print-requires", description).split()
    if set(required) & {"libxdp", "libbpf"} or "libisal" not in required:
        sys.exit(f"without DPDK {description.name} requires: {required}")


def main():
    build, compiler = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory(prefix="uroce-install-") as scratch:
        folder = pathlib.Path(scratch)
        run("meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder / "root")
        description = next((folder / "root").rglob("uroce.pc"))
        wanted = run("pkg-config", "--variable=prefix", description).strip()
        prefix = folder / "root" / wanted.lstrip("/")
        here = description.read_text().replace(f"prefix={wanted}", f"prefix={prefix}", 1)  # without --destdir
        description.write_text(here)
        flags = run("pkg-config", "--cflags", "--libs", description).split()
        source, program = folder / "main.cc", folder / "main"
        source.write_text(PROGRAM)
        run(*compiler, "-std=c++20", source, "-o", program, *flags)
        said = check_program(program)
        run(*compiler, "-std=c++20", "-I", ROOT, ROOT / "apps/examples/connect.cc", "-o", program, *flags)
        print(f"a program built by {description.name} runs: {said}")
        if shutil.which("cmake"):
            check_cmake(folder, prefix)
            print("so does one built by CMake")
        check_without_dpdk(folder)
        print("a build without DPDK requires nothing of it")


if __name__ == "__main__":
    main()
