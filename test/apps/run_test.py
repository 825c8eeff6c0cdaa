#!/usr/bin/env python3
"""`uroce run` from folders of all names, and of programs with arguments of all kinds.

Usage: run_test.py UROCE_PROGRAM
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from cli_test import SECONDS, UROCE, USAGE, Case, clean_environment, uroce

INVALID = 10
LIBRARIES = ("lib/abi/ibverbs/libibverbs.so.1", "lib/abi/rdmacm/preload/liburoce-preload.so")


class Folders(Case):
    def run_in(self, name, *words):
        """`uroce run`, from a folder of that name."""
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory, name)
            for part in LIBRARIES:
                (root / part).parent.mkdir(parents=True)
                (root / part).symlink_to(UROCE.parents[1] / part)
            (root / "apps").mkdir()
            shutil.copy(UROCE, root / "apps")  # no link: it looks where it really is
            return subprocess.run([root / "apps/uroce", "run", "--port", self.link, "--", *words], text=True,
                                  capture_output=True, env=clean_environment(), timeout=SECONDS)

    def test_those_with_blanks_are_found(self):
        for name in ("none", "a b"):
            with self.subTest(name=name):
                result = self.run_in(name, "cat", "/proc/self/maps")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("/liburoce-preload.so", result.stdout)
                self.assertRegex(result.stderr, r"\Auroce: port .*\n\Z")  # and nothing by ld.so

    def test_those_that_the_linker_cannot_be_told_are_refused(self):
        self.assert_fails(self.run_in("a:b", "true"), INVALID, "a:b", "':'")


class Words(Case):
    ODD = ["[a,b]", "[::1]", "", "x", "--", "y", "[]", "{}", "[[a]]", "[", "a,b", "ping", "-l", "--no-huge",
           ""]

    def arguments(self, *words, env=None):
        """Those that the program got, each on a line."""
        result = uroce("run", *words, env=env)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.splitlines()

    def test_the_program_gets_its_arguments_as_they_are(self):
        for options in ([], ["--port", self.link], [f"--port={self.link}", "--no-huge", "--mode", "auto"]):
            with self.subTest(options=options):
                told = self.arguments(*options, "--", "printf", "<%s>\n", *self.ODD)
                self.assertEqual(told, [f"<{word}>" for word in self.ODD])

    def test_so_it_does_without_dashes_in_front(self):
        odd = [word for word in self.ODD if not word.startswith("-")]
        for options in ([], ["--port", self.link]):
            with self.subTest(options=options):
                told = self.arguments(*options, "printf", "<%s>\n", *odd)
                self.assertEqual(told, [f"<{word}>" for word in odd])

    def test_options_before_it_are_heeded_with_and_without_dashes(self):
        for dashes in (["--"], []):
            with self.subTest(dashes=dashes):
                told = self.arguments("--port", self.link, "--mtu", 1500, *dashes, "env")
                self.assertIn(f"UROCE_PORT={self.link}", told)
                self.assertIn("UROCE_MTU=1500", told)

    def test_options_of_the_program_need_the_dashes(self):
        self.assert_fails(uroce("run", "ls", "-l", "[a,b]"), USAGE, "uroce run -- PROGRAM -l [a,b]")
        self.assert_fails(uroce("run", "printf", "a", "--", "b"), USAGE, "uroce run -- PROGRAM ...")
        self.assert_fails(uroce("run", "--no_huge", "--", "ls", "-l"), USAGE,
                          "does not take --no_huge: did you mean --no-huge?")

    def test_a_program_may_be_called_anything(self):
        for name in ("[a,b]", "[]"):
            with self.subTest(name=name), tempfile.TemporaryDirectory() as directory:
                pathlib.Path(directory, name).symlink_to("/bin/echo")
                found = clean_environment(PATH=directory)
                self.assertEqual(self.arguments("--", name, name, env=found), [name])

    def test_without_a_program_it_says_how(self):
        for words in ([], ["--"], ["--no-huge", "--"]):
            with self.subTest(words=words):
                self.assert_fails(uroce("run", *words), USAGE, "uroce run [options] -- PROGRAM")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
