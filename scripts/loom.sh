#!/bin/sh
# Tries all schedules of the locks and barriers that processes and threads wait for each other with: scripts/loom.sh
#
# Takes a minute. It is built apart, with loom's primitives in place of the real ones.
set -eu

cd "$(dirname -- "$0")/.."
target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR="$target/loom" RUSTFLAGS="--cfg redrt_loom"
exec cargo test --release --locked -p redrt-sync --lib
