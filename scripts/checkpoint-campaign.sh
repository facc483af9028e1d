#!/bin/sh
# Jobs with checkpoints that are lost at any moment: scripts/checkpoint-campaign.sh [MOMENTS] [SEED] [PROGRAM]...
#
# Each program of redrt-tests/programs, or of those that are named, runs for a second or so at r = 1, 2 and 3, and loses
# all processes, all of one rank, or its redrun as well, at moments that are drawn from the seed, until it has lost
# something 20 times (or MOMENTS) at each degree. A checkpoint for each says how often it was. Ends with 1 if one prints
# something else, leaves other files, or is lost less often.
#
#   REDRT_PARALLEL       how many programs run at once; 1 if not given
#   REDRT_PREFIX         the installation that is tested; built and installed in target/test-prefix otherwise
set -eu

cd "$(dirname -- "$0")/.."
export REDRT_MOMENTS="${1:-20}" REDRT_SEED="${2:-$(date +%Y%m%d)}"
if [ $# -gt 2 ]; then
    shift 2
    export REDRT_PROGRAMS="$*"
fi
. scripts/prefix.sh
echo "moments $REDRT_MOMENTS, seed $REDRT_SEED"
exec cargo test --quiet --locked -p redrt-tests --test processes -- moments --nocapture
