#!/bin/bash
# Builds mpi4py from its source with our mpicc and runs its own test suite: scripts/mpi4py-tests.sh [quick]
#
# At r = 1 with 1, 2, 3 and 5 ranks and at r = 2 with 2 and 3 ranks; quick: 2 ranks at r = 1, and a small program at r =
# 1 and 2. What is left out is in redrt-tests/mpi4py-exclusions*.txt, with the reason. A program built by MPICH's mpicc
# for the standard ABI is run too, without being linked with redrt.
#
#   REDRT_PREFIX         the installation that is tested; built and installed in target/test-prefix otherwise
#   CARGO_TARGET_DIR     where to build, if not in target/
set -euo pipefail

cd "$(dirname -- "$0")/.."
root=$PWD
mode=${1-full}
case $mode in quick | full) ;; *) echo "usage: $0 [quick]" >&2 && exit 2 ;; esac
. scripts/prefix.sh
version=4.1.2
work=$target/mpi4py
venv=$work/venv
source=$work/mpi4py-$version
mkdir -p "$work"

[ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
if [ ! -d "$source" ]; then
    pip download --no-deps --no-binary mpi4py --dest "$work" "mpi4py==$version"
    tar -xzf "$work/mpi4py-$version.tar.gz" -C "$work"
fi
if ! "$venv/bin/python" -c 'import mpi4py.MPI, numpy' 2>/dev/null; then
    echo "building mpi4py $version"
    # Its own arrays are tested with NumPy's too, where there is a wheel.
    pip install --only-binary numpy numpy || echo "no NumPy: tests with its arrays are skipped"
    # Optimization would take most of the time, and is not what is tested.
    MPICC=$REDRT_PREFIX/bin/mpicc CFLAGS="-O0 -g0" pip install --no-cache-dir --no-binary mpi4py "$work/mpi4py-$version.tar.gz"
fi
# mpi4py was linked with the prefix of the day it was built.
export MPI4PY_LIBMPI=$REDRT_PREFIX/lib/libmpi_abi.so.1 LD_LIBRARY_PATH=$REDRT_PREFIX/lib
export PYTHONDONTWRITEBYTECODE=1
passed=0
failed=0
# What redrun must not say in a run without faults.
suspicious='silent data corruption\|differs between\|diverged'

# run LIMIT_SECONDS OPTIONS_OF_REDRUN PROGRAM...
run() {
    local limit=$1 options=$2 code=0
    shift 2
    # Its standard error is long, and only interesting when something fails.
    # shellcheck disable=SC2086
    "$REDRT_PREFIX/bin/redrun" --timeout "$limit" $options "$@" </dev/null 2>"$work/stderr" || code=$?
    if [ $code = 0 ] && ! grep -q "$suspicious" "$work/stderr"; then
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    grep -E '^(\[[^]]*\] )?(ERROR|FAIL)|^redrun: ' "$work/stderr" | sort | uniq -c | head -n 60 || true
    tail -n 40 "$work/stderr"
    echo "FAILED with exit code $code: redrun $options $*"
}

suite() {
    echo "mpi4py $version's test suite: redrun $1"
    local exclusions=$root/redrt-tests/mpi4py-exclusions.txt
    case $1 in *-r*) exclusions+=,$root/redrt-tests/mpi4py-exclusions-replicated.txt ;; esac
    # Python's threads read clocks when they contend for the interpreter's lock (docs/determinism.md).
    local suspicious='silent data corruption\|differs between'
    # The suite spawns processes that import parts of it.
    PYTHONPATH=$source/test run 900 "$1" "$venv/bin/python" redrt-tests/mpi4py/run.py "$source/test" "$exclusions" -v
}

for degree in 1 2; do
    for rank_count in 1 3; do
        run 60 "-r $degree -n $rank_count" "$venv/bin/python" redrt-tests/mpi4py/world.py >"$work/out"
        [ "$(wc -l <"$work/out")" = "$rank_count" ] || { cat "$work/out" && failed=$((failed + 1)); }
    done
done

# disturbed OPTIONS_OF_REDRUN PROGRAM...: while replicas are killed, replaced by copies, and moved, not a bit of the
# output changes.
disturbed() {
    local options=$1 job copies code=0
    shift
    echo "mpi4py and NumPy: redrun $options"
    rm -f "$work/audit" "$work/out"
    # shellcheck disable=SC2086
    "$REDRT_PREFIX/bin/redrun" --timeout 300 --audit "$work/audit" $options "$@" </dev/null >"$work/out" 2>"$work/stderr" &
    while kill -0 $! 2>/dev/null && [ ! -s "$work/out" ]; do sleep 0.1; done
    job=$(sed -n 's/.*"event":"job-start".*"job":"\([0-9a-f]*\)".*/\1/p' "$work/audit")
    # It may have been lost just now.
    "$REDRT_PREFIX/bin/redctl" --job "$job" migrate 1.0 || true
    wait $! || code=$?
    copies=$(grep -c -e '"event":"recovered"' -e '"event":"joined"' "$work/audit" || true)
    echo "  $copies copies"
    if [ $code = 0 ] && [ "$copies" -gt 0 ] && cmp "$work/alone" "$work/out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        tail -n 40 "$work/stderr"
        echo "FAILED with exit code $code: redrun $options $*"
    fi
}

if "$venv/bin/python" -c 'import numpy' 2>/dev/null; then
    diffusion=("$venv/bin/python" redrt-tests/mpi4py/diffusion.py 96 20000)
    # Threads of the linear algebra would only take processors from the ranks.
    export OPENBLAS_NUM_THREADS=1
    run 120 "-n 3" "${diffusion[@]}" >"$work/alone"
    disturbed "-r 1 -n 3 --spares 2" "${diffusion[@]}"
    disturbed "-r 2 -n 3 --spares 2 --inject random:mtbf=2s,seed=1" "${diffusion[@]}"
    disturbed "-r 3 -n 3 --spares 2 --transport tcp --inject random:mtbf=2s,seed=2" "${diffusion[@]}"
    unset OPENBLAS_NUM_THREADS
else
    echo "no NumPy: it is not tried while replicas are copied"
fi

# MPICH's wheel has a compiler wrapper for the standard ABI, with its own header and library.
if [ ! -x "$venv/bin/mpicc_abi" ]; then
    pip install --only-binary mpich mpich || true
fi
if [ -x "$venv/bin/mpicc_abi" ]; then
    for program in cg collectives; do
        (unset LD_LIBRARY_PATH && PATH=$venv/bin:$PATH "$venv/bin/mpicc_abi" -O1 -o "$work/$program" \
            "redrt-tests/programs/$program.c" -lm)
        for options in "-n 3" "-r 2 -n 3" "-r 3 -n 2"; do
            echo "$program, built by MPICH: redrun $options"
            run 60 "$options" "$work/$program"
        done
        readlink -f "$(ldd "$work/$program" | awk '/libmpi_abi/ { print $3 }')"
    done
else
    echo "the mpich wheel cannot be had here: a program built by another MPI is not tested"
fi

suite "-n 2"
if [ "$mode" = full ]; then
    suite "-n 1"
    suite "-n 3"
    suite "-n 5"
    suite "-r 2 -n 2"
    suite "-r 2 -n 3"
fi
echo "test result: mpi4py. $passed passed; $failed failed;"
[ $failed = 0 ]
