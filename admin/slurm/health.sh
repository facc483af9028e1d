#!/bin/sh
# Slurm: HealthCheckProgram=/etc/slurm/redrt-health.sh, HealthCheckInterval=600. Drains a node that corrupts data.
check=${REDRT_HOST_CHECK:-@PREFIX@/share/redrt/admin/redrt-host-check}

reason=$("$check") && exit 0
scontrol update nodename="${SLURMD_NODENAME:-$(uname -n)}" state=drain reason="$reason"
