#!/bin/sh
# Fetches the upstream source of a Debian package: scripts/debian-source.sh PACKAGE DIRECTORY
#
# From the archive that this system takes its packages from, without changing its configuration, and without being root.
# DIRECTORY is made.
set -eu

if [ $# != 2 ]; then
    echo "usage: $0 PACKAGE DIRECTORY" >&2
    exit 2
fi
command -v apt-get >/dev/null || { echo "$0 needs apt-get" >&2 && exit 1; }
package=$1
mkdir -p -- "$(dirname -- "$2")"
directory=$(realpath -m -- "$2")
work=$directory.source
mkdir -p "$work/lists/partial"
# shellcheck disable=SC2016
apt-get indextargets --format 'deb-src $(REPO_URI) $(CODENAME) $(COMPONENT)' "Created-By: Packages" "Origin: Debian" | sort -u \
    >"$work/sources.list"
cd "$work"
set -- -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/lists" -o APT::Sandbox::User=
apt-get "$@" update
apt-get "$@" source --download-only --tar-only "$package"
mkdir "$directory.part"
tar -C "$directory.part" --strip-components=1 -xf "$work"/*.orig.tar.*
mv "$directory.part" "$directory"
rm -rf "$work"
