#!/bin/bash
# Runs programs of Debian, as they are in its packages, under redrun: scripts/real-binaries.sh [--install]
#
# Each runs under its own MPI, then under redrun at r = 1, at r = 2 with a replica killed and replaced by a copy, and at r = 3
# with a bit flipped in a message. What does not depend on time must be the same in all. Prints a table with times, as in
# docs/binaries.md. Programs that are not installed are named and left out; --install installs them with apt-get.
#
#   REDRT_PREFIX         the installation that is tested; built and installed in target/test-prefix otherwise
#   CARGO_TARGET_DIR     where to build, if not in target/
set -euo pipefail

cd "$(dirname -- "$0")/.."
case ${1-} in --install | '') ;; *) echo "usage: $0 [--install]" >&2 && exit 2 ;; esac
. scripts/prefix.sh
root=$PWD
work=$target/real-binaries
mkdir -p "$work"
redrun=$REDRT_PREFIX/bin/redrun
if [ "${1-}" = --install ]; then
    apt-get install -y -qq --no-install-recommends openmpi-bin lammps hpcc python3-mpi4py python3-numpy \
        python3-h5py-mpi quantum-espresso quantum-espresso-data nwchem-openmpi cp2k >&2
fi
# Two ranks on two processors: threads of the linear algebra would only take them away.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
failed=0
rows=()

# input NAME: what the program needs in its directory.
input() {
    case $1 in
    lammps-melt | lammps-bonds)
        cat >in.melt <<'END'
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 16 0 16 0 16
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 50
run 400
END
        cat >in.bonds <<'END'
units lj
atom_style bond
special_bonds fene
lattice fcc 0.6
region box block 0 12 0 12 0 12
create_box 1 box bond/types 1 extra/bond/per/atom 2 extra/special/per/atom 4
create_atoms 1 box
mass 1 1.0
bond_style harmonic
bond_coeff 1 30.0 1.19
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 1.12
create_bonds many all all 1 1.15 1.2
velocity all create 1.0 4928459 loop geom
fix 1 all nve
fix 2 all langevin 1.0 1.0 10.0 904297
thermo 50
run 400
END
        ;;
    espresso)
        cat >al.in <<'END'
&control
 calculation='scf', prefix='al', pseudo_dir='/usr/share/espresso/pseudo', outdir='./'
/
&system
 ibrav=2, celldm(1)=7.6, nat=1, ntyp=1, ecutwfc=30.0, occupations='smearing', degauss=0.02
/
&electrons
 conv_thr=1.0d-10
/
ATOMIC_SPECIES
 Al 26.98 Al.pz-vbc.UPF
ATOMIC_POSITIONS alat
 Al 0.0 0.0 0.0
K_POINTS automatic
 6 6 6 1 1 1
END
        ;;
    nwchem)
        cat >water.nw <<'END'
start water
geometry units angstrom
 O 0.0 0.0 0.1173
 H 0.0 0.7572 -0.4692
 H 0.0 -0.7572 -0.4692
end
basis
 * library 6-31g*
end
task scf optimize
END
        ;;
    cp2k)
        cat >water.inp <<'END'
&GLOBAL
  PROJECT water
  RUN_TYPE ENERGY_FORCE
&END
&FORCE_EVAL
  METHOD Quickstep
  &DFT
    BASIS_SET_FILE_NAME BASIS_SET
    POTENTIAL_FILE_NAME GTH_POTENTIALS
    &MGRID
      CUTOFF 200
    &END
    &XC
      &XC_FUNCTIONAL Pade
      &END
    &END
  &END
  &SUBSYS
    &CELL
      ABC 6.0 6.0 6.0
    &END
    &COORD
      O 0.0 0.0 -0.065587
      H 0.0 -0.757136 0.520545
      H 0.0 0.757136 0.520545
    &END
    &KIND H
      BASIS_SET DZVP-GTH-PADE
      POTENTIAL GTH-PADE-q1
    &END
    &KIND O
      BASIS_SET DZVP-GTH-PADE
      POTENTIAL GTH-PADE-q6
    &END
  &END
&END
END
        ;;
    hpcc)
        sed 's/^1000         Ns/1500         Ns/; s/^2            Ps/1            Ps/' /usr/share/doc/hpcc/examples/_hpccinf.txt >hpccinf.txt
        ;;
    esac
}

# command NAME
command_of() {
    case $1 in
    lammps-melt) echo lmp -in in.melt -log none ;;
    lammps-bonds) echo lmp -in in.bonds -log none ;;
    hpcc) echo hpcc ;;
    mpi4py) echo /usr/bin/python3 "$root/tests/mpi4py/diffusion.py" 96 6000 ;;
    h5py) echo /usr/bin/python3 "$root/tests/mpi4py/parallel_hdf5.py" ;;
    espresso) echo pw.x -in al.in ;;
    nwchem) echo nwchem.openmpi water.nw ;;
    cp2k) echo cp2k.psmp water.inp ;;
    esac
}

# result NAME: what does not depend on time, of what was printed and written.
result() {
    case $1 in
    lammps-*) awk '/^Step/ { on = 1 } /^Loop time/ { on = 0 } on' out ;;
    hpcc) grep -E '^Success=|_Errors=|tests completed' hpccoutf.txt ;;
    mpi4py) sort out ;;
    h5py) sort out && md5sum parallel.h5 ;;
    espresso) grep '^!\|total energy  *=\|convergence has' out ;;
    # The order of its sums depends on time: ten digits are the same from run to run with its own MPI.
    nwchem) grep 'Total SCF energy' out | sed 's/\(\.[0-9]\{8\}\)[0-9]*/\1/' ;;
    cp2k) grep 'ENERGY|' out ;;
    esac
}

# try NAME WHAT LAUNCHER...: runs it in a directory of its own; seconds go to `seconds`.
try() {
    local name=$1 what=$2 begin code=0
    shift 2
    rm -rf "$work/$name.$what" && mkdir "$work/$name.$what"
    cd "$work/$name.$what"
    input "$name"
    begin=$(date +%s.%N)
    # shellcheck disable=SC2046
    "$@" $(command_of "$name") </dev/null >out 2>err || code=$?
    seconds=$(awk "BEGIN { printf \"%.2f\", $(date +%s.%N) - $begin }")
    result "$name" >result || true
    cd "$root"
    if [ $code != 0 ] || [ ! -s "$work/$name.$what/result" ] || ! cmp -s "$work/$name.own/result" "$work/$name.$what/result"; then
        failed=$((failed + 1))
        echo "FAILED: $name, $what: exit code $code" >&2
        diff "$work/$name.own/result" "$work/$name.$what/result" | head -5 >&2 || true
        tail -5 "$work/$name.$what/err" >&2
        seconds="failed"
    fi
}

# Python's packages are looked for by Python.
module_of() {
    case $1 in
    mpi4py) echo mpi4py.MPI ;;
    h5py) echo h5py, mpi4py ;;
    *) echo sys ;;
    esac
}

for name in lammps-melt lammps-bonds mpi4py h5py espresso nwchem cp2k hpcc; do
    # shellcheck disable=SC2046
    program=$(set -- $(command_of $name) && echo "$1")
    if ! command -v "$program" >/dev/null || ! H5PY_ALWAYS_USE_MPI=1 /usr/bin/python3 -c "import $(module_of $name)" 2>/dev/null; then
        echo "$name is left out: it is not installed (--install)" >&2
        continue
    fi
    row=$name
    try $name own mpirun --oversubscribe -np 2
    row+=" | $seconds"
    try $name r1 "$redrun" --timeout 600 -n 2
    row+=" | $seconds"
    try $name r2 "$redrun" --timeout 600 -r 2 -n 2 --spares 1 --audit audit --inject "kill:1.0@#$((RANDOM % 200 + 20))"
    copies=$(grep -c '"event":"joined"\|"event":"recovered"' "$work/$name.r2/audit" || true)
    row+=" | $seconds, $copies copied"
    try $name r3 "$redrun" --timeout 600 -r 3 -n 2 --audit audit --inject "flip:0.1@#$((RANDOM % 100 + 10))"
    found=$(grep -c '"event":"mismatch"' "$work/$name.r3/audit" || true)
    row+=" | $seconds, $found found"
    rows+=("$row")
done

echo "| program | own MPI, s | r = 1 | r = 2, one killed | r = 3, one bit flipped |"
echo "|---|---:|---:|---:|---:|"
for row in "${rows[@]}"; do
    echo "| $row |"
done
[ $failed = 0 ]
