#!/bin/sh
# Slurm: Epilog=/etc/slurm/redrt-epilog.sh. After each job, a node that corrupts data by its logs is drained.
check=${REDRT_HOST_CHECK:-@PREFIX@/share/redrt/admin/redrt-host-check}

reason=$("$check") && exit 0
scontrol update nodename="${SLURMD_NODENAME:-$(uname -n)}" state=drain reason="$reason"
# An epilog that fails would drain the node with a reason that says less.
exit 0
