#!/bin/sh
# Flips one bit in each of many jobs of the test programs: in a payload before it is sent, in the heap, in registers
# and on stacks, on the way, in a received buffer, in the retention log. Prints what became of them, and writes the
# table to docs/sdc.md; then compares very many messages without faults. --help tells how to choose programs, degrees,
# places and the seed.
#
# With --json FILE a campaign that was interrupted goes on where it was. The figures in docs/sdc.md are those of
#
#     scripts/injection-campaign.sh --faults 1300 --calm 10000000
#
# which takes about ten minutes on 2 cores. Exit code 0 when no fault that reached a message was missed, nothing was
# reported that was not there, and nothing hung.
set -eu
cd "$(dirname -- "$0")/.."
. scripts/prefix.sh
exec cargo run --quiet -p redrt-tests --bin redrt-injection -- --markdown docs/sdc.md "$@"
