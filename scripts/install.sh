#!/bin/sh
# Builds redrt in release mode and installs it as an MPI prefix: scripts/install.sh PREFIX [--no-build]
#
#   PREFIX/bin            redrun, mpiexec, mpirun, redrtd, redctl, redspared, redrt-srun, redrt-sim, redclone, mpicc, mpicxx, mpic++
#   PREFIX/lib            libmpi_abi.so.1, libmpi_abi.so, libredrt_preload.so, libredclone.so, pkgconfig/redrt.pc
#   PREFIX/include        mpi.h
#   PREFIX/share          manual pages, shell completions, in redrt/ a systemd unit and an sbatch script for redspared
#
# Nothing in it depends on where PREFIX is, so it can be moved.
set -eu

if [ $# -lt 1 ] || [ "${1#-}" != "$1" ]; then
    echo "usage: $0 PREFIX [--no-build]" >&2
    exit 2
fi
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
mkdir -p -- "$1"
prefix=$(CDPATH='' cd -- "$1" && pwd -P)
built=${CARGO_TARGET_DIR:-$root/target}/release

cd "$root"
if [ "${2-}" != --no-build ]; then
    cargo build --release -p redrt -p redrt-preload -p cloner-preload -p redrt-tools --bins --lib
fi

for directory in bin lib/pkgconfig include share/man/man1 share/redrt share/bash-completion/completions \
    share/zsh/site-functions share/fish/vendor_completions.d; do
    mkdir -p "$prefix/$directory"
done

# A file that is in use cannot be written, but it can be replaced.
put() {
    install -m "$1" "$2" "$3.new"
    mv -f "$3.new" "$3"
}

for program in redrun redrtd redctl redspared redrt-sim redclone; do
    if [ -f "$built/$program" ]; then
        put 755 "$built/$program" "$prefix/bin/$program"
    fi
done
ln -sf redrun "$prefix/bin/mpiexec"
ln -sf redrun "$prefix/bin/mpirun"
put 755 scripts/redrt-srun "$prefix/bin/redrt-srun"
put 755 scripts/mpicc "$prefix/bin/mpicc"
ln -sf mpicc "$prefix/bin/mpicxx"
ln -sf mpicc "$prefix/bin/mpic++"

put 755 "$built/libmpi_abi.so" "$prefix/lib/libmpi_abi.so.1"
ln -sf libmpi_abi.so.1 "$prefix/lib/libmpi_abi.so"
put 755 "$built/libredrt_preload.so" "$prefix/lib/libredrt_preload.so"
put 755 "$built/libredclone.so" "$prefix/lib/libredclone.so"
version=$("$prefix/bin/redrun" --version)
sed "s/@VERSION@/${version##* }/" scripts/redrt.pc.in >"$prefix/lib/pkgconfig/redrt.pc"
put 644 include/mpi.h "$prefix/include/mpi.h"
put 755 scripts/redspared.sbatch "$prefix/share/redrt/redspared.sbatch"
sed "s|/usr/local/bin|$prefix/bin|" scripts/redspared.service >"$prefix/share/redrt/redspared.service"

"$prefix/bin/redrun" --generate man >"$prefix/share/man/man1/redrun.1"
ln -sf redrun.1 "$prefix/share/man/man1/mpiexec.1"
ln -sf redrun.1 "$prefix/share/man/man1/mpirun.1"
"$prefix/bin/redrun" --generate bash >"$prefix/share/bash-completion/completions/redrun"
"$prefix/bin/redrun" --generate zsh >"$prefix/share/zsh/site-functions/_redrun"
"$prefix/bin/redrun" --generate fish >"$prefix/share/fish/vendor_completions.d/redrun.fish"
"$prefix/bin/redspared" --generate man >"$prefix/share/man/man1/redspared.1"
"$prefix/bin/redspared" --generate bash >"$prefix/share/bash-completion/completions/redspared"
"$prefix/bin/redspared" --generate zsh >"$prefix/share/zsh/site-functions/_redspared"
"$prefix/bin/redspared" --generate fish >"$prefix/share/fish/vendor_completions.d/redspared.fish"
"$prefix/bin/redclone" generate man >"$prefix/share/man/man1/redclone.1"
"$prefix/bin/redclone" generate bash >"$prefix/share/bash-completion/completions/redclone"
"$prefix/bin/redclone" generate zsh >"$prefix/share/zsh/site-functions/_redclone"
"$prefix/bin/redclone" generate fish >"$prefix/share/fish/vendor_completions.d/redclone.fish"

echo "redrt is installed in $prefix; add $prefix/bin to PATH"
