#!/bin/bash
# Instructions of a short message through each ABI: scripts/facade-cost.sh [RUNS]
#
# Compiles redrt-tests/cases/instructions.c by redrt's mpicc and by those of Debian's MPICH and Open MPI, runs each at r
# = 1 under callgrind, and prints the fewest instructions of RUNS runs (3) in MPI_Send and in MPI_Recv, and how much
# more that is than with the standard ABI. Needs valgrind; a family whose compiler is not installed is named and left
# out.
#
#   REDRT_PREFIX         the installation that is measured; built and installed in target/test-prefix otherwise
set -euo pipefail
cd "$(dirname -- "$0")/.."
# shellcheck source=scripts/prefix.sh
. scripts/prefix.sh
runs=${1-3}
case $runs in *[!0-9]* | "" | 0) echo "usage: $0 [RUNS]" >&2 && exit 2 ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
messages=$((8 * 32)) # ROUNDS * MESSAGES of instructions.c

# The most that a process of the job executed in the measured function, in the run where that was least.
counted() {
    local program=$1 what=$2 least= count
    for ((run = 0; run < runs; run++)); do
        rm -rf "$work/run"
        mkdir "$work/run"
        "$REDRT_PREFIX/bin/redrun" -q -n 2 --files all valgrind -q --tool=callgrind --collect-atstart=no \
            --toggle-collect="measured_$what" --callgrind-out-file="$work/run/%p.callgrind" "$program" "$work/run" 1
        count=$(sed -n 's/^summary: //p' "$work"/run/*.callgrind | sort -n | tail -1)
        [ -n "$least" ] && [ "$least" -le "$count" ] || least=$count
    done
    echo $((least / messages))
}

standard=
echo "| ABI | MPI_Send | MPI_Recv | Both | More than the standard ABI |"
echo "|---|---:|---:|---:|---:|"
for family in standard mpich openmpi; do
    compiler=$REDRT_PREFIX/bin/mpicc
    [ $family = standard ] || compiler=$(command -v "mpicc.$family") || {
        echo "$0: mpicc.$family is not installed: $family is left out" >&2
        continue
    }
    "$compiler" -O2 -g -Wno-stringop-overflow -o "$work/$family" redrt-tests/cases/instructions.c
    send=$(counted "$work/$family" send)
    recv=$(counted "$work/$family" recv)
    [ -n "$standard" ] || standard=$((send + recv))
    awk -v f=$family -v s="$send" -v r="$recv" -v all="$standard" \
        'BEGIN { printf "| %s | %d | %d | %d | %.1f %% |\n", f, s, r, s + r, 100 * (s + r - all) / all }'
done
