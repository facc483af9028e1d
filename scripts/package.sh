#!/bin/sh
# Makes packages for hosts that do not compile: scripts/package.sh DIRECTORY [--no-build]
#
#   DIRECTORY/redrt-VERSION-ARCHITECTURE.tar.xz   to be unpacked anywhere
#   DIRECTORY/redrt_VERSION_ARCHITECTURE.deb      for Debian and its derivatives, if dpkg-deb is there: all of it in /opt/redrt,
#                                                 and links in /usr/bin to the commands that no other MPI has
#   DIRECTORY/redrt-VERSION-1.ARCHITECTURE.rpm    the same for Red Hat's and SUSE's, if rpmbuild is there
#   DIRECTORY/SHA256SUMS
#
# All hold what scripts/install.sh installs, without debugging information. The same sources give the same packages, at
# any time and for any user.
set -eu

if [ $# -lt 1 ] || [ "${1#-}" != "$1" ] || { [ $# -gt 1 ] && [ "$2" != --no-build ]; }; then
    echo "usage: $0 DIRECTORY [--no-build]" >&2
    exit 2
fi
mkdir -p -- "$1"
into=$(CDPATH='' cd -- "$1" && pwd -P)
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
cd "$root"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
DESTDIR=$work/tree scripts/install.sh /opt/redrt ${2+"$2"}
prefix=$work/tree/opt/redrt
version=$(sed -n 's/^Version: //p' "$prefix/lib/pkgconfig/redrt.pc")
architecture=$(uname -m)
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.lock)}"
export SOURCE_DATE_EPOCH

for file in LICENSE LICENSE-MIT LICENSE-APACHE CHANGELOG.md; do
    install -m 644 "$file" "$prefix/share/redrt/$file"
    echo "share/redrt/$file" >>"$prefix/share/redrt/files"
done
LC_ALL=C sort -o "$prefix/share/redrt/files" "$prefix/share/redrt/files"

# The newest glibc of which something in the package needs a symbol.
glibc=0
for file in "$prefix"/bin/* "$prefix"/lib/*.so* "$prefix"/lib/redrt/*; do
    if [ -L "$file" ] || ! readelf -h "$file" >/dev/null 2>&1; then
        continue
    fi
    strip --strip-unneeded "$file"
    needed=$(readelf --version-info "$file" | sed -n 's/.*Name: GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -n 1)
    glibc=$(printf '%s\n' "$glibc" "${needed:-0}" | sort -V | tail -n 1)
done

# archive DIRECTORY NAME: the directory as tar, the same whenever it is made.
archive() {
    tar -C "$1" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -c "$2"
}

tarball=redrt-$version-$architecture.tar.xz
mkdir "$work/unpacked"
cp -a "$prefix" "$work/unpacked/redrt-$version"
archive "$work/unpacked" "redrt-$version" | xz -T2 >"$into/$tarball.new"
mv -f "$into/$tarball.new" "$into/$tarball"
made=$tarball

# For systems that keep a list of their own of what is installed: they take it away, and nothing else may.
rm -f "$prefix/share/redrt/uninstall" "$prefix/share/redrt/files"
share=$work/tree/usr/share
mkdir -p "$work/tree/usr/bin" "$share/man/man1" "$share/bash-completion/completions" "$share/doc/redrt"
for command in redrt redrun redctl redspared redreport redplan redclone; do
    ln -s "/opt/redrt/bin/$command" "$work/tree/usr/bin/$command"
    ln -s "/opt/redrt/share/man/man1/$command.1" "$share/man/man1/$command.1"
    ln -s "/opt/redrt/share/bash-completion/completions/$command" "$share/bash-completion/completions/$command"
done
cat LICENSE LICENSE-MIT >"$share/doc/redrt/copyright"
cat >"$work/description" <<'END'
redrun starts an unmodified MPI program with every rank replicated. Messages are compared between replicas, so that
silent data corruption is found, outvoted and healed. When a replica dies the job goes on, and a sound one is copied
onto a spare host while it runs. Programs that were built for Open MPI and MPICH run unchanged.
END

if ! command -v rpmbuild >/dev/null; then
    echo "no RPM is made, because there is no rpmbuild here"
else
    (cd "$work/tree" && find . ! -type d | sed 's|^\.||' | LC_ALL=C sort && find ./opt/redrt -type d | sed 's|^\.|%dir |') \
        >"$work/rpm-files"
    cat >"$work/redrt.spec" <<END
Name: redrt
Version: $version
Release: 1
Summary: MPI over replicated processes, with live copies onto spare hosts
License: MIT OR Apache-2.0
AutoReqProv: no
Requires: libc.so.6(GLIBC_$glibc)(64bit), libgcc_s.so.1()(64bit)
%global debug_package %{nil}
%global _build_id_links none
%global __os_install_post %{nil}
%global _buildhost redrt
%global use_source_date_epoch_as_buildtime 1
%global clamp_mtime_to_source_date_epoch 1
%description
$(cat "$work/description")
%install
mkdir -p %{buildroot}
cp -a $work/tree/. %{buildroot}/
%files -f $work/rpm-files
END
    rpmbuild -bb --quiet --define "_topdir $work/rpm" --define "_rpmdir $work/rpms" --buildroot "$work/rpm-root" \
        --define '_binary_payload w6.xzdio' --target "$architecture" "$work/redrt.spec"
    rpm=redrt-$version-1.$architecture.rpm
    mv -f "$work/rpms/$architecture/$rpm" "$into/$rpm"
    made="$made $rpm"
fi

if ! command -v dpkg-deb >/dev/null; then
    echo "no Debian package is made, because there is no dpkg-deb here"
else
    architecture=$(dpkg --print-architecture)
    mkdir "$work/tree/DEBIAN"
    cat >"$work/tree/DEBIAN/control" <<END
Package: redrt
Version: $version
Architecture: $architecture
Maintainer: redrt maintainers <maintainers@example.invalid>
Section: net
Priority: optional
Depends: libc6 (>= $glibc), libgcc-s1
Suggests: openssh-client, gcc, gfortran
Installed-Size: $(du -sk "$work/tree" | cut -f 1)
Description: MPI over replicated processes, with live copies onto spare hosts
$(sed 's/^/ /' "$work/description")
END
    package=redrt_${version}_$architecture.deb
    dpkg-deb --root-owner-group -Zxz --build "$work/tree" "$into/$package.new" >/dev/null
    mv -f "$into/$package.new" "$into/$package"
    made="$made $package"
fi

(
    cd "$into"
    # shellcheck disable=SC2086 # names without spaces
    sha256sum $made >SHA256SUMS
    # shellcheck disable=SC2086
    du -h $made
)
echo "needs glibc $glibc or later"
