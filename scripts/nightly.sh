#!/bin/sh
# The long runs: scripts/nightly.sh [SECONDS] [SEED]
#
# All tests (scripts/test.sh --all), and the whole suites of mpi4py and rsmpi and programs of other MPIs. Then ten
# minutes of random faults over several hosts, then ten in which nobody dies and nobody may be taken for dead, though
# every core has four ranks, the links are full, and daemons and processes are stopped for moments; then a hundred losses
# in the midst of which others die; then jobs that lose replicas and hosts every five seconds, for an hour. Besides, a
# hundred thousand seeds in which one replica leaves the path of its siblings, others each night; then copies on an old
# kernel, and checkpoints and files on NFS there, in a virtual machine; then twenty jobs of which two or three of seven
# hosts lose their power together. Ends with 1 if anything went wrong.
set -eu

cd "$(dirname -- "$0")/.."
seconds=${1:-600}
seed=${2:-$(date +%Y%m%d)}
failed=0
# Its installation is the one that the campaigns use.
REDRT_SEED=$seed scripts/test.sh --all || failed=1
. scripts/prefix.sh
for suite in mpi4py-tests binaries rsmpi-tests; do
    scripts/$suite.sh || failed=1
done
scripts/path-seeds.sh 100000 "$((seed % 100000 * 100000))" || failed=1
scripts/old-kernel.sh cargo test --locked -p cloner-tests --test clones -- --skip soft_dirty || failed=1
# NFS has no files without a name (O_TMPFILE), and soft-dirty bits show more pages as written than were.
scripts/old-kernel.sh --nfs cargo test --locked -p redrt-tests --test processes -- --test-threads 1 \
    --skip a_file_without_a_name --skip later_checkpoints_of_a_quiet_program \
    undo:: shared_files:: checkpoints:: chains:: || failed=1
REDRT_POWER_CUTS=20 REDRT_SEED=$seed cargo test --locked -p redrt-tests --test hosts -- lose_power_together || failed=1
scripts/chaos.sh "$seconds" "$seed" || failed=1
cargo run --quiet --locked -p redrt-tests --bin redrt-calm -- --seconds "$seconds" --seed "$seed" || failed=1
scripts/recovery-campaign.sh 100 30 "$seed" || failed=1
scripts/sustain.sh --seed "$seed" || failed=1
exit $failed
