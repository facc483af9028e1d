#!/bin/sh
# Resets connections of every replica of every test program at many moments, over TCP, and prints what became of the
# jobs: a table, and each job that did not end as it should with the command that repeats it. --help tells how to choose
# programs, degrees, moments and the seed.
#
# Exit code 0 when every job printed what it prints undisturbed, and no replica was lost.
set -eu
cd "$(dirname -- "$0")/.."
. scripts/prefix.sh
exec cargo run --quiet -p redrt-tests --bin redrt-campaign -- reset "$@"
