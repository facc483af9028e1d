#!/bin/bash
# Builds Rust programs with rsmpi (the crate mpi) by our mpicc, and runs them: scripts/rsmpi-tests.sh [quick]
#
# examples/redrt-example at r = 1, 2 and 3, with losses; and rsmpi's own examples and tests with 2 and 4 ranks, at r = 1
# and 2. What is left out of these is in redrt-tests/rsmpi-exclusions.txt, with the reason. quick:
# examples/redrt-example only.
#
#   REDRT_PREFIX         the installation that is tested; built and installed in target/test-prefix otherwise
#   CARGO_TARGET_DIR     where to build, if not in target/
set -euo pipefail

cd "$(dirname -- "$0")/.."
root=$PWD
mode=${1-full}
case $mode in quick | full) ;; *) echo "usage: $0 [quick]" >&2 && exit 2 ;; esac
. scripts/prefix.sh
work=$target/rsmpi
mkdir -p "$work"
if [ -z "${LIBCLANG_PATH-}" ] && ! /sbin/ldconfig -p | grep -q 'libclang\(-[0-9.]*\)\?\.so' && ! compgen -G '/usr/lib/llvm-*/lib/libclang[.-][s0-9]*' >/dev/null; then
    echo "libclang is not there, which rsmpi is built with (scripts/setup-tests.sh installs it): nothing is tested"
    [ "$mode" = quick ]
    exit
fi
# What is not being tested need not be fast, nor known to a debugger.
export MPICC=$REDRT_PREFIX/bin/mpicc CARGO_TARGET_DIR=$work/build CARGO_PROFILE_DEV_DEBUG=0
passed=0
failed=0

# run OPTIONS_OF_REDRUN PROGRAM...: what the program prints, without labels, in $work/out.
run() {
    local options=$1 code=0
    shift
    # shellcheck disable=SC2086
    "$REDRT_PREFIX/bin/redrun" --timeout 60 $options "$@" </dev/null >"$work/out" 2>"$work/stderr" || code=$?
    if [ $code = 0 ] && ! grep -q 'silent data corruption\|differs between\|diverged' "$work/stderr"; then
        return 0
    fi
    tail -n 20 "$work/stderr"
    echo "FAILED with exit code $code: redrun $options $*"
    return 1
}

# count COMMAND...: one test.
count() {
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

# The same output as undisturbed, and as many losses as were ordered.
disturbed() {
    run "$1" "$program" && cmp "$work/alone" "$work/out" && grep -q "lost: ${2-}" "$work/stderr"
}

same() {
    run "$1" "$program" && cmp "$work/alone" "$work/out"
}

echo "examples/redrt-example"
cargo build --quiet --locked --manifest-path examples/redrt-example/Cargo.toml
program=$work/build/debug/redrt-example
count run "-n 3" "$program"
cp "$work/out" "$work/alone"
cat "$work/alone"
for options in "-r 2 -n 3" "-r 2 -n 3 --transport tcp" "-r 3 -n 3"; do
    count same "$options"
done
for fault in 0.0@#1 1.1@#5 2.0@#9 0.1@#14; do
    count disturbed "-r 2 -n 3 --inject kill:$fault" "${fault%@*}"
    count disturbed "-r 3 -n 3 --transport tcp --inject kill:$fault" "${fault%@*}"
done

if [ "$mode" = full ]; then
    metadata=$(cargo metadata --locked --format-version 1 --manifest-path examples/redrt-example/Cargo.toml)
    source=$(python3 -c 'import json, os, sys
packages = json.load(sys.stdin)["packages"]
print(next(os.path.dirname(p["manifest_path"]) for p in packages if p["name"] == "mpi"))' <<<"$metadata")
    echo "rsmpi's own examples and tests: ${source##*/}"
    # Where cargo keeps it nothing may be written.
    rm -rf "$work/source"
    cp -r "$source" "$work/source"
    printf '\n[workspace]\n' >>"$work/source/Cargo.toml"
    cargo build --quiet --examples --features derive,complex --manifest-path "$work/source/Cargo.toml"
    cargo test --quiet --no-run --tests --features derive,complex --manifest-path "$work/source/Cargo.toml" \
        --message-format json 2>/dev/null >"$work/tests.json"
    mapfile -t tests < <(python3 -c 'import json, sys
for line in sys.stdin:
    made = json.loads(line)
    if made.get("executable") and made["target"]["kind"] == ["test"]:
        print(made["executable"])' <"$work/tests.json")
    for rank_count in 2 4; do
        for degree in 1 2; do
            for file in "$work"/source/examples/*.rs; do
                name=$(basename "$file" .rs)
                if grep -q "^$name \(\*\|$rank_count\) \(\*\|$degree\) " "$root/redrt-tests/rsmpi-exclusions.txt"; then
                    continue
                fi
                count run "-r $degree -n $rank_count" "$work/build/debug/examples/$name"
            done
            for test in "${tests[@]}"; do
                count run "-r $degree -n $rank_count" "$test" --test-threads=1
            done
        done
    done
    echo "${#tests[@]} of its tests, and its examples without $(grep -c '^[a-z]' "$root/redrt-tests/rsmpi-exclusions.txt") exclusions"
fi
echo "test result: rsmpi. $passed passed; $failed failed;"
[ $failed = 0 ]
