#!/usr/bin/env python3
"""The scripts of config/, with other programs in the place of those that build and of the kernel.

Usage: config_test.py [SOURCE_ROOT]
"""
import collections
import itertools
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
SECONDS = 30


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        (self.folder / "bin").mkdir()

    def put(self, path, text):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/sh\n" + text)
        file.chmod(0o755)

    def copy_of_config(self, *names):
        (self.folder / "config").mkdir(exist_ok=True)
        for name in names:
            shutil.copy(ROOT / "config" / name, self.folder / "config" / name)

    def run_script(self, script, *words, cwd=".", prepare=None, **more):
        env = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", **more}
        return subprocess.run([script, *map(str, words)], cwd=self.folder / cwd, env=env,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS,
                              preexec_fn=prepare)


class Jobs(Scripts):
    def jobs(self, kib, cores, limits=None):
        """@param limits  file of a control group -> what it says"""
        self.copy_of_config("common.sh")
        self.put("bin/nproc", f"echo {cores}")
        root = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        files = {"proc/meminfo": f"MemTotal: 99999999 kB\nMemAvailable: {kib} kB\n"}
        files.update({f"sys/fs/cgroup/{name}": text for name, text in (limits or {}).items()})
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        result = self.run_script("bash", "-c", '. config/common.sh; jobs_that_fit "$1"', "bash", root)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_no_more_compilers_run_than_there_is_memory_for(self):
        gib = 1 << 20
        for kib, cores, option in ((24 * gib, 2, ""), (8 * gib, 8, ""), (8 * gib, 16, "-j10"),
                                   (gib, 2, "-j1"), (gib // 4, 64, "-j1")):
            with self.subTest(kib=kib, cores=cores):
                self.assertEqual(self.jobs(kib, cores), option)

    def test_a_container_has_its_own_limit(self):
        gib = 1 << 20
        for name in ("memory.max", "memory/memory.limit_in_bytes"):
            for text, option in ((f"{4 << 30}\n", "-j5"), (f"{200 << 30}\n", ""), ("max\n", ""),
                                 ("9223372036854771712\n", ""), ("", "")):
                with self.subTest(name=name, text=text):
                    self.assertEqual(self.jobs(64 * gib, 32, {name: text}), option)


class Quickstart(Scripts):
    def setUp(self):
        super().setUp()
        self.copy_of_config("quickstart", "common.sh", "uroce.toml")
        self.put("config/setup", "echo setup >>log")
        self.put("config/hugepages", "exit 0")
        self.put("config/train", "echo train >>log; exit ${TRAIN:-0}")
        self.put("bin/meson", "echo meson >>log; touch build/build.ninja")
        self.put("bin/ninja", "echo ninja >>log; mkdir -p build/apps; cp uroce build/apps/uroce")
        self.put("uroce", 'echo "uroce $*" >>log')

    def steps(self, *words, status=0, **more):
        (self.folder / "log").unlink(missing_ok=True)
        result = self.run_script("config/quickstart", *words, **more)
        self.assertEqual(result.returncode, status, result.stderr)
        log = self.folder / "log"
        return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []

    def test_it_trains_once(self):
        self.assertEqual(self.steps(), ["setup", "meson", "train", "ninja", "uroce"])
        self.assertEqual(self.steps(), ["setup", "ninja", "uroce"])

    def test_a_training_that_was_interrupted_begins_again(self):
        self.assertEqual(self.steps(TRAIN="130", status=130), ["setup", "meson", "train"])
        self.assertEqual(self.steps(), ["setup", "train", "ninja", "uroce"])

    def test_a_training_that_fails_is_not_tried_again(self):
        self.assertEqual(self.steps(TRAIN="22"), ["setup", "meson", "train", "ninja", "uroce"])
        self.assertEqual(self.steps(), ["setup", "ninja", "uroce"])

    def test_a_folder_that_still_counts_is_trained(self):
        self.steps()
        # config/train was killed
        (self.folder / "build/build.ninja").write_text("ARGS = -fprofile-generate\n")
        self.assertEqual(self.steps(), ["setup", "train", "ninja", "uroce"])

    def test_what_it_starts_is_let_in_and_demos_get_on_with_each_other(self):
        self.copy_of_config("train")
        self.put("bin/nproc", "echo 1")
        self.put("uroce", "env -u CONFIG_LOCKED config/train; echo $? >second")
        result = self.run_script("config/quickstart")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("going on without a profile: [train] error: two processes", result.stderr)
        self.assertEqual((self.folder / "second").read_text(), "22\n", result.stderr)

    def test_a_search_path_for_folders_does_not_lead_astray(self):
        (self.folder / "astray/config").mkdir(parents=True)
        result = self.run_script("config/quickstart", CDPATH=str(self.folder / "astray"))
        self.assertEqual((result.returncode, result.stdout), (0, ""), result.stderr)

    def test_a_wrong_option_is_refused_before_the_build(self):
        self.assertEqual(self.steps("--quikc", status=2), [])
        self.assertEqual(self.steps("--ports=shm:x", status=2), [])
        words = ["--quick", "--json", "--no-huge", "--port", "shm:x", "--mtu=2000"]
        self.assertEqual(self.steps(*words)[-1], "uroce")

    def test_stdout_is_the_demos(self):
        for name in ("config/setup", "config/hugepages", "config/train", "bin/ninja"):
            self.put(name, f"echo {name} speaks\n{(self.folder / name).read_text()}")
        self.put("uroce", '[ ! -e second ] || { rm second; exit 17; }; echo "{\\"words\\": \\"$*\\"}"')
        (self.folder / "second").touch()  # status 17: once more with --no-huge
        result = self.run_script("config/quickstart", "--json", "--quick")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["words"].split()[:3], ["demo", "--json", "--quick"])
        for told in ("config/setup speaks", "config/hugepages speaks", "bin/ninja speaks", "] next: "):
            self.assertIn(told, result.stderr)

    def test_files_of_options_are_those_of_the_callers_directory(self):
        self.put("uroce", 'cat "$3" "$UROCE_CONFIG" >found && [ ! -e second ] || { rm second; exit 17; }')
        self.put("elsewhere/of option", "")
        self.put("elsewhere/of environment", "")
        for script in ("../config/quickstart", self.folder / "config/quickstart"):
            with self.subTest(script=script):
                (self.folder / "elsewhere/found").unlink(missing_ok=True)
                (self.folder / "elsewhere/second").touch()  # status 17: once more with --no-huge
                result = self.run_script(script, "--config", "of option", cwd="elsewhere",
                                         UROCE_CONFIG="of environment")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual((self.folder / "elsewhere/found").read_text(), 2 * "#!/bin/sh\n")


class Train(Scripts):
    def setUp(self):
        super().setUp()
        self.copy_of_config("train", "common.sh")
        self.put("bin/nproc", "echo 2")
        self.put("bin/meson", 'echo "$4" >>"$3/profile"')
        self.put("bin/ninja", "exit 0")

    def build(self, path):
        shutil.rmtree(self.folder / path, ignore_errors=True)
        self.put(path / "bench/train/train", 'touch "$(dirname "$0")/packets.gcda"')
        (self.folder / path / "build.ninja").touch()
        return self.folder / path

    def test_its_folder_is_named_from_where_it_is_called(self):
        far = self.folder / "config/train"
        near, mine = "../config/train", "elsewhere/build"
        for script, cwd, words, trained in (("config/train", ".", [], "build"),
                                            ("config/train", ".", ["other"], "other"),
                                            (near, "elsewhere", ["--again", "build"], mine),
                                            (far, "elsewhere", ["../build"], "build"),
                                            (far, "elsewhere", [], "build"),
                                            (far, mine, ["."], mine),
                                            (far, ".", [self.folder / mine], mine)):
            with self.subTest(cwd=cwd, words=words):
                builds = [self.build(pathlib.Path(name)) for name in ("build", "other", mine)]
                result = self.run_script(script, *words, cwd=cwd)
                self.assertEqual(result.returncode, 0, result.stderr)
                for build in builds:
                    profiles = (build / "profile").read_text() if (build / "profile").exists() else ""
                    wanted = "-Dprofile=record\n-Dprofile=use\n" if build == self.folder / trained else ""
                    self.assertEqual(profiles, wanted, build)

    def test_a_folder_that_still_counts_does_so_no_longer_on_one_core(self):
        self.put("bin/nproc", "echo 1")
        for text, profiles in (("", None), ("-fprofile-generate\n", "-Dprofile=none\n")):
            with self.subTest(text=text):
                build = self.build(pathlib.Path("build"))
                (build / "build.ninja").write_text(text)
                self.assertEqual(self.run_script("config/train").returncode, 22)
                found = (build / "profile").read_text() if (build / "profile").exists() else None
                self.assertEqual(found, profiles)

    def test_how_to_configure_is_said_for_where_it_is_called(self):
        (self.folder / "elsewhere").mkdir()
        result = self.run_script("../config/train", "build", cwd="elsewhere")
        self.assertEqual(result.returncode, 2, result.stderr)
        for name in ("elsewhere/build", "config/meson/release.ini"):
            self.assertIn(f" {self.folder / name}", result.stderr)


class Check(Scripts):
    def setUp(self):
        super().setUp()
        self.copy_of_config("check", "common.sh", "tally.py")
        self.put("config/setup", "echo setup >>log; exit ${SETUP:-0}")
        self.put("config/train", "exit 0")
        self.put("bin/ninja", "exit 0")
        self.put("bin/meson", '[ "$1" = test ] || exit 0; mkdir -p build/meson-logs\n'
                              'while [ "$1" != --logbase ]; do shift; done\n'
                              'echo "$LOG" >"build/meson-logs/$2.json"; exit $STATUS')

    def test_a_wrong_option_is_refused_before_anything_is_installed(self):
        for words in (["--sutie", "unit"], ["--suite"], ["--suite", "unity"], ["--suite", ""], ["--seconds"],
                      ["--seconds", "1e3"], ["--seconds", "08"], ["--soak", "-1"], ["--soak", "long"],
                      ["--soak", "0"], ["--tsan", "--quick"], ["--suite", "unit", "--tsan"],
                      ["--soak", "1", "--suite", "unit"], ["--soak", "1", "--quick"],
                      ["--soak", "1", "--tsan"], ["--tidy", "--soak", "1"],
                      ["--seconds", "1680", "--soak", "1"]):
            with self.subTest(words=words):
                result = self.run_script("config/check", *words)
                self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
                self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
                self.assertIn("see config/check --help", result.stderr)
        self.assertFalse((self.folder / "log").exists())

    def test_what_cannot_be_installed_has_failed(self):
        result = self.run_script("config/check", "--suite", "unit", SETUP="1")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], "0 passed, 1 failed, 0 skipped")

    def test_a_build_folder_that_cannot_be_written_is_told_first(self):
        self.put("build/check", "")  # a file: root may write everywhere
        result = self.run_script("config/check", "--suite", "unit")
        self.assertEqual((result.returncode, result.stdout), (18, ""), result.stderr)
        self.assertIn("sudo chown -R $USER build", result.stderr)
        self.assertFalse((self.folder / "log").exists())

    def test_a_failure_that_there_is_no_room_to_record_has_failed(self):
        full = 256

        def prepare():  # of no file more than 4 KiB
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (16 * full, 16 * full))

        self.put("bin/ninja", f"yes 'pass\tno room\t--' | head -n {full} >build/check/steps; exit 1")
        result = self.run_script("config/check", "--suite", "unit", prepare=prepare)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertEqual(result.stdout.splitlines()[-1], f"{full} passed, 1 failed, 0 skipped")
        self.assertIn("failed: build/check/steps: ", result.stdout)

    def test_a_log_that_is_cut_off_has_failed(self):
        whole = '{"name": "uroce:unit / wire", "result": "OK", "stdout": "3 passed, 0 failed"}'
        result = self.run_script("config/check", "--suite", "unit", STATUS="0", LOG=f"{whole}\n{whole[:30]}")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stdout.splitlines()[-1], r"^[45] passed, 1 failed, 0 skipped$")
        self.assertIn("failed: build/meson-logs/tests.json: cut off", result.stdout)
        self.assertEqual(result.stderr, "")

    def test_an_empty_list_of_programs_is_not_everything(self):
        log = '{"name": "uroce:unit / wire", "result": "OK", "stdout": "3 passed, 0 failed"}'
        self.put("bench/compare.py", "")
        self.put("bin/ninja", 'echo "$*" >>ninjas; mkdir -p build-fuzz/test/fuzz\n'
                              "for n in frame loop cm; do "
                              "ln -sf /bin/true build-fuzz/test/fuzz/${n}_fuzz; done")
        self.put("config/targets.py", "exit 1")
        result = self.run_script("config/check", STATUS="0", LOG=log)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertRegex(result.stdout.splitlines()[-1], " passed, 1 failed, 0 skipped$")
        self.assertIn("finds no program", result.stdout)

    def test_only_one_works_in_a_clone(self):
        self.put("config/setup", "echo setup >>log; [ ! -e told ] || exit 1\n"
                                 "env -u CONFIG_LOCKED config/check --quick >told 2>&1; "
                                 "echo $? >second; exit 1")
        self.run_script("config/check", "--suite", "unit")
        told = (self.folder / "told").read_text()
        self.assertEqual((self.folder / "second").read_text(), "14\n", told)
        self.assertIn("another one works in this clone", told)
        self.assertEqual((self.folder / "log").read_text(), "setup\n")

    def test_what_stays_behind_does_not_lock_the_clone(self):
        self.put("config/setup", "sleep 60 </dev/null >/dev/null 2>&1 &\necho $! >>behind; exit 1")
        try:
            for _ in range(2):
                self.assertEqual(self.run_script("config/check", "--suite", "unit").returncode, 1)
        finally:
            for process in (self.folder / "behind").read_text().split():
                os.kill(int(process), signal.SIGKILL)

    def test_a_signal_tells_its_name(self):
        def heeds_signals():  # what runs in the background, as this may, ignores some
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)

        self.put("config/setup", 'kill -"$NAME" "$(cat main)"; sleep 20')
        for name, status in (("TERM", 143), ("HUP", 129), ("INT", 130)):
            with self.subTest(name=name):
                result = self.run_script("sh", "-c", "echo $$ >main; exec config/check --suite unit",
                                         NAME=name, prepare=heeds_signals)
                self.assertEqual(result.returncode, status, result.stderr)

    def seeds_of_soak(self, seconds):
        """{program and its kind: ranges of seeds of its runs}; each has at most as many as it shall do."""
        stub = 'echo "$0 $*" >>runs\n'
        programs = [f"build-asan/test/{name}" for name in (
            "sim/rc_sim", "sim/cm_sim", "sim/congestion_sim", "fuzz/random_mads", "fuzz/random_packets",
            "api/api_fuzz")]
        for program in [*programs, "build/test/soak/mixed_ops"]:
            self.put(program, stub)
        (self.folder / "runs").write_text("")
        result = self.run_script("config/check", "--soak", seconds)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        found = collections.defaultdict(list)
        for line in (self.folder / "runs").read_text().splitlines():
            said = dict(re.findall(r"--(\w+) (\d+)", line))
            counts = [said[name] for name in ("schedules", "mads", "packets", "sequences") if name in said]
            kind = " ".join([pathlib.Path(line.split()[0]).name, *re.findall(r"--\w+(?= --)", line)])
            first = int(said["seed"])
            found[kind].append(range(first, first + int([*counts, 1][0])))
        return found

    def test_rounds_of_a_soak_share_no_seed(self):
        for seconds in (2, 4, 8):  # as many as a busy machine needs for two rounds
            found = self.seeds_of_soak(seconds)
            if min(map(len, found.values())) >= 2:
                break
        for program, runs in found.items():
            self.assertGreaterEqual(len(runs), 2, program)
            for one, next_one in itertools.pairwise(runs):
                self.assertLessEqual(one.stop, next_one.start, program)
        self.assertEqual(sorted(found), sorted(
            ["rc_sim", "rc_sim --mixed", "rc_sim --multicast", "rc_sim --selective", "cm_sim",
             "congestion_sim", "random_mads", "random_packets", "api_fuzz", "mixed_ops"]))

    def test_tests_that_were_cut_off_have_failed(self):
        log = '{"name": "uroce:unit / wire", "result": "OK", "stdout": "3 passed, 0 failed"}'
        failed = log.replace("OK", "FAIL").replace("0 failed", "1 failed")
        for status, text, failures in ((0, log, 0), (1, failed, 1), (2, log, 1)):
            with self.subTest(status=status, text=text):
                result = self.run_script("config/check", "--suite", "unit", STATUS=str(status), LOG=text)
                steps = len(re.findall("(?:train the compiler|build with gcc): done", result.stdout))
                self.assertEqual(result.stdout.splitlines()[-1],
                                 f"{3 + steps} passed, {failures} failed, 0 skipped")
                self.assertEqual(result.returncode, min(failures, 1), result.stdout)

    def test_tests_that_there_is_no_time_for_are_named_and_have_not_failed(self):
        log = '{"name": "uroce:unit / wire", "result": "OK", "stdout": "3 passed, 0 failed"}'
        for seconds, runs, skipped in ((400, 1, 1), (2000, 2, 0)):
            with self.subTest(seconds=seconds):
                words = ("--quick", "--seconds", str(seconds))
                result = self.run_script("config/check", *words, STATUS="0", LOG=log)
                steps = len(re.findall("(?:train the compiler|build with gcc): done", result.stdout))
                self.assertEqual(result.stdout.splitlines()[-1],
                                 f"{3 * runs + steps} passed, 0 failed, {skipped} skipped")
                named = f"skipped: tests of the drop-in: of {seconds} s"
                self.assertEqual(named in result.stdout, skipped == 1)
                self.assertEqual(result.returncode, 0, result.stdout)


class Hugepages(Scripts):
    """A kernel that has memory for 300 pages."""

    def setUp(self):
        super().setUp()
        self.put("bin/cat", 'n=$(/bin/cat "$1"); [ "$n" -le 300 ] || n=300; echo "$n"')
        for name in ("nr_hugepages", "free_hugepages"):
            (self.folder / name).write_text("100\n")
        (self.folder / "nr_overcommit_hugepages").write_text("7\n")
        # As libhugetlbfs does: the most that there may be stays.
        self.put("bin/hugeadm", f'cd "{self.folder}"; [ "$1" = --pool-pages-min ] || exit 1; n=${{2#2MB:}}\n'
                                'over=$(($(cat nr_hugepages) + $(cat nr_overcommit_hugepages) - n))\n'
                                'echo "$n" >nr_hugepages\n[ "$over" -ge 0 ] || over=0\n'
                                'echo "$over" >nr_overcommit_hugepages\n')

    def run_it(self, *words):
        return self.run_script(ROOT / "config/hugepages", *words, UROCE_HUGEPAGE_POOL=str(self.folder))

    def pages(self):
        return (self.folder / "nr_hugepages").read_text().strip()

    def test_so_many_are_set_up(self):
        self.assertEqual((self.run_it(200).returncode, self.pages()), (0, "200"))
        self.assertEqual((self.run_it(0).returncode, self.pages()), (0, "0"))
        self.assertEqual((self.run_it().returncode, self.pages()), (0, "256"))

    def test_what_is_given_back_is_not_made_again(self):
        for count in (200, 0, 50):
            self.assertEqual((self.run_it(count).returncode, self.pages()), (0, str(count)))
            self.assertEqual((self.folder / "nr_overcommit_hugepages").read_text().strip(), "7")

    def test_pages_of_another_default_size_stay(self):
        """/proc/sys/vm has the pool of the default size: pages of 1 GiB where the kernel was told so."""
        text = (ROOT / "config/hugepages").read_text()
        for kernels, own in (("/sys/kernel/mm/hugepages/hugepages-2048kB", "."), ("/proc/sys/vm", "vm")):
            text = text.replace(kernels, str(self.folder / own))
        (self.folder / "script").write_text(text)
        (self.folder / "vm").mkdir()
        (self.folder / "vm/nr_hugepages").write_text("3\n")
        self.put("bin/hugeadm", "exit 1")
        for words, status, pages in (([200], 0, "200"), ([400], 12, "200"), ([0], 0, "0"), ([], 0, "256")):
            with self.subTest(words=words):
                result = self.run_script("sh", "script", *words, UROCE_HUGEPAGE_POOL="")
                self.assertEqual((result.returncode, self.pages()), (status, pages), result.stderr)
                self.assertEqual((self.folder / "vm/nr_hugepages").read_text(), "3\n")

    def test_more_than_fit_are_given_back(self):
        result = self.run_it(400)
        self.assertEqual((result.returncode, self.pages()), (12, "100"), result.stdout)
        self.assertIn("memory for 300 pages, not for 400", result.stderr)

    def test_a_wrong_number_changes_nothing(self):
        for words in (["many"], ["-5"], ["1.5"], ["99999999999999999999"], [200, 300]):
            with self.subTest(words=words):
                result = self.run_it(*words)
                self.assertEqual((result.returncode, result.stdout, self.pages()), (2, "", "100"))
                self.assertIn("see: config/hugepages --help", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
