#!/bin/sh
# Looks whether the licences and sources of all dependencies are those that deny.toml allows. Without cargo-deny it is
# installed, where cargo puts what users install: unoptimized, since it takes minutes to build and runs for a second.
#
#   CARGO_TARGET_DIR     where it is built, if not in target/
set -eu
cd "$(dirname -- "$0")/.."
target=${CARGO_TARGET_DIR:-target}
if ! cargo deny --version >/dev/null 2>&1; then
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --debug --target-dir "$target/deny-build" cargo-deny
    rm -rf "$target/deny-build"
fi
cargo deny --version
# Not the advisories: they need a database from the network, and fail commits that were right when they were made.
cargo deny --locked check licenses bans sources
echo "Security advisories are not checked here; cargo deny check advisories does."
