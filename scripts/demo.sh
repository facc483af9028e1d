#!/bin/sh
# Builds redrt and shows what it does: heat in a plate, undisturbed; with two replicas of a rank, of which one is killed
# and replaced by a copy of the other, which is then killed, too; with three of which one computes wrongly. The three
# pictures are the same, byte for byte.
#
#   scripts/demo.sh [DIRECTORY]        everything goes to DIRECTORY, target/demo unless it is given
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
cd "$root"
place=${1:-target/demo}

missing=
for need in cargo:Rust,https://rustup.rs cc:gcc make:make; do
    if ! command -v "${need%%:*}" >/dev/null; then
        missing="$missing
  ${need%%:*} (${need#*:})"
    fi
done
if [ -n "$missing" ]; then
    echo "demo: these commands are needed and not here:$missing" >&2
    echo "On Debian: apt-get install build-essential; Rust 1.95 or later comes from https://rustup.rs" >&2
    exit 1
fi

say() {
    printf '\n\033[1m%s\033[0m\n' "$*"
}

# Only what this needs, and hardly optimized: an installation (scripts/install.sh) takes three times as long.
target=${CARGO_TARGET_DIR:-target}
[ -x "$target/debug/redrt" ] || about=", which takes about four minutes on two processors"
say "Builds redrt${about:-}"
CARGO_INCREMENTAL=0 cargo build --locked -p mpi-abi -p redrt-preload -p redrt-tools -p ppm2png --lib \
    --bin redrt --bin ppm2png
prefix=$place/prefix
mkdir -p "$prefix/bin" "$prefix/lib" "$prefix/include"
install -m 755 "$target/debug/redrt" "$prefix/bin/redrt"
for name in redrun redrtd redctl; do
    ln -sf redrt "$prefix/bin/$name"
done
install -m 755 "$target/debug/libmpi_abi.so" "$prefix/lib/libmpi_abi.so.1"
ln -sf libmpi_abi.so.1 "$prefix/lib/libmpi_abi.so"
install -m 755 "$target/debug/libredrt_preload.so" "$prefix/lib/libredrt_preload.so"
install -m 755 scripts/mpicc "$prefix/bin/mpicc"
install -m 644 include/mpi.h include/redrt.h "$prefix/include"
ppm2png=$target/debug/ppm2png
PATH=$(CDPATH='' cd -- "$prefix/bin" && pwd -P):$PATH
mpicc -O2 -o "$place/heat" redrt-tests/programs/heat.c -lm

# run NAME OPTIONS…: heat on 4 ranks; prints the command, what it prints, and keeps its picture.
run() {
    name=$1
    shift
    rm -f "$place/$name.ppm"
    set -- "$@" -n 4
    echo "\$ redrun $* heat 512 2000 $name.ppm"
    redrun "$@" --audit "$place/$name.jsonl" "$place/heat" 512 2000 "$place/$name.ppm" >"$place/$name.txt"
    tail -n 2 "$place/$name.txt"
    "$ppm2png" "$place/$name.ppm" "$place/$name.png"
}

rm -f "$place"/*.jsonl
say "1. Undisturbed, without replicas: the answer to compare with"
run plain

# kill_the_source: once the copy is there, ends the replica that it was made from. The job may end before that.
kill_the_source() {
    until grep -q '"event":"recovered"' "$place/killed.jsonl" 2>/dev/null; do
        grep -q '"event":"job-end"' "$place/killed.jsonl" 2>/dev/null && return
        sleep 0.02
    done
    job=$(sed -n 's/.*"event":"job-start".*"job":"\([0-9a-f]*\)".*/\1/p' "$place/killed.jsonl")
    echo "\$ redctl --job $job kill 1.1"
    redctl --job "$job" kill 1.1
}

say "2. Two replicas of each rank; replica 0 of rank 1 is killed, a copy of replica 1 takes its place, and replica 1 is killed"
kill_the_source &
killer=$!
run killed -r 2 --spares 1 --inject kill:1.0@#400
wait "$killer"

say "3. Three replicas of each rank; one bit flips in what replica 1 of rank 2 sends as its 1209th message"
run flipped -r 3 --inject flip:2.1@#1209

say "The answers"
if [ "$(grep -c '"event":"replica-lost"' "$place/killed.jsonl")" -lt 2 ] || ! grep -q '"event":"mismatch"' "$place/flipped.jsonl"; then
    echo "demo: the faults were not injected as they should have been" >&2
    exit 1
fi
for name in killed flipped; do
    cmp "$place/plain.txt" "$place/$name.txt"
    cmp "$place/plain.png" "$place/$name.png"
done
sha256sum "$place"/plain.png "$place"/killed.png "$place"/flipped.png
echo "All three pictures and all three outputs are byte-identical; look at $place/plain.png."
echo "Every event of the disturbed runs is in $place/killed.jsonl and $place/flipped.jsonl."
