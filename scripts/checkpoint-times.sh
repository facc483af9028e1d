#!/bin/bash
# What checkpoints cost, and what going back to one takes: scripts/checkpoint-times.sh [MIB [RANKS [DIRECTORY [CHAIN]]]]
#
# Runs a job of RANKS processes (3) of MIB each (1024) that write to their memory all the time, takes five checkpoints
# in DIRECTORY, kills a rank, and prints a table. dd writes as many bytes to the same directory, with fsync, before and
# after each. Each checkpoint has all memory, unless CHAIN (1) is more: then a line is printed for each, too.
# UNTIL_PAUSE in the environment is how many microseconds each step of the processes takes, in which they write to one
# page.
set -euo pipefail

mib=${1:-1024} ranks=${2:-3} chain=${4:-1}
cd "$(dirname -- "$0")/.."
# shellcheck source=scripts/prefix.sh
. scripts/prefix.sh
work=$(mktemp -d -p "${3:-/var/tmp}")
trap 'kill "$job" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
export PATH=$REDRT_PREFIX/bin:$PATH
mpicc -O2 -o "$work/until" tests/programs/until.c

audit=$work/audit
UNTIL_MIB=$mib redrun -q -n "$ranks" --checkpoint asked --checkpoint-chain "$chain" --checkpoint-dir "$work/store" \
    --audit "$audit" \
    "$work/until" "$work/stop" >"$work/out" &
job=$!
until grep -q computing "$work/out"; do
    kill -0 $job || exit 1
    sleep 0.1
done
number=$(grep -o '"job":"[0-9a-f]*"' "$audit" | head -n 1 | cut -d '"' -f 4)

count() {
    grep -c "\"event\":\"$1\"" "$audit" || true
}

disk() {
    dd if=/dev/zero of="$work/plain" bs=1M count=$((mib * ranks)) conv=fsync 2>&1 |
        grep -o '[0-9.]* s,' | cut -d ' ' -f 1 >>"$work/dd"
    rm "$work/plain"
}

for _ in 1 2 3 4 5; do
    disk
    redctl --job "$number" checkpoint
done
disk
pid=$(grep '"event":"started"' "$audit" | grep '"replica":"1.0"' | tail -n 1 | grep -o '"pid":[0-9]*' | cut -d : -f 2)
kill -KILL "$pid"
until [ "$(count went-back)" = 1 ]; do
    kill -0 $job || exit 1
    sleep 0.1
done
touch "$work/stop"
wait $job

python3 - "$audit" "$work/dd" "$chain" <<'END'
import json, statistics, sys
records = [json.loads(line) for line in open(sys.argv[1])]
lines = [record for record in records if record["event"] == "checkpoint"]
if sys.argv[3] != "1":
    for line in lines:
        print(
            f"checkpoint {line['generation']}: {line['bytes'] / 2**20:.1f} MiB, {line['kept_bytes'] / 2**20:.1f} MiB kept, "
            f"stopped {line['stopped_ms']:.1f} ms, {line['seconds']:.2f} s"
        )
middle = lambda name: statistics.median(line[name] for line in lines)
mebibytes = middle("bytes") / 2**20
dd = statistics.median(float(line) for line in open(sys.argv[2]))
print(f"{mebibytes:.0f} MiB, median of {len(lines)} checkpoints")
print(f"program stopped      {middle('stopped_ms'):8.1f} ms   (most {max(line['stopped_ms'] for line in lines):.1f})")
names = [name for name, _ in lines[0]["steps_ms"] if name.startswith("cut: ")]
for name in names:
    times = [dict(line["steps_ms"]).get(name, 0) for line in lines]
    print(f"  {name[5:]:<18} {statistics.median(times):8.2f} ms   (most {max(times):.2f})")
print(f"until on the disk    {middle('seconds'):8.2f} s    {mebibytes / middle('seconds'):.0f} MiB/s")
print(f"dd with fsync        {dd:8.2f} s    {mebibytes / dd:.0f} MiB/s; throughput of it: {dd / middle('seconds'):.2f}")
back = [record for record in records if record["event"] == "went-back"][0]
print(f"loaded again         {back['seconds']:8.2f} s    {mebibytes / back['seconds']:.0f} MiB/s")
END
