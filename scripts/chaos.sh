#!/bin/sh
# Ten minutes of random faults over several hosts, with a seed of the day: scripts/chaos.sh [SECONDS] [SEED]
#
# Prints each job that went wrong with the seed that repeats it, and ends with 1 if there was one.
set -eu

cd "$(dirname -- "$0")/.."
seconds=${1:-600}
seed=${2:-$(date +%Y%m%d)}
. scripts/prefix.sh
exec cargo run --quiet --locked -p redrt-tests --bin redrt-chaos -- --seconds "$seconds" --seed "$seed"
