#!/bin/bash
# Programs that others wrote, with replicas that die and are copied: scripts/real-programs.sh [NAME...]
#
# Source from Debian's archive (apt-get source), built by our mpicc. Each runs at r = 1, at r = 2, and at r = 2 while a
# replica is killed and its sibling copied to take its place; the results must be the same, and no message may differ.
# All of them unless named:
#
#   hpcc     HPC Challenge: Linpack, matrix transposition, random access, FFT, and what they print of themselves; needs a BLAS
#   hypre    conjugate gradients with algebraic multigrid
#   fftw     FFTW's own check of its transforms over MPI
#   hdf5     HDF5's parallel tests: collective and independent files
#
#   REDRT_PREFIX         the installation that is tested; built and installed in target/test-prefix otherwise
set -euo pipefail

cd "$(dirname -- "$0")/.."
. scripts/prefix.sh
export PATH=$REDRT_PREFIX/bin:$PATH LD_LIBRARY_PATH=$REDRT_PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
root=$PWD
work=$target/real-programs
mkdir -p "$work"
programs=(hpcc hypre fftw hdf5)
[ $# = 0 ] || programs=("$@")
passed=0
failed=0

build_hpcc() {
    echo 'int main() { return 0; }' | cc -x c - -o /dev/null -lblas || { echo "hpcc needs a BLAS: apt-get install libblas-dev" && return 1; }
    # Named as they are since MPI-2.0.
    cat >hpl/Make.redrt <<'END'
SHELL = /bin/sh
CD = cd
CP = cp
LN_S = ln -s
MKDIR = mkdir
RM = rm -f
TOUCH = touch
ARCH = redrt
TOPdir = ../../..
INCdir = $(TOPdir)/include
BINdir = $(TOPdir)/bin/$(ARCH)
LIBdir = $(TOPdir)/lib/$(ARCH)
HPLlib = $(LIBdir)/libhpl.a
HPL_LIBS = $(HPLlib) -lblas -lm
HPL_INCLUDES = -I$(INCdir) -I$(INCdir)/$(ARCH)
HPL_DEFS = -DAdd_ -DF77_INTEGER=int -DStringSunStyle -DMPI_Address=MPI_Get_address -DMPI_Type_struct=MPI_Type_create_struct $(HPL_INCLUDES)
CC = mpicc
CCNOOPT = $(HPL_DEFS)
CCFLAGS = $(HPL_DEFS) -O2 -w
LINKER = mpicc
LINKFLAGS = $(CCFLAGS)
ARCHIVER = ar
ARFLAGS = r
RANLIB = echo
END
    # It makes directories that are there already if make runs in parallel.
    make arch=redrt
}
run_hpcc() {
    sed -e 's/^1000  /600  /' -e 's/^1  *Ps$/2 Ps/' "$work/hpcc/_hpccinf.txt" >hpccinf.txt
    rm -f hpccoutf.txt
    redrun "$@" -n 4 "$work/hpcc/hpcc"
}
# Checks and their outcomes, without times and rates.
result_hpcc() { grep -E 'PASSED|FAILED|error|passed|failed|Success' hpccoutf.txt | sed -E 's/^(WALL|CPU) .*(PASSED|FAILED).*/\1 \2/'; }

build_hypre() { cd src && ./configure CC=mpicc CXX=mpicxx --disable-fortran && make -j2 && make -C test ij; }
run_hypre() { redrun "$@" -n 4 "$work/hypre/src/test/ij" -n 40 40 40 -P 2 2 1 -solver 1; }
result_hypre() { grep -vE 'clock|MFLOPS' out; }

build_fftw() { ./configure CC=gcc MPICC=mpicc --enable-mpi --disable-fortran --disable-doc && make -j2; }
run_fftw() { redrun "$@" -n 4 "$work/fftw/mpi/mpi-bench" -oestimate --verify 64x64x32 --verify ocf2048 --verify 48x50; }
result_fftw() { cat out; }

build_hdf5() {
    ./configure CC=mpicc --enable-parallel --disable-shared --disable-hl --enable-build-mode=production && make -j2 -C src &&
        make -j2 -C test libh5test.la && make -j2 -C testpar testphdf5
}
run_hdf5() { redrun "$@" -n 3 "$work/hdf5/testpar/testphdf5"; }
# Lines of several ranks come in any order.
result_hdf5() { sort out; }

# check NAME: one program.
check() {
    local name=$1 package=$1 sends
    [ "$name" != fftw ] || package=fftw3
    if [ ! -f "$work/$name.built" ]; then
        echo "$name: building"
        rm -rf "${work:?}/$name"
        "$root/scripts/debian-source.sh" "$package" "$work/$name" || return 1
        (cd "$work/$name" && "build_$name") >"$work/$name.log" 2>&1 || { tail -n 5 "$work/$name.log" && return 1; }
        touch "$work/$name.built"
    fi
    mkdir -p "$work/$name.run"
    cd "$work/$name.run"
    "run_$name" >out 2>messages || { tail -n 5 messages && return 1; }
    "result_$name" >expected
    "run_$name" -r 2 --json-summary summary >out 2>messages || { tail -n 5 messages && return 1; }
    "result_$name" >found
    cmp expected found || return 1
    # Replica 1.0 dies when it has sent a third of its messages.
    sends=$(python3 -c 'import json; print(next(e["messages_sent"] for e in json.load(open("summary"))["exits"] if e["replica"] == "1.0") // 3)')
    "run_$name" -r 2 --spares 1 --inject "kill:1.0@#$sends" --json-summary summary >out 2>messages || { tail -n 5 messages && return 1; }
    "result_$name" >found
    cmp expected found || return 1
    python3 -c 'import json, sys
s = json.load(open("summary"))
print("%s: the same, %d messages compared, %d lost, %d copied, %d mismatches" % (
    sys.argv[1], s["statistics"]["messages_compared"], len(s["lost"]), s["recovered"], s["mismatches"]))
sys.exit(not (len(s["lost"]) == s["recovered"] == 1 and s["mismatches"] == s["divergences"] == 0))' "$name"
}

for name in "${programs[@]}"; do
    [ "$(type -t "build_$name")" = function ] || { echo "$0: no program $name" >&2 && exit 2; }
    if (set +e; check "$name"); then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED: $name"; fi
done
echo "test result: real programs. $passed passed; $failed failed;"
[ $failed = 0 ]
