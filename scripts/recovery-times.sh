#!/bin/sh
# How long redundancy is missing after a loss, and where the time goes: scripts/recovery-times.sh [MIB...]
#
# For each size a job of three ranks with two replicas each; rank 1 holds that many mebibytes (64 256 1024 4096 unless
# given). Replica 1.0 is killed five times, each time after it is back. Prints a row for each size, medians of the five,
# as docs/benchmarks/recovery.md has them.
#
#   REDRT_PREFIX         the installation that is measured; built and installed in target/test-prefix otherwise
set -eu
cd "$(dirname -- "$0")/.."
. scripts/prefix.sh
prefix=$REDRT_PREFIX
[ $# -gt 0 ] || set -- 64 256 1024 4096
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$prefix/bin/mpicc" -O2 -o "$place/image" redrt-benches/recovery/image.c
losses=5

# field NAME: the numbers of this name in the records of recoveries, sorted.
field() {
    sed -n '/"event":"recovered"/s/.*"'"$1"'":\([0-9.]*\).*/\1/p' "$place/audit" | sort -n
}
median() {
    field "$1" | sed -n "$(((losses + 1) / 2))p"
}

echo "| Image, MiB | Window, ms | Until the clone begins | Rounds of memory | The rest | Source stopped | Sent, MiB |"
echo "|---:|---:|---:|---:|---:|---:|---:|"
for size in "$@"; do
    rm -f "$place/audit" "$place/stop"
    : >"$place/out"
    "$prefix/bin/redrun" -r 2 -n 3 --spares 1 --quiet --audit "$place/audit" "$place/image" "$size" "$place/stop" \
        >"$place/out" 2>"$place/err" </dev/null &
    job=$!
    until grep -q computing "$place/out"; do
        kill -0 $job 2>/dev/null || { cat "$place/err" >&2 && exit 1; }
        sleep 0.1
    done
    loss=0
    while [ $loss -lt $losses ]; do
        loss=$((loss + 1))
        pid=$(sed -n '/"event":"\(started\|copy-runs\)"/s/.*"pid":\([0-9]*\),"replica":"1.0".*/\1/p' "$place/audit" | tail -n 1)
        kill -9 "$pid"
        until [ "$(grep -c '"event":"recovered"' "$place/audit")" -ge $loss ]; do
            kill -0 $job 2>/dev/null || { cat "$place/err" >&2 && exit 1; }
            sleep 0.05
        done
    done
    : >"$place/stop"
    wait $job
    window=$(median window_ms)
    waited=$(median waited_ms)
    copied=$(median copied_ms)
    stopped=$(median stopped_ms)
    sent=$(median sent_bytes)
    awk -v size="$size" -v window="$window" -v waited="$waited" -v copied="$copied" -v stopped="$stopped" -v sent="$sent" 'BEGIN {
            printf "| %d | %.0f | %.1f | %.0f | %.1f | %.1f | %.0f |\n", size, window, waited, copied, window - waited - copied,
                stopped, sent / 1048576
        }'
done
