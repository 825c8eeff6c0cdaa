#!/usr/bin/env python3
"""bench/compare.py says what is slower, and nothing where nothing is: fed with results that are made up.

Usage: compare_test.py SOURCE_ROOT
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
SECONDS = 20
QUIET = (0.995, 1.0, 1.005)
NOISY = (1.0, 1.0, 1.0, 1.3, 1.5, 1.7)  # something else ran half of the time
USUAL = {"BM_Reference": 1000.0, "BM_Send/64": 800.0, "BM_Parse/0": 50.0}


def results(cycles, swing=QUIET, extra=()):
    """What Google Benchmark prints of these benchmarks: a run per swing, and a mean to be left alone."""
    runs = [{"name": name, "run_name": name, "run_type": "iteration", "cycles_per_packet": value * factor,
             "window_packets": 2304} for name, value in cycles.items() for factor in swing]
    mean = {"name": "BM_Send/64_mean", "run_type": "aggregate", "cycles_per_packet": 1}
    return json.dumps({"context": {}, "benchmarks": runs + [mean, *extra]})


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.baseline = self.root / "baseline"

    def program(self, path, script):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}", encoding="utf-8")
        path.chmod(0o755)

    def build(self, name, loop, wire=None):
        """A build folder whose programs print results that are made up."""
        for program, text in (("loop/loop_bench", loop), ("micro/wire_bench", wire or results(USUAL))):
            path = self.root / name / "bench" / program
            self.program(path, f'[ "$1" != --benchmark_list_tests ] || exec echo BM_Send/64\n'
                               f'cat {path}.json\n')
            path.with_name(path.name + ".json").write_text(text, encoding="utf-8")
        return self.root / name

    def compare(self, *words, path=None):
        env = dict(os.environ, PATH=path or os.environ["PATH"], PYTHONDONTWRITEBYTECODE="1")
        words = [sys.executable, ROOT / "bench/compare.py", "--rounds", "1", "--baseline", self.baseline,
                 *words]
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, env=env)
        return done.returncode, done.stdout, done.stderr

    def builds(self, before, after, *words):
        return self.compare("--build", self.build("after", after), "--against", self.build("before", before),
                            *words)

    def says(self, out, name, verdict):
        rows = [row.split() for row in out.splitlines() if row.startswith(f"loop_bench {name} ")]
        self.assertEqual([row[-1] for row in rows], [verdict], out)
        return rows[0]

    def test_a_fifth_more_is_slower_and_fails(self):
        status, out, _ = self.builds(results(USUAL), results({**USUAL, "BM_Send/64": 960}))
        self.assertEqual(status, 1, out)
        row = self.says(out, "BM_Send/64", "SLOWER")
        self.assertEqual(row[2:5], ["800.0", "960.0", "1.200"])
        self.says(out, "BM_Parse/0", "same")
        self.assertTrue(out.endswith("limit 1.1: slower: BM_Send/64\n"), out)

    def test_the_limit_is_where_it_is_told_to_be(self):
        status, out, _ = self.builds(results(USUAL), results({**USUAL, "BM_Send/64": 960}), "--limit", "1.25")
        self.assertEqual(status, 0, out)
        self.says(out, "BM_Send/64", "same")

    def test_a_fifth_less_is_faster(self):
        status, out, _ = self.builds(results(USUAL), results({**USUAL, "BM_Send/64": 640}))
        self.assertEqual(status, 0, out)
        self.says(out, "BM_Send/64", "faster")

    def test_what_the_spread_explains_is_not_called_slower(self):
        status, out, err = self.builds(results(USUAL), results(USUAL, NOISY))
        self.assertEqual(status, 0, out)
        self.assertEqual(self.says(out, "BM_Send/64", "unclear")[4], "1.150")
        self.assertEqual(err.count("once more: BM_Parse/0, BM_Send/64"), 3, err)
        status, out, _ = self.builds(results(USUAL, NOISY), results(USUAL, NOISY))
        self.assertEqual(status, 0, out)
        self.says(out, "BM_Send/64", "same")

    def test_what_is_slower_is_seen_through_noise(self):
        status, out, _ = self.builds(results(USUAL, NOISY), results({**USUAL, "BM_Send/64": 960}, NOISY))
        self.assertEqual(status, 1, out)
        self.says(out, "BM_Send/64", "SLOWER")
        self.says(out, "BM_Parse/0", "same")

    def test_a_benchmark_that_is_missing_is_named(self):
        status, out, _ = self.builds(results(USUAL), results({"BM_Reference": 1000, "BM_Parse/0": 50}))
        self.assertEqual(status, 1, out)
        self.says(out, "BM_Send/64", "MISSING")
        self.assertTrue(out.endswith("missing: BM_Send/64\n"), out)

    def test_a_benchmark_that_is_new_does_no_harm(self):
        status, out, _ = self.builds(results(USUAL), results({**USUAL, "BM_Write/64": 900}))
        self.assertEqual(status, 0, out)
        self.says(out, "BM_Write/64", "new")

    def test_what_this_cpu_cannot_do_is_skipped(self):
        lines = {"name": "BM_Lines/64", "run_name": "BM_Lines/64", "run_type": "iteration"}
        skipped = {**lines, "error_occurred": True, "error_message": "skipped: this CPU lacks AVX2"}
        had = {**USUAL, "BM_Lines/64": 30}
        status, out, err = self.compare("--record", "--build", self.build("then", results(had)))
        self.assertEqual(status, 0, out + err)
        build = self.build("now", results(USUAL, extra=[skipped] * 3))
        for against in ([], ["--against", self.build("same", results(USUAL, extra=[skipped] * 3))]):
            status, out, err = self.compare("--build", build, *against)
            self.assertEqual(status, 0, out + err)
            self.says(out, "BM_Lines/64", "skipped")
            self.says(out, "BM_Send/64", "same")
        status, out, err = self.compare("--record", "--build", build)
        self.assertEqual(status, 0, out + err)
        self.assertNotIn("BM_Lines/64", (self.baseline / "loop_bench.json").read_text(encoding="utf-8"))

    def test_a_baseline_is_scaled_by_the_reference(self):
        status, out, err = self.compare("--record", "--build", self.build("then", results(USUAL)))
        self.assertEqual(status, 0, out + err)
        slow_machine = {name: 3 * value for name, value in USUAL.items()}
        build = self.build("now", results(slow_machine))
        status, out, _ = self.compare("--build", build)
        self.assertEqual(status, 0, out)
        self.assertEqual(self.says(out, "BM_Send/64", "same")[2:5], ["2400.0", "2400.0", "1.000"])
        build = self.build("now", results({**slow_machine, "BM_Send/64": 3 * 800 * 1.6}))
        status, out, _ = self.compare("--build", build)
        self.assertEqual(status, 1, out)
        self.says(out, "BM_Send/64", "SLOWER")

    def test_the_same_results_are_recorded_as_the_same_bytes(self):
        stored = []
        for _ in range(2):
            self.assertEqual(self.compare("--record", "--build", self.build("build", results(USUAL)))[0], 0)
            stored.append([file.read_bytes() for file in sorted(self.baseline.iterdir())])
        self.assertEqual(stored[0], stored[1])
        self.assertEqual(len(stored[0]), 2)

    def test_baselines_of_the_tree_can_be_read(self):
        files = sorted((ROOT / "bench/baseline").glob("*.json"))
        self.assertEqual([file.stem for file in files], ["instructions", "loop_bench", "wire_bench"])
        for file in files:
            stored = json.loads(file.read_text(encoding="utf-8"))
            self.assertIn("BM_Reference", stored["per_packet"])
            self.assertTrue(stored["machine"] and stored["compiler"] and stored["commit"])

    def test_instructions_are_counted_by_callgrind(self):
        path = f"{self.tools()}:{os.environ['PATH']}"
        build = self.build("build", results(USUAL))
        for count, status, last in ((2304000, 0, None), (2400000, 1, "SLOWER"), (2310000, 0, "same")):
            os.environ["COUNT"] = str(count)
            words = ["--instructions", "--build", build] + ([] if last else ["--record"])
            done = self.compare(*words, path=path)
            self.assertEqual(done[0], status, done)
            if last:
                self.assertEqual(self.says(done[1], "BM_Send/64", last)[2], "1000.0")

    def test_without_valgrind_it_is_skipped_with_a_reason(self):
        build = self.build("build", results(USUAL))
        status, out, _ = self.compare("--instructions", "--build", build, path=str(self.root))
        self.assertEqual((status, out), (77, "skipped: valgrind is not installed\n"))

    def train(self, build):
        (build / "build.ninja").write_text(" ARGS = -O3 -fprofile-use=x.gcda\n", encoding="utf-8")
        return build

    def test_builds_with_and_without_training_are_not_compared(self):
        trained = self.train(self.build("trained", results(USUAL)))
        other = self.build("other", results(USUAL))
        for words in (["--build", trained, "--against", other], ["--build", other, "--against", trained],
                      ["--instructions", "--build", trained]):
            status, _, err = self.compare(*words, path=f"{self.tools()}:{os.environ['PATH']}")
            self.assertEqual(status, 2, err)
            self.assertIn("goes by config/train", err)
        status, out, err = self.compare("--build", trained, "--against", self.train(other))
        self.assertEqual(status, 0, out + err)

    def test_a_baseline_tells_whether_it_was_trained(self):
        build = self.train(self.build("build", results(USUAL)))
        self.assertEqual(self.compare("--record", "--build", build)[0], 0)
        status, out, err = self.compare("--build", self.build("other", results(USUAL)))
        self.assertEqual(status, 0, out + err)
        self.assertRegex(out, r"before: .*config/train")
        self.assertNotRegex(out, r"after: .*config/train")

    def tools(self):
        """A folder with a valgrind that counts what $COUNT says."""
        self.program(self.root / "tools/valgrind",
                     'echo "totals: $COUNT" >"${2#--callgrind-out-file=}"\nexec "$4"\n')
        return self.root / "tools"

    def test_misuse_is_told_apart_from_a_regression(self):
        build = self.build("build", results(USUAL))
        failed = {"name": "BM_Send/64", "run_type": "iteration", "error_occurred": True,
                  "error_message": "bad frame"}
        old = {"name": "BM_Send/64", "run_type": "iteration", "real_time": 1}
        empty = self.build("empty", results({}), results({}))
        for words, reason in (
                (["--build", build], "--record writes it"),
                (["--build", build, "--against", self.root / "nowhere"], "build it: ninja"),
                (["--build", build, "--limit", "0.9"], "1 or more"),
                (["--build", build, "--rounds", "0"], "begin above 0"),
                (["--build", build, "--record", "--against", build], "leave out --against"),
                (["--record", "--build", empty], "no benchmark matches"),
                (["--record", "--build", self.build("broken", "no JSON")], "no results that can be read"),
                (["--record", "--build", self.build("failing", results(USUAL, extra=[failed]))], "bad frame"),
                (["--record", "--build", self.build("old", results({}, extra=[old]))], "too old"),
                (["--what"], "usage: bench/compare.py")):
            status, _, err = self.compare(*words)
            self.assertEqual(status, 2, err)
            self.assertIn(reason, err)
            self.assertNotIn("Traceback", err)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
