#!/bin/sh
# Builds redrt in release mode and installs it as an MPI prefix: scripts/install.sh PREFIX [--no-build]
#
#   PREFIX/bin            redrun, mpiexec, mpirun, redrtd, redctl, redspared, redreport, redplan, redrt-srun, redrt-sim, redclone, mpicc,
#                         mpicxx, mpifort, redrt-fortran-modules, …
#   PREFIX/lib            libmpi_abi.so.1, libredrt_mpifort.so.1, libredrt_preload.so, libredclone.so, pkgconfig/redrt.pc
#   PREFIX/lib/redrt      libmpi.so.12 (MPICH's ABI), libmpi.so.40 (Open MPI's): found by programs that redrun starts
#   PREFIX/include        mpi.h, mpif.h, in redrt-fortran/ the modules for the Fortran compiler, if there is one
#   PREFIX/share          manual pages, shell completions, in redrt/ sbatch scripts for jobs and for redspared, and a systemd unit for it
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
target=${CARGO_TARGET_DIR:-$root/target}
built=$target/release
libraries=$target/library

cd "$root"
if [ "${2-}" != --no-build ]; then
    cargo build --profile library -p redrt -p redrt-preload -p redrt-fortran -p cloner-preload -p facade-mpich \
        -p facade-mpich-fortran -p facade-openmpi -p facade-openmpi-fortran -p facade-loader --lib
    cargo build --release -p redrt-tools -p redrt-fortran --bins
    cargo build --profile simulation -p redrt-sim
fi

for directory in bin lib/pkgconfig lib/redrt include share/man/man1 share/redrt share/bash-completion/completions \
    share/zsh/site-functions share/fish/vendor_completions.d; do
    mkdir -p "$prefix/$directory"
done

# A file that is in use cannot be written, but it can be replaced.
put() {
    install -m "$1" "$2" "$3.new"
    mv -f "$3.new" "$3"
}

for program in redrun redrtd redctl redspared redreport redplan redclone redrt-fortran-modules; do
    if [ -f "$built/$program" ]; then
        put 755 "$built/$program" "$prefix/bin/$program"
    fi
done
if [ -f "$target/simulation/redrt-sim" ]; then
    put 755 "$target/simulation/redrt-sim" "$prefix/bin/redrt-sim"
fi
ln -sf redrun "$prefix/bin/mpiexec"
ln -sf redrun "$prefix/bin/mpirun"
put 755 scripts/redrt-srun "$prefix/bin/redrt-srun"
put 755 scripts/mpicc "$prefix/bin/mpicc"
ln -sf mpicc "$prefix/bin/mpicxx"
ln -sf mpicc "$prefix/bin/mpic++"
for name in mpifort mpif90 mpif77; do
    ln -sf mpicc "$prefix/bin/$name"
done

put 755 "$libraries/libmpi_abi.so" "$prefix/lib/libmpi_abi.so.1"
ln -sf libmpi_abi.so.1 "$prefix/lib/libmpi_abi.so"
put 755 "$libraries/libredrt_mpifort.so" "$prefix/lib/libredrt_mpifort.so.1"
ln -sf libredrt_mpifort.so.1 "$prefix/lib/libredrt_mpifort.so"
put 755 "$libraries/libredrt_preload.so" "$prefix/lib/libredrt_preload.so"
put 755 "$libraries/libredclone.so" "$prefix/lib/libredclone.so"
put 755 "$libraries/libredrt_mpich.so" "$prefix/lib/redrt/libmpi.so.12"
put 755 "$libraries/libredrt_openmpi.so" "$prefix/lib/redrt/libmpi.so.40"
put 755 "$libraries/libredrt_mpich_fortran.so" "$prefix/lib/redrt/libmpifort.so.12"
put 755 "$libraries/libredrt_openmpi_fortran.so" "$prefix/lib/redrt/libmpi_mpifh.so.40"
put 755 "$libraries/libredrt_loader.so" "$prefix/lib/redrt/libredrt_loader.so"
# Debian's MPICH is called so.
for name in libmpich:libmpi libmpichfort:libmpifort; do
    stub=${name%:*}.so.12
    (cd "$prefix/lib/redrt" && cc -shared -nostdlib "-Wl,-soname,$stub" -Wl,--no-as-needed '-Wl,-rpath,$ORIGIN' \
        -Wl,--unresolved-symbols=ignore-all -o "$stub.new" "${name#*:}.so.12" && mv -f "$stub.new" "$stub")
done
version=$("$prefix/bin/redrun" --version)
sed "s/@VERSION@/${version##* }/" scripts/redrt.pc.in >"$prefix/lib/pkgconfig/redrt.pc"
put 644 include/mpi.h "$prefix/include/mpi.h"
sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
"$prefix/bin/redrt-fortran-modules" --sources "$sources"
put 644 "$sources/mpif.h" "$prefix/include/mpif.h"
for script in redrun redspared; do
    put 755 "scripts/$script.sbatch" "$prefix/share/redrt/$script.sbatch"
done
sed "s|/usr/local/bin|$prefix/bin|" scripts/redspared.service >"$prefix/share/redrt/redspared.service"

# pages NAME COMMAND...: the manual page and completions that the command prints.
pages() {
    name=$1
    shift
    "$@" man >"$prefix/share/man/man1/$name.1"
    "$@" bash >"$prefix/share/bash-completion/completions/$name"
    "$@" zsh >"$prefix/share/zsh/site-functions/_$name"
    "$@" fish >"$prefix/share/fish/vendor_completions.d/$name.fish"
}
pages redrun "$prefix/bin/redrun" --generate
pages redspared "$prefix/bin/redspared" --generate
pages redreport "$prefix/bin/redreport" --generate
pages redplan "$prefix/bin/redplan" generate
pages redclone "$prefix/bin/redclone" generate
pages redctl "$prefix/bin/redctl" generate
ln -sf redrun.1 "$prefix/share/man/man1/mpiexec.1"
ln -sf redrun.1 "$prefix/share/man/man1/mpirun.1"

# A compiler that cannot compile them, an old one perhaps, is no reason to do without the rest.
fortran=${REDRT_FC:-gfortran}
if ! command -v -- "${fortran%% *}" >/dev/null; then
    echo "no Fortran modules are made, because there is no $fortran here; with one, run $prefix/bin/redrt-fortran-modules"
elif ! "$prefix/bin/redrt-fortran-modules" --compiler "$fortran" >/dev/null; then
    echo "no Fortran modules are made: $fortran does not compile them, see above" >&2
fi

echo "redrt is installed in $prefix; add $prefix/bin to PATH"
