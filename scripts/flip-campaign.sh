#!/bin/sh
# Flips a bit in a message of every replica of every test program, in its memory or in flight, at many moments, and
# prints what became of the jobs: a table, and each job that did not end as it should with the command that repeats
# it. --help tells how to choose programs, degrees, transports, moments and the seed.
#
# Exit code 0 when every flip that reached a message was reported against the right rank and replica (r = 2: against the
# rank) and against no other, and, at r >= 3 or in flight, the output was right.
set -eu
cd "$(dirname -- "$0")/.."
. scripts/prefix.sh
exec cargo run --quiet -p redrt-tests --bin redrt-campaign -- flip "$@"
