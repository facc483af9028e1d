#!/bin/bash
# Installs what scripts/test.sh needs besides a Rust toolchain: scripts/setup-tests.sh TOOLS
#
# Compilers for C, C++ and Fortran and Python by apt-get, if it is there and this is root; else it says what is missing.
# Into the directory TOOLS: a kernel for the virtual machine of a test.
set -euo pipefail

if [ $# != 1 ]; then
    echo "usage: $0 TOOLS" >&2
    exit 2
fi
tools=$1

for program in cargo rustc; do
    command -v $program >/dev/null || { echo "$program is missing: install Rust first" >&2 && exit 1; }
done
cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
cargo clippy --version >/dev/null 2>&1 || rustup component add clippy

python_header='import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
missing=()
command -v cc >/dev/null || missing+=(gcc)
command -v c++ >/dev/null || missing+=(g++)
command -v gfortran >/dev/null || missing+=(gfortran)
echo '#include <stdio.h>' | cc -E - >/dev/null 2>&1 || missing+=(libc6-dev)
command -v ip >/dev/null || missing+=(iproute2)
command -v valgrind >/dev/null || missing+=(valgrind)
command -v pgrep >/dev/null || missing+=(procps)
command -v python3 >/dev/null || missing+=(python3)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
python3 -c 'import numpy' 2>/dev/null || missing+=(python3-numpy)
python3 -c "$python_header" 2>/dev/null || missing+=(python3-dev)

# The lab (redrt-tests/lab): hosts in namespaces, with sshd and Slurm. Without root its tests are skipped.
if [ "$(id -u)" = 0 ]; then
    PATH=$PATH:/usr/sbin:/sbin
    command -v ip >/dev/null || missing+=(iproute2)
    command -v setpriv >/dev/null || missing+=(util-linux)
    command -v ssh >/dev/null || missing+=(openssh-client)
    command -v sshd >/dev/null || missing+=(openssh-server)
    command -v srun >/dev/null || missing+=(slurm-client)
    command -v slurmctld >/dev/null || missing+=(slurmctld)
    command -v slurmd >/dev/null || missing+=(slurmd)
    command -v munged >/dev/null || missing+=(munge)
fi

# A virtual machine with a kernel that has soft-dirty bits (cloner/cloner-tests). Without it that test is skipped.
if [ "$(id -u)" = 0 ]; then
    command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
    [ -x /bin/busybox ] || missing+=(busybox-static)
    command -v cpio >/dev/null || missing+=(cpio)
fi

# For bindgen, with which rsmpi is built (scripts/rsmpi-tests.sh). Without it that is skipped.
if [ "$(id -u)" = 0 ]; then
    compgen -G '/usr/lib/llvm-*/lib/libclang[.-][s0-9]*' >/dev/null || missing+=(libclang-dev)
fi

# A debugger, which is to find the processes of a job (redrt-tests/cases/notices.rs). Without it that test is skipped.
if [ "$(id -u)" = 0 ]; then
    command -v gdb >/dev/null || missing+=(gdb)
fi

# What reads the files of the admin's kit (tools/redrt-tools/tests/admin.rs). Without it that is skipped.
if [ "$(id -u)" = 0 ]; then
    command -v promtool >/dev/null || missing+=(prometheus)
    command -v logrotate >/dev/null || [ -x /usr/sbin/logrotate ] || missing+=(logrotate)
fi

# A browser for the pages of redreport and of running jobs (tools/redrt-tools/tests/report.rs,
# redrt-tests/cases/pages.rs). Without it those tests are skipped.
if [ "$(id -u)" = 0 ]; then
    command -v chromium >/dev/null || missing+=(chromium fonts-dejavu-core)
    command -v chromedriver >/dev/null || missing+=(chromium-driver)
fi

if [ ${#missing[@]} != 0 ]; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "Missing: ${missing[*]} (names of Debian packages). Please install them." >&2
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    apt-get install --yes --no-install-recommends "${missing[@]}"
fi

if [ ! -d "$tools/kernel" ] && command -v apt-get dpkg >/dev/null; then
    package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '/Depends: linux-image-6\.1\./ { print $2 }')
    if [ -n "$package" ]; then
        rm -rf "$tools/kernel.new"
        mkdir -p "$tools/kernel.new"
        # As root apt warns that its own user cannot write here.
        (cd "$tools/kernel.new" && apt-get download "$package" && dpkg -x ./*.deb . && rm -rf ./*.deb lib usr)
        mv "$tools/kernel.new" "$tools/kernel"
    fi
fi

rustc --version
cc --version | head -n 1
python3 --version
echo "$(nproc) processors, Linux $(uname -r)"
