#!/usr/bin/env python3
"""A program that takes uroce as a subproject of meson: it is set up, sees the public headers and no others,
and links the library. The library is not built for it once more.

Usage: subproject_test.py SOURCE_ROOT
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SECONDS = 240
ROOT = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
PROJECT = """
project('user', 'cpp', default_options: ['cpp_std=c++20', 'werror=true'])
executable('user', 'user.cc', dependencies: dependency('uroce', version: '>=0.1', fallback: 'uroce'))
"""
PROGRAM = """
#include <uroce/device.h>
#if __has_include("wire/bth.h") || __has_include("lib/wire/bth.h")
#error "it sees what is not public"
#endif
int main() { return uroce::Device::open({}) ? 0 : 1; }
"""


def run(*command):
    """@return what it said"""
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise AssertionError(f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Subproject(unittest.TestCase):
    def test_a_program_is_set_up_and_compiled_and_linked_with_it(self):
        with tempfile.TemporaryDirectory(prefix="uroce-subproject-") as scratch:
            folder = pathlib.Path(scratch)
            build = folder / "build"
            (folder / "meson.build").write_text(PROJECT, encoding="ascii")
            (folder / "user.cc").write_text(PROGRAM, encoding="ascii")
            (folder / "subprojects").mkdir()
            (folder / "subprojects/uroce").symlink_to(ROOT)
            run("meson", "setup", "--force-fallback-for=uroce", build, folder)
            run("ninja", "-C", build, "user.p/user.cc.o")
            (link,) = run("ninja", "-C", build, "-t", "commands", "-s", "user").splitlines()
            self.assertIn("subprojects/uroce/lib/cm/liburoce.a", link)
            everything = run("ninja", "-C", build, "-t", "targets", "all")
            self.assertNotIn("catch_main", everything, "its tests are not the program's")


if __name__ == "__main__":
    unittest.main()
