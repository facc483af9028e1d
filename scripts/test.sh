#!/bin/bash
# Checks and tests what every change must pass: scripts/test.sh [--all]
#
# Needs a Rust toolchain; on Debian, as root, all else is installed (scripts/setup-tests.sh). Stops at the first step
# that fails. What each step prints is also kept in target/test-logs, and the times of all in times.json there.
# docs/testing.md says what each step is, how long it takes, and what only --all does: all tests that exist, with an
# optimized installation, but for the campaigns of scripts/nightly.sh.
#
#   CARGO_TARGET_DIR     where to build, if not in target/
#   REDRT_SEED           chooses the moments of the faults that are injected; 1 otherwise
set -euo pipefail

all=
case ${1-} in
'') ;;
--all) all=yes ;;
*) echo "usage: $0 [--all]" >&2 && exit 2 ;;
esac

cd "$(dirname -- "$0")/.."
target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR=$target CARGO_TERM_PROGRESS_WHEN=never REDRT_SEED=${REDRT_SEED:-1}
# Nothing is built twice here, and what incremental builds keep takes as much space as all else.
export CARGO_INCREMENTAL=0
# A failed test says first what failed, and what follows should not push that out of sight.
export RUST_BACKTRACE=0
# Where the process tests and the Python part find the installation.
export REDRT_PREFIX=$target/development-prefix
[ -z "$all" ] || REDRT_PREFIX=$target/test-prefix
. scripts/steps.sh

# Tests that say `#[ignore = "scripts/test.sh --all: …"]` are those of --all; others try more
# (redrt-tests/framework/breadth.rs).
ignored=${all:+--include-ignored}
[ -z "$all" ] || export REDRT_ALL=1

step 900 "what the tests need" scripts/setup-tests.sh "$target/test-tools"
step 60 "formatting" cargo fmt --all --check
if [ -n "$all" ]; then
    # Beside the build, which leaves a processor idle now and then.
    start 900 "licences and sources of dependencies" nice scripts/licences.sh
    step 1800 "optimized build" scripts/install.sh "$REDRT_PREFIX"
else
    step 1800 "build" scripts/install.sh "$REDRT_PREFIX" --development
fi
# All of the workspace here and below, whatever is run: with fewer packages cargo chooses other features, and builds
# much of it again.
step 900 "build of the tests with processes" scripts/run-tests.py build "$logs/jobs.json" \
    --test hosts --test clones --test processes
jobs=(scripts/run-tests.py run "$logs/jobs.json" --only)
[ -z "$all" ] || finish "licences and sources of dependencies"

# Jobs wait much of the time, so they have the processors with what compiles and computes. That comes second.
start 1800 "jobs over several hosts" "${jobs[@]}" hosts -- --test-threads=3 $ignored
follow "jobs over several hosts" 1800 "jobs of real processes" "${jobs[@]}" processes -- --test-threads=2 $ignored
step 1800 "build of the other tests" nice scripts/run-tests.py build "$logs/tests.json"
step 1200 "clippy" nice cargo clippy --workspace --all-targets --locked -- -D warnings
if [ -n "$all" ]; then
    step 600 "documentation" nice env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
    step 600 "examples in the documentation" nice cargo test --workspace --locked --doc
else
    # Those that drive a machine by hand.
    step 600 "examples in the documentation" nice cargo test -q --locked --doc -p quiesce -p replication-manager \
        -p redrt-engine -p cloner -p spare-pool
fi
step 1800 "unit tests, simulators, model checkers" nice scripts/run-tests.py run "$logs/tests.json" \
    --except hosts --except processes --except clones -- $ignored
step 600 "locks and barriers, all schedules" nice scripts/loom.sh
# Not beside the simulator of the library: one in ten copies stalls there, and is given up after 20 s.
step 1800 "clones of real processes" "${jobs[@]}" clones -- --test-threads=1 $ignored
finish "jobs over several hosts"
finish "jobs of real processes"

if [ -n "$all" ]; then
    step 600 "a minute of fuzzing" scripts/fuzz.sh 400 --quick
    step 300 "a minute of chaos over several hosts" scripts/chaos.sh 60 "$REDRT_SEED"
    step 900 "mpi4py, and a program built by another MPI" scripts/mpi4py-tests.sh quick
    step 900 "programs built for MPICH and Open MPI" scripts/binaries.sh quick
    step 900 "a Rust program with rsmpi" scripts/rsmpi-tests.sh quick
else
    step 900 "programs built for MPICH and Open MPI" scripts/binaries.sh smoke
fi

close
