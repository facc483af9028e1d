#!/bin/sh
# Kills every replica of every test program at many moments and prints what became of the jobs: a table, and each job
# that did not end as it should with the command that repeats it. --help tells how to choose programs, degrees,
# transports, moments and the seed. All of it takes an hour or two on 2 cores; --sample 200 a minute or two.
#
# Exit code 0 when every job printed what it prints undisturbed.
set -eu
cd "$(dirname -- "$0")/.."
. scripts/prefix.sh
exec cargo run --quiet -p redrt-tests --bin redrt-campaign -- kill "$@"
