#!/usr/bin/env python3
"""Shows what a packet costs beside what it cost: in another build, or when bench/baseline was recorded.

Prints a line per benchmark of loop_bench and wire_bench: cycles per packet before and after (medians), their
ratio, that of the least samples, the larger spread of the two (half the distance of the quartiles, beside the
median), and a verdict. Whatever else runs on a host only ever adds cycles, up to twice as many on a core
that is shared: a benchmark is slower if its median and its least are both beyond the limit, and unclear if
only one of them is. Before either is said, it is measured for longer. Skipped is what this CPU has no
instructions for.

A cycle is a tick of the time stamp counter, which runs at the nominal frequency whatever the core does. Each
benchmark reports the median of its windows of 256 packets: what a packet usually costs, not what is rare.
Cycles of two builds, measured in turns, are compared as they are. Those of a baseline come from another time
and often from another machine: they are scaled by BM_Reference, work that never changes and that each run
measures too.

Status: 0 nothing is slower, 1 something is slower or missing, 2 nothing could be compared, 77 skipped for
lack of valgrind.
"""
import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = {"loop_bench": "bench/loop/loop_bench", "wire_bench": "bench/micro/wire_bench"}
REFERENCE = "BM_Reference"
BUILDS_LIMIT, BASELINE_LIMIT, INSTRUCTIONS_LIMIT = 1.10, 1.50, 1.01
REPETITIONS = 3
MORE_TIMES = 3  # --rounds for what looks slower
SECONDS = 300  # for one program
SKIPPED = 77


class Misuse(Exception):
    """Nothing could be compared, and why."""


class Cost:
    """What a benchmark has measured: the least sample, the quartiles and the median."""

    def __init__(self, least, low, median, high):
        self.least, self.low, self.median, self.high = least, low, median, high

    @classmethod
    def of(cls, samples):
        if len(samples) == 1:
            return cls(*samples * 4)
        return cls(min(samples), *statistics.quantiles(samples, n=4, method="inclusive"))

    def numbers(self):
        return self.least, self.low, self.median, self.high

    def scaled(self, factor):
        return Cost(*(number * factor for number in self.numbers()))

    def spread(self):
        return (self.high - self.low) / 2 / self.median


def run(words):
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Misuse(f"{words[0]}: {error}") from error
    if done.returncode != 0:
        raise Misuse(f"{' '.join(words)}: status {done.returncode}\n{done.stderr[-1000:]}")
    return done.stdout


def program_of(build, name):
    path = build / PROGRAMS[name]
    if not path.exists():
        raise Misuse(f"{path} is not there; build it: ninja -C {build} {' '.join(PROGRAMS.values())}")
    return path


def results(text, path):
    """{benchmark: runs of it} of Google Benchmark's JSON, without its own means and medians; no runs of what
    was skipped."""
    try:
        runs = [run for run in json.loads(text)["benchmarks"] if run.get("run_type") == "iteration"]
    except (ValueError, KeyError) as error:
        raise Misuse(f"{path} printed no results that can be read: {error}") from error
    found = {}
    for entry in runs:
        name = entry.get("run_name", entry["name"])
        if entry.get("error_occurred"):
            if entry.get("error_message", "").startswith("skipped: "):
                found[name] = []
                continue
            raise Misuse(f"{path}: {name} failed: {entry.get('error_message')}")
        if "cycles_per_packet" not in entry:
            raise Misuse(f"{path}: {name} tells no cycles per packet; is this build too old to compare?")
        found.setdefault(name, []).append(entry)
    return found


def in_order(names):
    """Names sorted as one reads them: 64 before 4096."""
    return sorted(names, key=lambda name: [word.zfill(20) if word.isdigit() else word
                                           for word in re.split(r"(\d+)", name)])


def google_filter(pattern):
    return f"^{REFERENCE}$|({pattern})"


class Measurement:
    """Samples of benchmarks, by builds whose programs run in turns."""

    def __init__(self, builds, options):
        self.builds, self.options = builds, options
        self.samples = [{name: {} for name in PROGRAMS} for _ in builds]

    def add_rounds(self, pattern):
        for number in range(self.options.rounds):
            print(f"round {number + 1} of {self.options.rounds}", file=sys.stderr)
            for name in PROGRAMS:
                for build, into in zip(self.builds, self.samples):
                    self.add_run(program_of(build, name), pattern, into[name])

    def add_run(self, path, pattern, into):
        text = run([str(path), "--benchmark_format=json", f"--benchmark_repetitions={REPETITIONS}",
                    "--benchmark_enable_random_interleaving=true",
                    f"--benchmark_min_time={self.options.seconds}",
                    f"--benchmark_filter={google_filter(pattern)}"])
        for benchmark, runs in results(text, path).items():
            into.setdefault(benchmark, []).extend(entry["cycles_per_packet"] for entry in runs)

    def costs(self):
        """For each build {program: {benchmark: Cost, or None if it was skipped}}."""
        return [{program: {name: Cost.of(taken) if taken else None for name, taken in found.items()}
                 for program, found in side.items()} for side in self.samples]


def count_instructions(build, options):
    """{"loop_bench": {benchmark: Cost}}: instructions per packet, by callgrind."""
    path = program_of(build, "loop_bench")
    listed = run([str(path), "--benchmark_list_tests", f"--benchmark_filter={google_filter(options.filter)}"])
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in listed.split():
            print(f"counting {name}", file=sys.stderr)
            out = pathlib.Path(folder) / "callgrind"
            # The least time there is: each benchmark runs once, with the same iterations every time.
            text = run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}",
                        "--toggle-collect=*run_window*", str(path), f"--benchmark_filter=^{name}$",
                        "--benchmark_min_time=1e-9", "--benchmark_format=json"])
            total = re.search(r"^totals: (\d+)", out.read_text(encoding="utf-8"), re.M)
            runs = results(text, path).get(name)
            if not total or not runs:
                raise Misuse(f"callgrind counted nothing in {name}")
            instructions = int(total.group(1)) / runs[0]["window_packets"]
            counts[name] = Cost.of([instructions])
    return {"loop_bench": counts}


def baseline_file(options, program):
    return options.baseline / f"{'instructions' if options.instructions else program}.json"


def stored_baseline(options, program):
    file = baseline_file(options, program)
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        costs = {name: Cost(*values) for name, values in stored["per_packet"].items()
                 if name == REFERENCE or re.search(options.filter, name)}
        return costs, f"{stored['machine']}, {stored['compiler']}, \"{stored['commit']}\""
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Misuse(f"{file} cannot be read: {error}; bench/compare.py --record writes it") from error


def read_baseline(options, programs):
    return {program: stored_baseline(options, program)[0] for program in programs}


def recorded_with(options, programs):
    return "; ".join(sorted({stored_baseline(options, program)[1] for program in programs}))


def scaled_to(before, after):
    """The costs before, as they would be in the run that measured those after."""
    scaled = {}
    for program, costs in before.items():
        if REFERENCE not in costs or REFERENCE not in after[program]:
            raise Misuse(f"{program}: there is no {REFERENCE} to compare by, before or after")
        factor = after[program][REFERENCE].least / costs[REFERENCE].least
        scaled[program] = {name: cost.scaled(factor) for name, cost in costs.items()}
    return scaled


def first_line(words):
    try:
        told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    except OSError:
        return ""
    return told.stdout.split("\n")[0]


def machine():
    facts = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$",
                            pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M))
    return f"{facts.get('model name')}, family {facts.get('cpu family')}, model {facts.get('model')}"


def compiler_of(build):
    try:
        log = (build / "meson-logs/meson-log.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown"
    found = re.search(r"^C\+\+ compiler for the host machine: [^(]*\((\S+ \S+)", log, re.M)
    return found.group(1) if found else "unknown"


def is_trained(build):
    """Whether config/train has had its code laid out: a round trip takes a quarter less then."""
    try:
        return "-fprofile-use" in (build / "build.ninja").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def made_by(build):
    return f"{compiler_of(build)}{', config/train' if is_trained(build) else ''}"


def check_training(builds, options):
    trained = [build for build in builds if is_trained(build)]
    if trained and options.instructions:
        raise Misuse(f"{trained[0]} goes by config/train; instructions are compared of builds that do not")
    if len(trained) == 1 and len(builds) == 2:
        raise Misuse(f"{trained[0]} goes by config/train, and the other build does not: train both or none")


def record(after, options):
    options.baseline.mkdir(parents=True, exist_ok=True)
    for program, costs in after.items():
        file = baseline_file(options, program)
        unit = "instructions" if options.instructions else "TSC cycles"
        about = {"unit": f"{unit}: least, lower quartile, median, upper quartile",
                 "machine": machine(), "compiler": made_by(options.build),
                 "commit": first_line(["git", "log", "-1", "--format=%s"])}
        lines = [f"  {json.dumps(key)}: {json.dumps(value)},\n" for key, value in about.items()]
        rows = [f"    {json.dumps(name)}: {[round(number, 2) for number in costs[name].numbers()]}"
                for name in in_order(costs) if costs[name]]
        file.write_text("{\n" + "".join(lines) + '  "per_packet": {\n' + ",\n".join(rows) + "\n  }\n}\n",
                        encoding="utf-8")
        print(f"{file}: {len(rows)} benchmarks")


def verdict(name, before, after, limit):
    """What is to be said of one benchmark, given all of before and of after."""
    if name in after and after[name] is None:
        return "skipped"
    before, after = before.get(name), after.get(name)
    if before is None:
        return "new"
    if after is None:
        return "MISSING"
    if name == REFERENCE:
        return "reference"
    ratios = after.median / before.median, after.least / before.least
    if max(ratios) > limit:
        return "SLOWER" if min(ratios) > limit else "unclear"
    return "faster" if max(ratios) < 1 / limit else "same"


def suspects(before, after, limit):
    return sorted({name for program, costs in after.items() for name in costs
                   if verdict(name, before[program], costs, limit) in ("SLOWER", "unclear")})


def table(before, after, limit, unit):
    """Prints the table. @return {"SLOWER": names, "MISSING": names}, empty if there are none."""
    layout = "{:<34} {:>9} {:>9} {:>7} {:>7} {:>7}  {}"
    print(layout.format(f"{unit} per packet", "before", "after", "ratio", "least", "spread", "verdict"))
    bad = {}
    for program in after:
        for name in in_order(before[program].keys() | after[program].keys()):
            old, new = before[program].get(name), after[program].get(name)
            said = verdict(name, before[program], after[program], limit)
            number = [f"{cost.median:.1f}" if cost else "-" for cost in (old, new)]
            ratios = "--"
            if old and new:
                ratios = [f"{new.median / old.median:.3f}", f"{new.least / old.least:.3f}"]
            spread = f"{100 * max((cost.spread() for cost in (old, new) if cost), default=0):.1f} %"
            print(layout.format(f"{program} {name}", *number, *ratios, spread, said))
            if said in ("SLOWER", "MISSING"):
                bad.setdefault(said, []).append(name)
    return bad


def parse(argv):
    parser = argparse.ArgumentParser(prog="bench/compare.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="what is measured (build)")
    parser.add_argument("--against", type=pathlib.Path, metavar="BUILD",
                        help="another build, measured in turns with it, instead of the baseline")
    parser.add_argument("--baseline", type=pathlib.Path, default=ROOT / "bench/baseline", metavar="FOLDER",
                        help="where baselines are (bench/baseline)")
    parser.add_argument("--record", action="store_true",
                        help="write the baseline instead of comparing with it")
    parser.add_argument("--instructions", action="store_true",
                        help="count instructions of loop_bench with callgrind: no noise, no cache misses")
    parser.add_argument("--limit", type=float,
                        help=f"ratio from which on a median is slower ({BUILDS_LIMIT} for two builds, "
                        f"{BASELINE_LIMIT} for a baseline, {INSTRUCTIONS_LIMIT} for instructions)")
    parser.add_argument("--filter", default=".", metavar="REGEX", help="these benchmarks only")
    parser.add_argument("--rounds", type=int, default=5,
                        help=f"runs of each program, {REPETITIONS} samples each (5)")
    parser.add_argument("--seconds", type=float, default=0.01, help="time of one sample (0.01)")
    options = parser.parse_args(argv)
    if options.record and options.against:
        parser.error("--record measures one build: leave out --against")
    if options.record and options.filter != ".":
        parser.error("--record writes whole baselines: leave out --filter")
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds and --seconds begin above 0")
    if options.limit is None:
        options.limit = (INSTRUCTIONS_LIMIT if options.instructions else
                         BUILDS_LIMIT if options.against else BASELINE_LIMIT)
    if options.limit < 1:
        parser.error("--limit is a ratio, 1 or more")
    return options


def before_and_after(sides, options):
    """What is compared, both as {program: {benchmark: Cost}}."""
    after = sides[0]
    if options.against:
        return sides[1], after
    before = read_baseline(options, after)
    return before if options.instructions else scaled_to(before, after), after


def measured(builds, options):
    """For each build {program: {benchmark: Cost}}; what looks slower is measured for longer."""
    if options.instructions:
        return [count_instructions(build, options) for build in builds]
    measurement = Measurement(builds, options)
    measurement.add_rounds(options.filter)
    if not any(name != REFERENCE for costs in measurement.costs()[0].values() for name in costs):
        raise Misuse(f"no benchmark matches '{options.filter}'")
    for _ in range(0 if options.record else MORE_TIMES):
        names = suspects(*before_and_after(measurement.costs(), options), options.limit)
        if not names:
            break
        print(f"once more: {', '.join(names)}", file=sys.stderr)
        measurement.add_rounds(f"^({'|'.join(names)})$")
    return measurement.costs()


def compare(options):
    if options.instructions and not shutil.which("valgrind"):
        print("skipped: valgrind is not installed")
        return SKIPPED
    builds = [options.build] + ([options.against] if options.against else [])
    check_training(builds, options)
    if not options.record and not options.against:
        read_baseline(options, ["loop_bench"])  # before time is spent: is there one?
    sides = measured(builds, options)
    if options.record:
        record(sides[0], options)
        return 0
    if not options.against:
        print(f"after:  {machine()}, {made_by(options.build)}")
        print(f"before: {recorded_with(options, sides[0])}")
    unit = "instructions" if options.instructions else "cycles"
    bad = table(*before_and_after(sides, options), options.limit, unit)
    told = "; ".join(f"{said.lower()}: {', '.join(names)}" for said, names in bad.items())
    print(f"limit {options.limit}: {told or 'nothing is slower'}")
    return 1 if bad else 0


def main():
    try:
        return compare(parse(sys.argv[1:]))
    except Misuse as error:
        print(f"bench/compare.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
