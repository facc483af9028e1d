#!/bin/sh
# Installs the packages in clean roots of several distributions, and runs jobs there: scripts/chroots.sh PACKAGES ROOT...
#
#   PACKAGES   a directory that scripts/package.sh has filled
#   ROOT       a directory with a root file system, as debootstrap makes it; it is changed
#
# In each the Debian package is installed, or the RPM where there is no dpkg. A program that was compiled here by the
# mpicc of the tarball runs at r = 1, 2 and 3, with a replica killed and replaced, and must print what it prints here.
# Then the package is removed, and must leave nothing. Needs root.
set -eu

if [ $# -lt 2 ] || [ "${1#-}" != "$1" ] || [ ! -f "$1/SHA256SUMS" ]; then
    echo "usage: $0 PACKAGES ROOT..." >&2
    exit 2
fi
packages=$(CDPATH='' cd -- "$1" && pwd -P)
shift
cd "$(dirname -- "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$packages" && sha256sum --quiet -c SHA256SUMS)

# The program, by the mpicc of the package, whose libraries are in /opt/redrt in the roots.
mkdir "$work/here"
tar -C "$work/here" -xf "$packages"/redrt-*.tar.xz
prefix=$(echo "$work"/here/redrt-*)
"$prefix/bin/mpicc" -O2 -o "$work/heat" redrt-tests/programs/heat.c -lm
"$prefix/bin/redrun" -n 4 "$work/heat" 256 200 >"$work/expected"
# In the roots it is found elsewhere.
"$prefix/bin/mpicc" -O2 -Wl,-rpath,/opt/redrt/lib -o "$work/heat" redrt-tests/programs/heat.c -lm

# within ROOT COMMAND...: in a process-id namespace of its own, with /proc.
within() {
    root=$1
    shift
    unshare --mount --pid --fork --propagation private sh -c '
        root=$1; shift
        mount -t proc proc "$root/proc" && mount -t tmpfs tmpfs "$root/dev/shm" 2>/dev/null ||
            { mkdir -p "$root/dev/shm" && mount -t tmpfs tmpfs "$root/dev/shm"; }
        mount -t sysfs sysfs "$root/sys"
        exec chroot "$root" /usr/bin/env -i PATH=/opt/redrt/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"' sh "$root" "$@"
}

failed=
for root; do
    name=$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$root/etc/os-release")
    glibc=$(within "$root" ldd --version | sed -n '1s/.* //p')
    cp "$work/heat" "$root/tmp/heat"
    if [ -x "$root/usr/bin/dpkg" ]; then
        cp "$packages"/redrt_*.deb "$root/tmp/redrt.deb"
        within "$root" dpkg -i /tmp/redrt.deb >/dev/null
    else
        cp "$packages"/redrt-*.rpm "$root/tmp/redrt.rpm"
        within "$root" rpm -i /tmp/redrt.rpm
    fi
    for options in "-r 1" "-r 2" "-r 3 --spares 1 --inject kill:1.0@#60"; do
        # The options are words.
        # shellcheck disable=SC2086
        if within "$root" redrun $options -n 4 /tmp/heat 256 200 >"$work/out" 2>"$work/err" && cmp -s "$work/out" "$work/expected"; then
            echo "right  $name, glibc $glibc: $options"
        else
            echo "WRONG  $name, glibc $glibc: $options"
            sed 's/^/       /' "$work/err"
            failed=yes
        fi
    done
    if [ -x "$root/usr/bin/dpkg" ]; then
        within "$root" dpkg -r redrt >/dev/null
        [ ! -e "$root/opt/redrt" ] || { echo "WRONG  $name: the package has left something" && failed=yes; }
    fi
done
[ -z "$failed" ]
