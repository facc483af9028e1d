#!/bin/sh
# Fuzzes every decoder for as long as it is told: scripts/fuzz.sh [CASES]
#
# CASES is the number of cases of each fuzz test, 100000 if it is not given; the test suite itself runs 256. What makes a test
# fail is printed and kept in a file proptest-regressions beside the test, and is tried first the next time.
set -eu

cases=${1:-100000}
case $cases in
'' | *[!0-9]* | 0*)
    echo "usage: $0 [CASES]" >&2
    exit 2
    ;;
esac
cd "$(dirname -- "$0")/.."
# Optimized, but with what a test build checks, and apart from what is built for use.
export CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/fuzz" PROPTEST_CASES="$cases"
cargo test --release --lib -p quiesce -p redrt -p redrt-wire -p redrt-tools -p cloner -- fuzz or_refused
