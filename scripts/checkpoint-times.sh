#!/bin/bash
# What checkpoints cost, and what going back to one takes: scripts/checkpoint-times.sh [MIB [RANKS [DIRECTORY [CHAIN]]]]
#
# Runs a job of RANKS processes (2) of MIB each (1024) that compute all the time and write to 100 MiB of their memory a
# second (MIB_A_SECOND in the environment), takes five checkpoints in DIRECTORY, kills a rank, and prints a table. dd
# writes as many bytes to the same directory, with fsync, before and after each. Each checkpoint has all memory, unless
# CHAIN (1) is more: then a line is printed for each, too. As root it takes the images out of the cache of the file
# system before the rank is killed, and has dd read them so before and after.
set -euo pipefail

mib=${1:-1024} ranks=${2:-2} chain=${4:-1}
cd "$(dirname -- "$0")/.."
# shellcheck source=scripts/prefix.sh
. scripts/prefix.sh
work=$(mktemp -d -p "${3:-/var/tmp}")
trap 'kill "$job" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
export PATH=$REDRT_PREFIX/bin:$PATH
mpicc -O2 -o "$work/dirtying" redrt-tests/cases/dirtying.c

audit=$work/audit
redrun -q -n "$ranks" --checkpoint asked --checkpoint-chain "$chain" --checkpoint-dir "$work/store" --audit "$audit" \
    "$work/dirtying" "$work/stop" "$mib" "${MIB_A_SECOND:-100}" "$work/progress" >"$work/out" &
job=$!
until grep -q computing "$work/out"; do
    kill -0 $job || exit 1
    sleep 0.1
done
number=$(grep -o '"job":"[0-9a-f]*"' "$audit" | head -n 1 | cut -d '"' -f 4)

count() {
    grep -c "\"event\":\"$1\"" "$audit" || true
}

seconds() {
    grep -o '[0-9.]* s,' | cut -d ' ' -f 1
}

disk() {
    dd if=/dev/zero of="$work/plain" bs=1M count=$((mib * ranks)) conv=fsync 2>&1 | seconds >>"$work/dd"
    rm "$work/plain"
}

forget() {
    sync
    [ "$(id -u)" != 0 ] || echo 3 >/proc/sys/vm/drop_caches
}

for _ in 1 2 3 4 5; do
    disk
    # The program alone, to compare with.
    sleep 2
    redctl --job "$number" checkpoint
done
disk
sleep 2
# What is read when the job goes back: the newest, and all that it is built on.
lines=1
[ "$chain" = 1 ] || lines=$chain
find "$work/store" -mindepth 2 -maxdepth 2 -type d -name 'line-*' | sort -V | tail -n "$lines" >"$work/lines"
reading() {
    forget
    xargs -d '\n' -I LINE find LINE -type f -print0 <"$work/lines" | xargs -0 cat | dd of=/dev/null bs=1M iflag=fullblock 2>&1 |
        seconds >>"$work/read"
}
reading
forget
pid=$(grep '"event":"started"' "$audit" | grep '"replica":"'$((ranks - 1))'.0"' | tail -n 1 | grep -o '"pid":[0-9]*' | cut -d : -f 2)
kill -KILL "$pid"
until [ "$(count went-back)" = 1 ]; do
    kill -0 $job || exit 1
    sleep 0.1
done
reading
touch "$work/stop"
wait $job

python3 - "$audit" "$work" "$chain" "$ranks" <<'END'
import datetime, json, statistics, sys
audit, work, chain, ranks = sys.argv[1:]
records = [json.loads(line) for line in open(audit)]
lines = [record for record in records if record["event"] == "checkpoint"]
# Of each rank: time, units of work, pages written.
progress = [[tuple(map(float, line.split())) for line in open(f"{work}/progress.{rank}")] for rank in range(int(ranks))]
def end(line):
    return datetime.datetime.fromisoformat(line["time"].replace("Z", "+00:00")).timestamp()
if chain != "1":
    written_before = 0
    for line in lines:
        # All were stopped shortly before the end.
        written = sum([point[2] for point in points if point[0] <= end(line)][-1] for points in progress) / 256
        print(
            f"checkpoint {line['generation']}: {line['bytes'] / 2**20:.1f} MiB, {line['kept_bytes'] / 2**20:.1f} MiB kept, "
            f"written since the one before {written - written_before:.1f} MiB, "
            f"stopped {line['stopped_ms']:.1f} ms, {line['seconds']:.2f} s"
        )
        written_before = written
middle = lambda name: statistics.median(line[name] for line in lines)
mebibytes = middle("bytes") / 2**20
dd = statistics.median(float(line) for line in open(f"{work}/dd"))
print(f"{mebibytes:.0f} MiB, median of {len(lines)} checkpoints")
print(f"program stopped      {middle('stopped_ms'):8.1f} ms   (most {max(line['stopped_ms'] for line in lines):.1f})")
names = [name for name, _ in lines[0]["steps_ms"] if name.startswith("cut: ")]
for name in names:
    times = [dict(line["steps_ms"]).get(name, 0) for line in lines]
    print(f"  {name[5:]:<18} {statistics.median(times):8.2f} ms   (most {max(times):.2f})")

# Work that was done while a checkpoint was written, beside that of the two seconds before.
def rate(begin, end):
    within = [point for point in progress[0] if begin <= point[0] <= end]
    return (within[-1][1] - within[0][1]) / (within[-1][0] - within[0][0]) if len(within) > 1 else None
slower = []
for line in lines:
    begin = end(line) - line["seconds"]
    during, before = rate(begin, end(line)), rate(begin - 2, begin)
    if during and before:
        slower.append(100 * (1 - during / before))
if slower:
    print(f"program slower by    {statistics.median(slower):8.1f} %    while it is written (most {max(slower):.1f})")
print(f"until on the disk    {middle('seconds'):8.2f} s    {mebibytes / middle('seconds'):.0f} MiB/s")
print(f"dd with fsync        {dd:8.2f} s    {mebibytes / dd:.0f} MiB/s; throughput of it: {dd / middle('seconds'):.2f}")
reads = [float(line) for line in open(f"{work}/read")]
back = [record for record in records if record["event"] == "went-back"][0]
print(f"loaded again         {back['seconds']:8.2f} s    {mebibytes / back['seconds']:.0f} MiB/s")
goal = 1.3 * statistics.mean(reads) + 0.3
print(f"read by dd           {reads[0]:8.2f} s    before, {reads[1]:.2f} s after; goal for loading: {goal:.2f} s")
END
