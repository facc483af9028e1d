# shellcheck shell=sh
# Sourced, in the root of the project, by scripts that test an installation: sets target, exports REDRT_PREFIX. Without
# REDRT_PREFIX the project is built and installed in target/test-prefix, which takes no time when nothing has changed.
target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
if [ -z "${REDRT_PREFIX-}" ]; then
    REDRT_PREFIX=$target/test-prefix
    scripts/install.sh "$REDRT_PREFIX" >&2
fi
export REDRT_PREFIX
