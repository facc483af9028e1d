//! Processes to clone on this machine: sources under `redclone run`, destinations under `redclone serve`, and links
//! between them that fail.
//!
//! `REDRT_PREFIX` names the installation under test; without it one is built.

mod link;
mod processes;

pub use link::{Fault, Link};
pub use processes::{Host, Outcome, Push, Source};

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Root directory of the project.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Path of the `redclone` under test. Built at the first call unless `REDRT_PREFIX` is set.
#[must_use]
pub fn redclone() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Some(prefix) = std::env::var_os("REDRT_PREFIX") {
            let path = PathBuf::from(prefix).join("bin/redclone");
            assert!(path.exists(), "REDRT_PREFIX is set, but {} does not exist", path.display());
            return path;
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let arguments = ["build", "--release", "-p", "cloner-preload", "-p", "redrt-tools", "--lib", "--bin", "redrt"];
        let built = Command::new(cargo).args(arguments).current_dir(root()).status().expect("cargo runs");
        assert!(built.success(), "redclone does not build");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        let link = workshop().join("redclone");
        std::os::unix::fs::symlink(target.join("release/redrt"), &link).expect("a link is made");
        link
    })
}

/// Directory for programs and files of this test run, which is deleted at its end.
#[must_use]
pub fn workshop() -> &'static Path {
    static PATH: OnceLock<tempfile::TempDir> = OnceLock::new();
    PATH.get_or_init(|| tempfile::Builder::new().prefix("cloner-tests-").tempdir().expect("a temporary directory"))
        .path()
}

/// Compiles a program of `cloner/cloner-tests/programs` with the compiler for its language, unless that is done
/// already.
#[must_use]
pub fn compile(source: &str, options: &[&str]) -> PathBuf {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let from = root().join("cloner/cloner-tests/programs").join(source);
    let name: String =
        source.chars().chain(options.concat().chars()).map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    let to = workshop().join(name);
    if !to.exists() {
        let compiler = match from.extension().and_then(|extension| extension.to_str()) {
            Some("cpp") => "c++",
            Some("f90") => "gfortran",
            _ => "cc",
        };
        let ended = Command::new(compiler)
            .args(["-O1", "-pthread", "-o"])
            .args([&to, &from])
            .args(options)
            .output()
            .unwrap_or_else(|error| panic!("{compiler} does not run: {error}"));
        assert!(ended.status.success(), "{source}: {}", String::from_utf8_lossy(&ended.stderr));
    }
    to
}

/// Reproducible random numbers. `REDRT_SEED` selects another sequence.
pub struct Random(u64);

impl Random {
    /// The sequence for the test of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let seed = std::env::var("REDRT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
        Self(name.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)))
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ x >> 31) % end
    }

    /// Sleeps for a random time below `milliseconds`. Randomness chooses when a clone happens, never whether it works.
    pub fn moment(&mut self, milliseconds: u64) {
        std::thread::sleep(std::time::Duration::from_millis(self.below(milliseconds)));
    }
}
