#!/bin/sh
# Builds redrt in release mode and installs it as an MPI prefix: scripts/install.sh PREFIX [--no-build | --development]
#
# --development installs what the tests are built with: it builds in a fraction of the time, checks itself as it runs,
# and is slower.
#
#   PREFIX/bin            redrt and its names (redrun, mpiexec, mpirun, redrtd, redctl, redspared, redreport, redplan,
#                         redclone), redstore, redrt-srun, redrt-sim, mpicc, mpicxx, mpifort, redrt-fortran-modules, …
#   PREFIX/lib            libmpi_abi.so.1, libredrt_mpifort.so.1, libredrt_preload.so, libredclone.so, pkgconfig/redrt.pc
#   PREFIX/lib/redrt      libmpi.so.12 (MPICH's ABI), libmpi.so.40 (Open MPI's): found by programs that redrun starts
#   PREFIX/include        mpi.h, redrt.h, mpif.h, in redrt-fortran/ the modules for the Fortran compiler, if there is one
#   PREFIX/share          manual pages, shell completions, a module file (modulefiles/redrt); in redrt/ sbatch scripts for jobs
#                         and for redspared, a systemd unit for it, and the script that removes all of this (uninstall)
#
# It can be moved: nothing but the unit and the module file depends on where PREFIX is. With DESTDIR=DIRECTORY the files
# go to DIRECTORY/PREFIX, for a package whose files will be at PREFIX.
set -eu

if [ $# -lt 1 ] || [ "${1#-}" != "$1" ]; then
    echo "usage: $0 PREFIX [--no-build | --development]" >&2
    exit 2
fi
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
if [ -z "${DESTDIR-}" ]; then
    mkdir -p -- "$1"
    place=$(CDPATH='' cd -- "$1" && pwd -P)
    prefix=$place
else
    case $1 in
    /*) prefix=$1 ;;
    *) echo "$0: with DESTDIR, PREFIX begins with a slash: $1" >&2 && exit 2 ;;
    esac
    mkdir -p -- "$DESTDIR$prefix"
    place=$(CDPATH='' cd -- "$DESTDIR$prefix" && pwd -P)
fi
target=${CARGO_TARGET_DIR:-$root/target}
built=$target/release
libraries=$target/library
simulator=$target/simulation/redrt-sim
library_crates="-p mpi-abi -p redrt-preload -p redrt-fortran -p cloner-preload -p facade-mpich -p facade-mpich-fortran
    -p facade-openmpi -p facade-openmpi-fortran -p facade-loader"

cd "$root"
case ${2-} in
'')
    # shellcheck disable=SC2086
    cargo build --profile library $library_crates --lib
    cargo build --release -p redrt-tools -p redrt-fortran -p redstore --bins
    cargo build --profile simulation -p redrt-sim
    ;;
--no-build) ;;
--development)
    # Who builds the simulator together with it gets a library with a simulation, under the same name.
    rm -f -- "$target/debug/deps/libmpi_abi.so"
    # The whole workspace, so that crates have the features that the tests build them with and are built once.
    # Simulators in crates of the tools change nothing else there: with them, the tests' builds of the tools are these.
    cargo build --locked --workspace --exclude redrt-sim --exclude library-sim --features \
        control-network/simulation,replication-manager/simulation,file-undo/simulation,host-watch/simulation \
        --features coordinator-quorum/simulation
    built=$target/debug
    libraries=$target/debug
    simulator=
    ;;
*)
    echo "$0: there is no $2" >&2
    exit 2
    ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
list=share/redrt/files

# What is put there, and the directories that were not there before: what share/redrt/uninstall removes.
note() {
    printf '%s\n' "${1#"$place"/}" >>"$work/files"
}

for directory in bin lib lib/pkgconfig lib/redrt include share share/man share/man/man1 share/redrt share/modulefiles \
    share/bash-completion share/bash-completion/completions share/zsh share/zsh/site-functions share/fish \
    share/fish/vendor_completions.d share/redrt/admin share/redrt/admin/grafana share/redrt/admin/nhc \
    share/redrt/admin/prometheus share/redrt/admin/slurm; do
    if [ ! -d "$place/$directory" ]; then
        mkdir "$place/$directory"
        note "$directory/"
    fi
done

# A file that is in use cannot be written, but it can be replaced.
put() {
    install -m "$1" "$2" "$3.new"
    mv -f "$3.new" "$3"
    note "$3"
}

# What was compiled. Most of it are line tables, for stacks and debuggers: compressed they take a third. A development
# build is used at once.
put_built() {
    if [ -n "$simulator" ] && objcopy --compress-debug-sections=zlib "$1" "$work/built" 2>/dev/null; then
        put 755 "$work/built" "$2"
    else
        put 755 "$1" "$2"
    fi
}

link() {
    ln -sf "$1" "$2"
    note "$2"
}

for program in redrt redstore redrt-fortran-modules; do
    if [ -f "$built/$program" ]; then
        put_built "$built/$program" "$place/bin/$program"
    fi
done
if [ -f "$simulator" ]; then
    put_built "$simulator" "$place/bin/redrt-sim"
fi
for name in redrun mpiexec mpirun redrtd redctl redspared redreport redplan redclone; do
    link redrt "$place/bin/$name"
done
put 755 scripts/redrt-srun "$place/bin/redrt-srun"
put 755 scripts/mpicc "$place/bin/mpicc"
link mpicc "$place/bin/mpicxx"
link mpicc "$place/bin/mpic++"
for name in mpifort mpif90 mpif77; do
    link mpicc "$place/bin/$name"
done

put_built "$libraries/libmpi_abi.so" "$place/lib/libmpi_abi.so.1"
link libmpi_abi.so.1 "$place/lib/libmpi_abi.so"
put_built "$libraries/libredrt_mpifort.so" "$place/lib/libredrt_mpifort.so.1"
link libredrt_mpifort.so.1 "$place/lib/libredrt_mpifort.so"
put_built "$libraries/libredrt_preload.so" "$place/lib/libredrt_preload.so"
put_built "$libraries/libredclone.so" "$place/lib/libredclone.so"
put_built "$libraries/libredrt_mpich.so" "$place/lib/redrt/libmpi.so.12"
put_built "$libraries/libredrt_openmpi.so" "$place/lib/redrt/libmpi.so.40"
put_built "$libraries/libredrt_mpich_fortran.so" "$place/lib/redrt/libmpifort.so.12"
put_built "$libraries/libredrt_openmpi_fortran.so" "$place/lib/redrt/libmpi_mpifh.so.40"
put_built "$libraries/libredrt_loader.so" "$place/lib/redrt/libredrt_loader.so"
# Debian's MPICH is called so.
for name in libmpich:libmpi libmpichfort:libmpifort; do
    stub=${name%:*}.so.12
    (cd "$place/lib/redrt" && cc -shared -nostdlib "-Wl,-soname,$stub" -Wl,--no-as-needed '-Wl,-rpath,$ORIGIN' \
        -Wl,--unresolved-symbols=ignore-all -o "$work/$stub" "${name#*:}.so.12")
    put 755 "$work/$stub" "$place/lib/redrt/$stub"
done
version=$("$place/bin/redrun" -V)
sed "s/@VERSION@/${version##* }/" scripts/redrt.pc.in >"$work/redrt.pc"
put 644 "$work/redrt.pc" "$place/lib/pkgconfig/redrt.pc"
# What asks for an MPI, not for this one.
link redrt.pc "$place/lib/pkgconfig/mpi.pc"
put 644 include/mpi.h "$place/include/mpi.h"
put 644 include/redrt.h "$place/include/redrt.h"
mkdir "$work/fortran"
"$place/bin/redrt-fortran-modules" --sources "$work/fortran"
put 644 "$work/fortran/mpif.h" "$place/include/mpif.h"
for script in redrun.sbatch redrun-array.sbatch redrun-resume.sbatch redspared.sbatch redrun.pbs redrun.lsf; do
    put 755 "scripts/$script" "$place/share/redrt/$script"
done
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || true)
echo "${commit:-unknown}" >"$work/commit"
put 644 "$work/commit" "$place/share/redrt/commit"
# For administrators (docs/admin.md).
(cd admin && find . -type f ! -name README.md | LC_ALL=C sort) >"$work/admin"
while read -r file; do
    file=${file#./}
    sed "s|@PREFIX@|$prefix|g" "admin/$file" >"$work/file"
    mode=644
    [ ! -x "admin/$file" ] || mode=755
    put $mode "$work/file" "$place/share/redrt/admin/$file"
done <"$work/admin"
sed "s|@PREFIX@|$prefix|; s/@VERSION@/${version##* }/" scripts/redrt.modulefile.in >"$work/modulefile"
put 644 "$work/modulefile" "$place/share/modulefiles/redrt"
put 755 scripts/uninstall "$place/share/redrt/uninstall"

# pages NAME COMMAND...: the manual page and completions that the command prints.
pages() {
    name=$1
    shift
    for page in man:man/man1/$name.1 bash:bash-completion/completions/$name zsh:zsh/site-functions/_$name \
        fish:fish/vendor_completions.d/$name.fish; do
        "$@" "${page%%:*}" >"$work/page"
        put 644 "$work/page" "$place/share/${page#*:}"
    done
}
pages redrt "$place/bin/redrt" generate
pages redrun "$place/bin/redrun" --generate
pages redspared "$place/bin/redspared" --generate
pages redreport "$place/bin/redreport" --generate
pages redplan "$place/bin/redplan" generate
pages redclone "$place/bin/redclone" generate
pages redctl "$place/bin/redctl" generate
link redrun.1 "$place/share/man/man1/mpiexec.1"
link redrun.1 "$place/share/man/man1/mpirun.1"

# A compiler that cannot compile them, an old one perhaps, is no reason to do without the rest.
fortran=${REDRT_FC:-gfortran}
if ! command -v -- "${fortran%% *}" >/dev/null; then
    echo "no Fortran modules are made, because there is no $fortran here; with one, run $prefix/bin/redrt-fortran-modules"
elif ! "$place/bin/redrt-fortran-modules" --compiler "$fortran" >/dev/null; then
    echo "no Fortran modules are made: $fortran does not compile them, see above" >&2
fi

note include/redrt-fortran/
note "$list"
# An earlier installation may have put what this one does not.
cat "$place/$list" >>"$work/files" 2>/dev/null || true
LC_ALL=C sort -u "$work/files" >"$work/list"
put 644 "$work/list" "$place/$list"

echo "redrt is installed in $place${DESTDIR:+ for $prefix}; add $prefix/bin to PATH"
