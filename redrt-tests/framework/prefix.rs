//! The installation under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The root of the source tree.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the tree")
}

/// Cargo's target directory.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The MPI prefix: `REDRT_PREFIX`, or one that is built and installed now, once for each process.
pub fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| match std::env::var_os("REDRT_PREFIX") {
        Some(prefix) => installed(prefix.into()),
        None => install(),
    })
}

fn installed(prefix: PathBuf) -> PathBuf {
    let redrun = prefix.join("bin/redrun");
    assert!(redrun.exists(), "REDRT_PREFIX is set, but {} does not exist", redrun.display());
    prefix
}

fn install() -> PathBuf {
    let prefix = target().join("test-prefix");
    let output = Command::new(root().join("scripts/install.sh")).arg(&prefix).output().expect("install.sh can be run");
    assert!(output.status.success(), "install.sh failed: {}", String::from_utf8_lossy(&output.stderr));
    prefix
}
