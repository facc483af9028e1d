#!/bin/bash
# Runs a command on an old kernel, and on a file system of a network: scripts/old-kernel.sh [--nfs] COMMAND...
#
# The kernel is Debian 12's (Linux 6.1: no write protection of pages without a server, no scan of page maps). It runs in
# a virtual machine without hardware support, over the files of this machine, and what it writes stays in its memory.
# With --nfs the machine also serves NFS 4.2 to itself, and TMPDIR is a directory there: the tests have all their files
# in it. A job takes about ten times as long as here.
#
# Prints what the command prints, and ends as it does. Needs root, and what scripts/setup-tests.sh installs: qemu,
# busybox, cpio. The kernel's modules and the server come as packages into target/test-tools, and are not installed.
#
#   REDRT_MACHINE_MEMORY   its memory (8G unless given)
#   REDRT_MACHINE_SECONDS  its time (7200 unless given); then the exit code is 124
set -eu

usage() {
    echo "usage: $0 [--nfs] COMMAND..." >&2
    exit 2
}

serves=false
if [ "${1-}" = --nfs ]; then
    serves=true
    shift
fi
case ${1-} in '' | -*) usage ;; esac
memory=${REDRT_MACHINE_MEMORY:-8G}
seconds=${REDRT_MACHINE_SECONDS:-7200}
here=$PWD
cd "$(dirname -- "$0")/.."
target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
machine=$target/test-tools/machine
for program in qemu-system-x86_64 cpio modprobe apt-get dpkg-deb; do
    command -v $program >/dev/null || { echo "$0: $program is missing: run scripts/setup-tests.sh" >&2 && exit 1; }
done
share=
for place in /usr/lib/qemu/virtiofsd /usr/libexec/virtiofsd; do
    [ ! -x $place ] || share=$place
done
[ -n "$share" ] || { echo "$0: virtiofsd is missing: install qemu-system-common or virtiofsd" >&2 && exit 1; }

if [ ! -d "$machine/root" ]; then
    rm -rf "$machine.new"
    mkdir -p "$machine.new/packages" "$machine.new/root"
    kernel=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '/Depends: linux-image-6\.1\./ { print $2 }')
    [ -n "$kernel" ] || { echo "$0: this host's packages have no Linux 6.1" >&2 && exit 1; }
    (cd "$machine.new/packages" && chmod 755 . && apt-get -qq download "$kernel" nfs-kernel-server nfs-common \
        libnfsidmap1 libtirpc3 libtirpc-common libevent-core-2.1-7 libwrap0 libkeyutils1 keyutils) 2>/dev/null
    for package in "$machine.new"/packages/*.deb; do
        dpkg-deb -x "$package" "$machine.new/root"
    done
    # A machine whose /lib is a link to /usr/lib takes no directory in its place.
    mkdir -p "$machine.new/root/usr"
    for directory in lib sbin bin; do
        if [ -d "$machine.new/root/$directory" ]; then
            cp -a "$machine.new/root/$directory/." "$machine.new/root/usr/$directory/"
            rm -rf "$machine.new/root/$directory"
        fi
    done
    rm -rf "$machine.new/packages"
    mv "$machine.new" "$machine"
fi
kernel=$(ls "$machine/root/usr/lib/modules")
image=$machine/root/boot/vmlinuz-$kernel

work=$(mktemp -d)
helpers=()
finish() {
    [ ${#helpers[@]} = 0 ] || kill "${helpers[@]}" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
mkdir -p "$work/first/bin" "$work/first/modules" "$work/results"
cp /bin/busybox "$work/first/bin/"
number=100
depmod -b "$machine/root/usr" "$kernel" 2>/dev/null || depmod -b "$machine/root" -m usr/lib/modules "$kernel"
for module in virtio_pci virtiofs overlay; do
    for file in $(modprobe -d "$machine/root/usr" -S "$kernel" --show-depends $module | awk '{ print $2 }'); do
        number=$((number + 1))
        cp "$file" "$work/first/modules/$number.ko"
    done
done
cat >"$work/first/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /below /packages /above /new
mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t devtmpfs dev /dev
# Dependencies of a module come before it, also twice.
for module in /modules/*.ko; do insmod $module 2>/dev/null; done
mount -t virtiofs files /below && mount -t virtiofs packages /packages
mount -t tmpfs -o size=90% tmpfs /above
mkdir /above/files /above/work
mount -t overlay -o "lowerdir=/packages:/below,upperdir=/above/files,workdir=/above/work" overlay /new ||
    poweroff -f
mount -t proc proc /new/proc && mount -t sysfs sysfs /new/sys && mount -t devtmpfs dev /new/dev
mkdir -p /new/dev/shm /new/dev/pts /new/run/results
mount -t tmpfs tmpfs /new/dev/shm && mount -t devpts devpts /new/dev/pts && mount -t tmpfs tmpfs /new/run
mkdir /new/run/results && mount -t virtiofs results /new/run/results
exec switch_root /new /bin/bash /run/results/begin
INIT
chmod 755 "$work/first/init"
(cd "$work/first" && find . | cpio --quiet -o -H newc) >"$work/initramfs"

{
    export -p
    echo export REDRT_SLOWNESS=10
    cat <<'BEGIN'
hostname old-kernel
busybox ip link set lo up
mount -t cgroup2 none /sys/fs/cgroup
ln -sfn /proc/self/fd /dev/fd
ln -sf /proc/self/fd/0 /dev/stdin
ln -sf /proc/self/fd/1 /dev/stdout
ln -sf /proc/self/fd/2 /dev/stderr
BEGIN
    $serves && cat <<'SERVER'
serve() {
    modprobe nfsd && modprobe nfs && mkdir -p /run/served /run/nfs /var/lib/nfs/v4recovery || return
    mount -t tmpfs tmpfs /run/served && mount -t nfsd nfsd /proc/fs/nfsd || return
    echo '/run/served 127.0.0.1(rw,no_root_squash,fsid=0,insecure,no_subtree_check)' >/etc/exports
    # Version 4 needs no port mapper.
    exportfs -a && rpc.mountd -N 3 && rpc.nfsd -N 3 8 || return
    busybox mount -i -t nfs4 -o addr=127.0.0.1,clientaddr=127.0.0.1,vers=4.2 127.0.0.1:/ /run/nfs || return
    mkdir -m 1777 /run/nfs/tmp
}
serve || { echo "old-kernel: NFS cannot be served"; echo 1 >/run/results/code; busybox poweroff -f; }
export TMPDIR=/run/nfs/tmp
SERVER
    printf 'cd %q\n(' "$here"
    printf ' %q' "$@"
    cat <<'END'
 ) </dev/null >>/run/results/output 2>&1
echo $? >/run/results/code
sync
busybox poweroff -f
END
} >"$work/results/begin"

offer() { # TAG DIRECTORY
    "$share" --socket-path="$work/$1.socket" -o source="$2" -o cache=auto -o sandbox=chroot >"$work/$1.log" 2>&1 &
    helpers+=($!)
    until [ -S "$work/$1.socket" ]; do
        kill -0 "${helpers[-1]}" 2>/dev/null || { cat "$work/$1.log" >&2 && exit 1; }
        sleep 0.05
    done
}
offer files /
offer packages "$machine/root"
offer results "$work/results"
: >"$work/results/output"
timeout "$seconds" qemu-system-x86_64 -M pc -accel tcg,thread=multi -cpu max -smp "$(nproc)" -m "$memory" \
    -object "memory-backend-memfd,id=memory,size=$memory,share=on" -numa node,memdev=memory \
    -nographic -no-reboot -nodefaults -serial stdio -kernel "$image" -initrd "$work/initramfs" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off" \
    -chardev "socket,id=files,path=$work/files.socket" -device vhost-user-fs-pci,chardev=files,tag=files \
    -chardev "socket,id=packages,path=$work/packages.socket" -device vhost-user-fs-pci,chardev=packages,tag=packages \
    -chardev "socket,id=results,path=$work/results.socket" -device vhost-user-fs-pci,chardev=results,tag=results \
    </dev/null >"$work/console" 2>&1 &
running=$!
helpers+=($running)
# It reads once more when the machine is off.
tail -f -s 0.2 -n +1 --pid=$running "$work/results/output"
code=0
wait $running || code=$?
[ $code != 124 ] || exit 124
if [ ! -s "$work/results/code" ]; then
    tail -n 20 "$work/console" >&2
    exit 1
fi
exit "$(cat "$work/results/code")"
