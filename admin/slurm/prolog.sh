#!/bin/sh
# Slurm: Prolog=/etc/slurm/redrt-prolog.sh. A node that corrupts data takes no job: Slurm drains it when
# its prolog fails, and puts the job back into the queue.
check=${REDRT_HOST_CHECK:-@PREFIX@/share/redrt/admin/redrt-host-check}

reason=$("$check") && exit 0
echo "$reason" >&2
exit 1
