#!/bin/bash
# The conformance tests of each chapter, in C and Fortran, at r = 2, each with replicas killed at random moments:
# scripts/chaos-conformance.sh [--spare] [--mpich] [OPTION...]
#
#   --spare     lost replicas are replaced by copies of their siblings, in the midst of the test
#   --mpich     MPICH's test suite too, with a replica killed in each test (scripts/mpich-tests.sh)
#   OPTION      of the campaign: --seed N, --moments N, --programs NAME,… (redrt-campaign --help)
#
# Prints what became of the jobs, and each that did not end as it should with the command that repeats it.
set -euo pipefail

cd "$(dirname -- "$0")/.."
. scripts/prefix.sh
redrun=()
mpich=
seed=1
campaign=()
while [ $# -gt 0 ]; do
    case $1 in
    --spare) redrun=(-- --spares 1) ;;
    --mpich) mpich=yes ;;
    --seed)
        seed=${2:?"--seed wants a number"}
        shift
        ;;
    *) campaign+=("$1") ;;
    esac
    shift
done
code=0
cargo run --quiet --locked -p redrt-tests --bin redrt-campaign -- conformance --seed "$seed" "${campaign[@]}" "${redrun[@]}" || code=$?
if [ -n "$mpich" ]; then
    REDRT_CHAOS=$seed REDRT_OPTIONS=${redrun[*]:1} scripts/mpich-tests.sh || code=$?
fi
exit $code
