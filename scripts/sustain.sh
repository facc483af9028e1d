#!/bin/sh
# Jobs that lose replicas and hosts again and again, and regain their redundancy each time: scripts/sustain.sh [OPTIONS]
#
# Seven programs with two and three replicas a rank over eight hosts in namespaces, five minutes each, more than an hour
# in all; a loss every five seconds. --help tells how to choose. The program in Python is among them where
# scripts/mpi4py-tests.sh has made an environment with mpi4py.
#
#   REDRT_PREFIX         the installation that is tested; built and installed in target/test-prefix otherwise
set -eu

cd "$(dirname -- "$0")/.."
. scripts/prefix.sh
python=$target/mpi4py/venv/bin/python
[ ! -x "$python" ] || set -- --python "$python" "$@"
export LD_LIBRARY_PATH="$REDRT_PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec cargo run --quiet --locked -p redrt-tests --bin redrt-sustain -- "$@"
