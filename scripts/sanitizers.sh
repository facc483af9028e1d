#!/bin/sh
# Runs unit tests under the address and the thread sanitizer: scripts/sanitizers.sh [address] [thread]
#
# Both if none is named. Needs a nightly toolchain: sanitizers are not in stable ones; and its rust-src, since the
# thread sanitizer must see the standard library's locks, too. A quarter of an hour each on two cores; what is built is
# kept apart. The cloner's and the transports' tests with memory and threads of their own are in it; jobs of processes
# are not.
set -eu

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "$0: there is no nightly toolchain; rustup toolchain install nightly" >&2
    exit 3
fi
if [ ! -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ]; then
    echo "$0: the nightly toolchain has no sources of its library; rustup component add rust-src --toolchain nightly" >&2
    exit 3
fi
cd "$(dirname -- "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
[ $# -gt 0 ] || set -- address thread
for sanitizer in "$@"; do
    case $sanitizer in
    address | thread) ;;
    *)
        echo "usage: $0 [address] [thread]" >&2
        exit 2
        ;;
    esac
done
for sanitizer in "$@"; do
    echo "==== $sanitizer sanitizer"
    # Left out: a test that asks where malloc puts a large block, which is not malloc's choice here, one in which a
    # thread writes over what others read, and crates without unsafe code and threads.
    # A request for more memory than there is fails here as it does elsewhere: frames that ask for that are tried.
    races=
    [ "$sanitizer" = address ] || races="--skip a_ring_is_written_over_while_it_is_read"
    CARGO_TARGET_DIR="$target/sanitizers" RUSTFLAGS="-Zsanitizer=$sanitizer -Cunsafe-allow-abi-mismatch=sanitizer" \
        ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 TSAN_OPTIONS=allocator_may_return_null=1 \
        cargo +nightly test -Zbuild-std --locked --no-fail-fast --target "$host" --lib -p redrt-sync -p redrt-datatype -p redrt-transport \
        -p redrt-abi -p redrt-runtime -p redrt-comm -p redrt-window -p redrt-files -p redrt-membership -p redrt -p cloner -- \
        --skip static_data_and_a_large_block_of_this_process_are_found $races
done
