#!/bin/sh
# Seeds of the fault "path" in both simulators: scripts/path-seeds.sh [COUNT [FIRST [SIMULATOR...]]]
#
# One replica's program leaves the path of its siblings; at three replicas no result may be wrong, nobody sound may be
# lost, and nothing may wait without end. Runs COUNT seeds (1000000 unless given) from FIRST (0) on in the simulator of
# the protocol, with the degrees that each seed draws, and in that of the library at two and at three replicas
# (SIMULATOR: protocol, library-2, library-3; all of them unless named); several pieces of them at once, one for each
# processor. What was right is noted in target/path-seeds, for this build of the simulator, so that a run that was
# interrupted goes on, and one with a greater COUNT runs only what is new. Prints the first seed of each simulator that
# is wrong with the command that replays it, and ends with 1 then.
#
# A million takes the protocol ten minutes of one processor, the library half an hour at two replicas and an hour and
# three quarters at three.
#
#   REDRT_SIM            the simulator that is run; built with optimization otherwise
set -eu

usage() {
    echo "usage: $0 [COUNT [FIRST [SIMULATOR...]]]" >&2
    exit 2
}

count=${1:-1000000}
first=${2:-0}
for number in "$count" "$first"; do
    case $number in
    '' | *[!0-9]*) usage ;;
    esac
done
[ $# -le 1 ] || shift
[ $# = 0 ] || shift
simulators=${*:-protocol library-2 library-3}
for name in $simulators; do
    case $name in
    protocol | library-2 | library-3) ;;
    *) usage ;;
    esac
done
cd "$(dirname -- "$0")/.."
if [ -z "${REDRT_SIM:-}" ]; then
    cargo build --quiet --locked --profile simulation -p redrt-sim
    REDRT_SIM=${CARGO_TARGET_DIR:-target}/simulation/redrt-sim
fi
export REDRT_SIM
notes=${CARGO_TARGET_DIR:-target}/path-seeds/$(cksum <"$REDRT_SIM" | cut -d " " -f 1)
mkdir -p "$notes"
export notes

# A piece: a name, the seeds, and the options of redrt-sim. Leaves NAME.right, or NAME.wrong with what is to be said.
# shellcheck disable=SC2016
piece='
    name=$1 seed=$2 size=$3
    shift 3
    said=$notes/$name-$seed+$size
    export RUST_BACKTRACE=0
    [ ! -e "$said.right" ] || exit 0
    [ ! -e "$notes/$name.wrong" ] || exit 0
    if "$REDRT_SIM" "${name%-*}" "$seed" --count "$size" --faults path "$@" >"$said.out" 2>&1; then
        grep -c ": right" "$said.out" >"$said.right"
        rm -f "$said.out"
    else
        wrong=$(sed -n "/^seed [0-9]*: wrong/,\$p" "$said.out")
        printf "%s: %s\n" "$name" "${wrong:-$(tail -n 1 "$said.out")}" >"$notes/$name.wrong"
    fi'
size=500
rm -f "$notes"/*.wrong
pieces() {
    seed=$first
    end=$((first + count))
    while [ "$seed" -lt "$end" ]; do
        left=$((end - seed))
        part=$((left < size ? left : size))
        for name in $simulators; do
            case $name in
            protocol) echo "$name $seed $part" ;;
            library-*) echo "$name $seed $part --degree ${name#library-}" ;;
            esac
        done
        seed=$((seed + part))
    done
}
pieces | xargs -L 1 -P "$(nproc)" sh -c "$piece" sh
for name in $simulators; do
    right=$(pieces | while read -r of seed part _; do
        [ "$of" != "$name" ] || cat "$notes/$name-$seed+$part.right" 2>/dev/null || true
    done | awk '{ sum += $1 } END { print sum + 0 }')
    echo "$name: $right of $count seeds right"
done
if ls "$notes"/*.wrong >/dev/null 2>&1; then
    cat "$notes"/*.wrong
    exit 1
fi
