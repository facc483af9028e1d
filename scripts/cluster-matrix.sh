#!/bin/bash
# Who talks to whom in a job of 64 ranks, and which clusters that makes: scripts/cluster-matrix.sh [DIRECTORY]
#
# Runs heat in strips (redrt-tests/programs/hybrid.c) on 16 hosts of the lab with four ranks each, over TCP, with a
# profile. redplan divides these hosts into clusters, and those of a job of 1,024 ranks on 64 hosts with 16 ranks each
# that has the same traffic at 16 times the length. Writes strips-64.json, clusters-64.json, clusters-1024.json and
# clusters-1024.svg to DIRECTORY (target/clusters). Needs root, as the lab does (redrt-tests/lab/README.md).
set -euo pipefail
cd "$(dirname -- "$0")/.."
# shellcheck source=scripts/prefix.sh
. scripts/prefix.sh
export PATH=$REDRT_PREFIX/bin:$PATH
place=$(realpath -m -- "${1:-$target/clusters}")
mkdir -p "$place"
mpicc -O2 -fopenmp -o "$place/strips" redrt-tests/programs/hybrid.c
cargo build --locked -q -p redrt-tests --bin redrt-lab

hosts=$(seq -s , -f h%g 16)
rm -f "$place/run.json"
# shellcheck disable=SC2016
"$target/debug/redrt-lab" 16 -- sh -c 'OMP_WAIT_POLICY=passive exec redrun --launcher-exec "$LAB_SSH" --hosts "$1" -N 4 \
    -n 64 --transport tcp --profile "$2/run.json" "$2/strips" 96 400' sh "$hosts" "$place"
python3 - "$place" <<'PY'
import json, sys
profile = json.load(open(f"{sys.argv[1]}/run.json"))
json.dump({"ranks": profile["ranks"], "pairs": profile["traffic"]}, open(f"{sys.argv[1]}/strips-64.json", "w"))
print(f"{profile['ranks']} ranks on {profile['hosts']} hosts, {len(profile['traffic'])} pairs exchanged "
      f"{sum(sent for _, _, sent in profile['traffic']) / 1e6:.1f} MB\n")
PY
echo "64 ranks, as they ran:"
redplan cluster --matrix "$place/strips-64.json" --hosts 16x4 --output "$place/clusters-64.json"
echo "1,024 ranks, the same traffic at 16 times the length:"
redplan cluster --matrix "$place/strips-64.json" --scale 16 --hosts 64x16 --all --output "$place/clusters-1024.json" \
    --svg "$place/clusters-1024.svg"
