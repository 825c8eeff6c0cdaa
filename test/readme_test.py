#!/usr/bin/env python3
"""README.md tells the truth about names: the files it mentions exist, and so do the commands of uroce.

Usage: readme_test.py SOURCE_ROOT [UROCE_PROGRAM]
"""
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
PROGRAM = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "build/apps/uroce")
FOLDERS = ("include", "lib", "drivers", "apps", "test", "bench", "config")
SECONDS = 20


class Readme(unittest.TestCase):
    def setUp(self):
        self.text = (ROOT / "README.md").read_text(encoding="utf-8")

    def test_links_lead_somewhere(self):
        for target in re.findall(r"\]\(([^):]+)\)", self.text):
            self.assertTrue((ROOT / target).exists(), f"README links to {target}")

    def test_files_that_are_named_exist(self):
        for name in re.findall(r"(?:^|[\s`(])((?:" + "|".join(FOLDERS) + r")/[\w./-]*\w)", self.text, re.M):
            self.assertTrue((ROOT / name).exists(), f"README names {name}")

    def test_features_name_a_file_and_a_test(self):
        table = self.text.split("## Features", 1)[1].split("\n## ", 1)[0]
        rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
        self.assertTrue(rows)
        for row in rows:
            _, _, files, tests, _ = row.split("|")
            self.assertRegex(files, "`(?:" + "|".join(FOLDERS) + ")/")
            self.assertRegex(tests, r"`test/")

    @unittest.skipUnless(PROGRAM.exists(), f"{PROGRAM} is not built")
    def test_commands_exist(self):
        for command in sorted(set(re.findall(r"\buroce ([a-z]+)", self.text))):
            help_text = subprocess.run([PROGRAM, command, "--help"], capture_output=True, timeout=SECONDS)
            self.assertEqual(help_text.returncode, 0, f"README names uroce {command}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
