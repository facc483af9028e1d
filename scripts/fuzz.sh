#!/bin/sh
# Fuzzes every decoder for as long as it is told: scripts/fuzz.sh [CASES [--quick]]
#
# CASES is the number of cases of each fuzz test, a million if it is not given. The unit tests run 256, and
# scripts/test.sh as many as take about a minute. --quick uses the build of the unit tests in place of an optimized one.
# What makes a test fail is printed and kept in a file proptest-regressions beside the test, and is tried first the next
# time.
set -eu

usage() {
    echo "usage: $0 [CASES [--quick]]" >&2
    exit 2
}

cases=${1:-1000000}
case $cases in
'' | *[!0-9]* | 0*) usage ;;
esac
[ $# -le 2 ] && [ "${2:---quick}" = --quick ] || usage
cd "$(dirname -- "$0")/.."
export PROPTEST_CASES="$cases"
# What the gate builds, whole: with fewer packages cargo chooses other features.
if [ $# = 2 ]; then
    exec cargo test --locked --workspace --lib -- fuzz or_refused
fi
packages="-p quiesce -p redrt-window -p redrt-dynamic -p redrt-membership -p redrt-engine -p redrt-transport -p redrt-wire -p job-options -p pool-client -p redrtd -p redspared -p audit-log -p control-network -p replication-manager -p coordinator-journal -p job-report -p cloner -p spare-pool -p redrt-datatype"
# With what a test build checks, and apart from what is built for use.
export CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/fuzz"
# shellcheck disable=SC2086
cargo test --locked --release --lib $packages -- fuzz or_refused
