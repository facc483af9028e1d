#!/bin/bash
# Checks and tests everything: scripts/test.sh
#
# Needs a Rust toolchain; on Debian, as root, all else is installed (scripts/setup-tests.sh). Stops at the first step
# that fails. What each step prints is also kept in target/test-logs.
#
#   CARGO_TARGET_DIR     where to build, if not in target/
#   REDRT_SEED           chooses the moments of the faults that are injected; 1 otherwise
set -euo pipefail

cd "$(dirname -- "$0")/.."
target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR=$target CARGO_TERM_PROGRESS_WHEN=never REDRT_SEED=${REDRT_SEED:-1}
# Nothing is built twice here, and what incremental builds keep takes as much space as all else.
export CARGO_INCREMENTAL=0
# Where the process tests and the Python part find the installation.
export REDRT_PREFIX=$target/test-prefix
logs=$target/test-logs
rm -rf "$logs"
mkdir -p "$logs"

begin=$SECONDS
times=()
number=0
running=

minutes() {
    printf '%d:%02d' $(($1 / 60)) $(($1 % 60))
}

# Adds up cargo's lines "test result: ok. 12 passed; 0 failed; ...".
totals() {
    cat "$logs"/*.log | awk '
        /^test result: / {
            for (i = 2; i <= NF; i++) {
                if ($i ~ /^passed/) passed += $(i - 1)
                if ($i ~ /^failed/) failed += $(i - 1)
            }
        }
        END { printf "%d passed, %d failed\n", passed, failed }'
}

close() {
    printf '\n==== Times\n'
    printf '%s\n' "${times[@]}"
    printf '%6s  in all, seed %s\n' "$(minutes $((SECONDS - begin)))" "$REDRT_SEED"
    totals
}

stop() {
    [ -z "$running" ] || kill "$running" 2>/dev/null || true
    echo "interrupted" >&2
    exit 130
}
trap stop INT TERM

# step SECONDS NAME COMMAND...: a step with a heading, a time limit and its time.
step() {
    local limit=$1 name=$2 from=$SECONDS code=0 log
    shift 2
    number=$((number + 1))
    log=$logs/$(printf '%02d' $number)-${name//[^a-z0-9]/-}.log
    printf '\n==== %s\n' "$name"
    # Through a file: what a step leaves behind could keep a pipe open for ever.
    : >"$log"
    timeout --kill-after=10 "$limit" "$@" </dev/null >"$log" 2>&1 &
    running=$!
    tail --pid="$running" --sleep-interval=0.2 --lines=+1 --follow "$log" &
    wait "$running" || code=$?
    running=
    wait
    times+=("$(printf '%6s  %s' "$(minutes $((SECONDS - from)))" "$name")")
    if [ $code != 0 ]; then
        [ $code != 124 ] || echo "$name took more than $limit s and was stopped" >&2
        close
        printf 'FAILED: %s, exit code %s\n' "$name" $code >&2
        exit 1
    fi
    echo "---- $(minutes $((SECONDS - from)))"
}

step 900 "what the tests need" scripts/setup-tests.sh "$target/test-tools"
step 60 "formatting" cargo fmt --all --check
step 900 "clippy" cargo clippy --workspace --all-targets --locked -- -D warnings
step 300 "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
# Not the advisories: they need a database from the network, and fail commits that were right when they were made.
step 120 "licences and sources of dependencies" cargo deny --locked check licenses bans sources
echo "Security advisories are not checked here; cargo deny check advisories does."
# Those of redrt-sim are the next step, which plays the same jobs in a fraction of the time.
step 1200 "unit tests, simulator, model checker" cargo test --workspace --exclude redrt-tests --exclude cloner-tests \
    --exclude redrt-sim --locked
step 600 "a thousand jobs of the library in one process" cargo test --profile simulation -p redrt-sim --locked
step 600 "a minute of fuzzing" scripts/fuzz.sh 400 --quick
step 300 "locks and barriers, all schedules" scripts/loom.sh
step 900 "release build" scripts/install.sh "$REDRT_PREFIX"
# Those over several hosts wait most of the time.
step 900 "jobs over several hosts" cargo test -p redrt-tests --locked --test hosts -- --test-threads=3
step 1500 "jobs of real processes" cargo test -p redrt-tests --locked --lib --bins --test layers --test processes -- \
    --test-threads=2
step 300 "a minute of chaos over several hosts" scripts/chaos.sh 60 "$REDRT_SEED"
step 1200 "clones of real processes" cargo test -p cloner-tests --locked -- --test-threads=2
step 900 "mpi4py, and a program built by another MPI" scripts/mpi4py-tests.sh quick
step 900 "programs built for MPICH and Open MPI" scripts/binaries.sh quick
step 900 "a Rust program with rsmpi" scripts/rsmpi-tests.sh quick

close
