#!/bin/sh
# The long runs: scripts/nightly.sh [SECONDS] [SEED]
#
# Ten minutes of random faults over several hosts, then ten in which nobody dies and nobody may be taken for dead, though
# every core has four ranks, the links are full, and daemons and processes are stopped for moments. Ends with 1 if anything
# went wrong.
set -eu

cd "$(dirname -- "$0")/.."
seconds=${1:-600}
seed=${2:-$(date +%Y%m%d)}
: "${REDRT_PREFIX:=$PWD/target/test-prefix}"
export REDRT_PREFIX
[ -x "$REDRT_PREFIX/bin/redrun" ] || scripts/install.sh "$REDRT_PREFIX"
failed=0
scripts/chaos.sh "$seconds" "$seed" || failed=1
cargo run --quiet --locked -p redrt-tests --bin redrt-calm -- --seconds "$seconds" --seed "$seed" || failed=1
exit $failed
