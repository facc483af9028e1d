#!/bin/sh
# Makes a container image without a daemon: scripts/image.sh DIRECTORY TARBALL [BASE]
#
#   TARBALL                     of scripts/package.sh: redrt-VERSION-ARCHITECTURE.tar.xz
#   BASE                        a directory with a root file system to put it into; if none is named, Debian 12 is made by
#                               debootstrap (as root)
#   DIRECTORY/redrt-VERSION-ARCHITECTURE.oci.tar
#                               an archive in OCI's layout: podman load -i, docker load -i (25 or later), skopeo copy
#                               oci-archive:…, apptainer build redrt.sif oci-archive:…
#
# redrt is in /opt/redrt and in PATH, beside sh, ssh and the C library. Programs are put on top of it, or bound into it.
# REDRT_MIRROR names another mirror of Debian's.
set -eu

if [ $# -lt 2 ] || [ "${1#-}" != "$1" ] || [ ! -f "$2" ]; then
    echo "usage: $0 DIRECTORY TARBALL [BASE]" >&2
    exit 2
fi
mkdir -p -- "$1"
into=$(CDPATH='' cd -- "$1" && pwd -P)
tarball=$(CDPATH='' cd -- "$(dirname -- "$2")" && pwd -P)/$(basename -- "$2")
name=$(basename -- "$tarball" .tar.xz)
: "${SOURCE_DATE_EPOCH:=$(stat -c %Y "$tarball")}"
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
case $name in
*-x86_64) architecture=amd64 ;;
*-aarch64) architecture=arm64 ;;
*) echo "$0: $name is for a processor that is not known here" >&2 && exit 2 ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
base=${3:-}
if [ -z "$base" ]; then
    if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
        echo "$0: name a root file system as the third argument, or be root and have debootstrap" >&2
        exit 1
    fi
    base=$work/base
    debootstrap --variant=minbase --include=openssh-client bookworm "$base" ${REDRT_MIRROR:+"$REDRT_MIRROR"} >"$work/log" 2>&1 ||
        { tail -n 5 "$work/log" >&2 && exit 1; }
    rm -rf "$base"/var/cache/apt/archives/*.deb "$base"/var/lib/apt/lists/* "$base"/var/log/* "$base"/dev/*
fi

blobs=$work/image/blobs/sha256
mkdir -p "$blobs" "$work/layer/opt"
tar -C "$work/layer/opt" -xf "$tarball"
mv "$work/layer/opt"/redrt-* "$work/layer/opt/redrt"

# blob FILE: puts it among the blobs, and prints its digest and size.
blob() {
    digest=$(sha256sum "$1" | cut -d ' ' -f 1)
    size=$(stat -c %s "$1")
    mv "$1" "$blobs/$digest"
    printf '"digest":"sha256:%s","size":%s' "$digest" "$size"
}

# layer DIRECTORY: its description goes to layers, and the digest of what is in it to contents.
layer() {
    tar -C "$1" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf "$work/layer.tar" .
    printf '"sha256:%s"\n' "$(sha256sum "$work/layer.tar" | cut -d ' ' -f 1)" >>"$work/contents"
    gzip -n -c "$work/layer.tar" >"$work/layer.tar.gz"
    printf '{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip",%s}\n' "$(blob "$work/layer.tar.gz")" >>"$work/layers"
}
layer "$base"
layer "$work/layer"

path=/opt/redrt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cat >"$work/config" <<END
{"created":"$created","architecture":"$architecture","os":"linux","config":{"Env":["PATH=$path"],"Cmd":["redrun","--help"],
"Labels":{"org.opencontainers.image.title":"redrt","org.opencontainers.image.licenses":"MIT OR Apache-2.0"}},
"rootfs":{"type":"layers","diff_ids":[$(paste -sd , "$work/contents")]},"history":[{"created":"$created"},{"created":"$created"}]}
END
config=$(blob "$work/config")
cat >"$work/manifest" <<END
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
"config":{"mediaType":"application/vnd.oci.image.config.v1+json",$config},"layers":[$(paste -sd , "$work/layers")]}
END
manifest=$(blob "$work/manifest")
cat >"$work/image/index.json" <<END
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{
"mediaType":"application/vnd.oci.image.manifest.v1+json",$manifest,
"annotations":{"org.opencontainers.image.ref.name":"redrt:${name#redrt-}","io.containerd.image.name":"redrt:${name#redrt-}"}}]}
END
echo '{"imageLayoutVersion":"1.0.0"}' >"$work/image/oci-layout"
tar -C "$work/image" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf "$into/$name.oci.tar.new" .
mv -f "$into/$name.oci.tar.new" "$into/$name.oci.tar"
du -h "$into/$name.oci.tar"
