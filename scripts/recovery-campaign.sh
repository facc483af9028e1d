#!/bin/sh
# Copies of living processes under stress: scripts/recovery-campaign.sh [ROUNDS] [SECONDS] [SEED]
#
# In each of N rounds (60 unless given) a replica is killed, and, at a random moment while its copy is made, somebody
# who takes part in that: source, partner, sender, receiver. Then ranks that make no MPI call for some seconds (30
# unless given) are copied meanwhile. Ends with 1 if redundancy did not come back, or a result changed.
#
#   REDRT_PREFIX         the installation that is tested; built and installed in target/test-prefix otherwise
set -eu

cd "$(dirname -- "$0")/.."
export REDRT_ROUNDS="${1:-60}" REDRT_COMPUTE_SECONDS="${2:-30}" REDRT_SEED="${3:-$(date +%Y%m%d)}"
. scripts/prefix.sh
echo "rounds $REDRT_ROUNDS, seconds $REDRT_COMPUTE_SECONDS, seed $REDRT_SEED"
exec cargo test --quiet --locked -p redrt-tests --test processes -- midst
