#!/bin/bash
# What redplan predicts against what runs take: scripts/planner-runs.sh [NAME...]
#
# Each program (all unless named) runs with one, two and three replicas of each rank, with checkpoints, and with losses
# at times that are drawn with a short time between failures. redplan learns from some of the runs: at r = 1 and 2, with
# checkpoints, and one with a loss of each kind. It predicts the others: the median of as many runs. Times of losses are
# given to redplan, so that no luck is measured. Prints a table, as docs/planning.md has it, and its median error.
#
#   ROUNDS               runs of each kind (3)
#   PROFILES             a directory in which the profiles are left
#   PROCESSORS           as many, 0.8 for example, are used and no more, and before all others: for machines that others
#                        use meanwhile. Needs root, and control groups
#   REDRT_PREFIX         the installation that is tested; built and installed in target/test-prefix otherwise
set -euo pipefail
cd "$(dirname -- "$0")/.."
# shellcheck source=scripts/prefix.sh
. scripts/prefix.sh
export PATH=$REDRT_PREFIX/bin:$PATH LD_LIBRARY_PATH=$REDRT_PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
[ -z "${PROFILES-}" ] || mkdir -p "$PROFILES"
group=
trap 'rm -rf "$work"; [ -z "$group" ] || rmdir "$group"' EXIT
if [ -n "${PROCESSORS-}" ]; then
    quota_us=$(awk -v share="$PROCESSORS" 'BEGIN { print int(share * 20000) }')
    if [ -d /sys/fs/cgroup/cpu ]; then
        group=/sys/fs/cgroup/cpu/redrt-planner-$$
        mkdir "$group"
        echo 262144 >"$group/cpu.shares"
        echo 20000 >"$group/cpu.cfs_period_us"
        echo "$quota_us" >"$group/cpu.cfs_quota_us"
    else
        group=/sys/fs/cgroup/redrt-planner-$$
        mkdir "$group"
        echo 10000 >"$group/cpu.weight"
        echo "$quota_us 20000" >"$group/cpu.max"
    fi
fi
for name in heat cg master_worker alltoall ring hybrid; do
    mpicc -O2 -pthread -fopenmp -Itests/programs -o "$work/$name" "redrt-tests/programs/$name.c" -lm
done

python3 - "$work" "${ROUNDS:-3}" "$group" "${PROFILES:-$work}" "$@" <<'PY'
import json, pathlib, random, shutil, statistics, subprocess, sys

work, rounds, group = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
kept, wanted = pathlib.Path(sys.argv[4]), sys.argv[5:]
# Arguments that make each take about four seconds on two free processors, and its ranks.
PROGRAMS = {
    "heat": (["768", "4000"], 2),
    "cg": (["2000000", "1100"], 2),
    "master_worker": (["1800000"], 3),
    "alltoall": (["25000", "50000"], 2),
    "ring": (["8", "90"], 2),
    "hybrid": (["512", "7500"], 2),
}
CHECKPOINT_S, MTBF_S = 1.0, 1.5
# A process that enters the control group before it becomes the command.
GROUPED = ["sh", "-c", 'echo $$ >"$0" && exec "$@"', f"{group}/cgroup.procs"] if group else []

def drawn(until):
    """Times of losses, no two so near that the second one finds nobody: the first draw that has two or more."""
    for seed in range(1000):
        # The first checkpoint has to be on the disk.
        source, at, times = random.Random(seed), 1.5 * CHECKPOINT_S, []
        while (at := at + max(1.0, source.expovariate(1 / MTBF_S))) < until:
            times.append(round(at, 2))
        if len(times) > 1:
            return times
    sys.exit(f"a program that takes less than {until:.1f} s is too short")

class Ways:
    """Options of redrun, and of redplan predict, by the name of the way."""
    def __init__(self, work_s, ranks):
        losses = drawn(work_s * 0.9)
        saved = ["--checkpoint", f"{CHECKPOINT_S}s"]
        kill = lambda losses, index: [word for at, rank in losses for word in ("--inject", f"kill:{rank}.{index}@{at}s")]
        lose = lambda losses: [word for at, rank in losses for word in ("--lose", f"{rank}@{at}s")]
        placed = [(at, number % ranks) for number, at in enumerate(losses)]
        both = [(losses[len(losses) // 2], 1)] if losses else [(work_s / 2, 1)]
        self.test = {
            "r = 1": ([], []),
            "r = 2": (["-r", "2"], ["-r", "2"]),
            "r = 3": (["-r", "3"], ["-r", "3"]),
            "r = 1, saved": (saved, saved),
            "r = 1, saved, losses": (saved + kill(placed, 0), saved + lose(placed)),
            "r = 2, spares, losses": (
                ["-r", "2", "--spares", "2"] + kill(both, 0), ["-r", "2", "--spares"] + lose(both)),
            "r = 2, saved, a rank lost": (
                ["-r", "2", *saved] + kill(both, 0) + kill(both, 1), ["-r", "2", *saved] + lose(both + both)),
        }
        early = [(round(work_s * 0.45, 2), 0)]
        self.train = [
            [], ["-r", "2"], saved,
            saved + kill(early, 0),
            ["-r", "2", "--spares", "2"] + kill(early, 0),
        ]
        # How often the job goes back, and how many copies are made.
        self.expected = {
            "r = 1, saved, losses": (len(placed), 0),
            "r = 2, spares, losses": (0, len(both)),
            "r = 2, saved, a rank lost": (1, 0),
        }

def run(name, options, profile):
    arguments, ranks = PROGRAMS[name]
    store = work / "store"
    command = ["redrun", "-q", "-n", str(ranks), "--profile", str(profile)]
    if "--checkpoint" in options:
        command += ["--checkpoint-dir", str(store)]
    command += [*options, str(work / name), *arguments]
    ended = subprocess.run(GROUPED + command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    shutil.rmtree(store, ignore_errors=True)
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {ended.returncode}\n{ended.stderr}")
    return json.load(open(profile)), ended.stdout

def predict(profiles, options):
    command = ["redplan", "predict", "--json", *options]
    for profile in profiles:
        command += ["--profile", str(profile)]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return answer["tables"][0]["rows"][0]["time_s"]

errors, others = {}, 0
print("| Program | Way | Predicted, s | Measured, s | Error |")
print("|---|---|---:|---:|---:|")
for name in wanted or PROGRAMS:
    first, out = run(name, [], kept / f"{name}-first.json")
    ways = Ways(first["elapsed_s"], PROGRAMS[name][1])
    learned, measured = [], {way: [] for way in ways.test}
    for round_number in range(rounds):
        for number, options in enumerate(ways.train):
            path = kept / f"{name}-learned-{number}-{round_number}.json"
            learned.append(path)
            run(name, options, path)
        for way, (options, _) in ways.test.items():
            profile, again = run(name, options, kept / f"{name}-measured-{list(ways.test).index(way)}-{round_number}.json")
            # What is predicted has to have happened, and the result is to be that of the undisturbed run.
            if again != out:
                raise RuntimeError(f"{name}, {way}: another result")
            if (profile["returns"], profile["copies"]) == ways.expected.get(way, (0, 0)):
                measured[way].append(profile["elapsed_s"])
            else:
                others += 1
    for way, (_, options) in ways.test.items():
        if not measured[way]:
            continue
        expected, took = predict(learned, options), statistics.median(measured[way])
        error = expected / took - 1
        errors.setdefault(way, []).append(error)
        print(f"| {name} | {way} | {expected:.2f} | {took:.2f} | {error * 100:+.1f} % |", flush=True)

print("\n| Way | Median error | Largest |")
print("|---|---:|---:|")
for way, of_way in errors.items():
    sizes = [abs(error) * 100 for error in of_way]
    print(f"| {way} | {statistics.median(sizes):.1f} % | {max(sizes):.1f} % |")
every = [abs(error) * 100 for of_way in errors.values() for error in of_way]
if others > 0:
    print(f"\n{others} runs are left out in which another number of losses fell than was asked for")
print(f"\n{len(every)} predictions, median error {statistics.median(every):.1f} %")
PY
