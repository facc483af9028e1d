//! Files of this installation.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod foreign;
pub mod surroundings;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// redrt's library.
pub const LIBRARY: &str = "libmpi_abi.so.1";
/// Directory, beside redrt's library, of the libraries with other families' ABIs.
pub const FACADES: &str = "redrt";
/// Library in that directory that precedes libraries a program loads at run time.
pub const LOADER: &str = "libredrt_loader.so";

/// Runs this program again under another name: all programs are one file that acts by its name. Works even if the file
/// was replaced since, as jobs outlive installations.
///
/// # Errors
/// When this program's own file is unknown.
pub fn command(name: &str) -> io::Result<Command> {
    let own = std::env::current_exe()?;
    let called = own.with_file_name(name);
    let mut command = Command::new(if own.exists() { own } else { PathBuf::from("/proc/self/exe") });
    command.arg0(called);
    Ok(command)
}

/// A library of this installation: beside the executable (a cargo target directory), or in `../lib`.
pub fn find_library(name: &str) -> Option<PathBuf> {
    let executable = std::env::current_exe().ok()?;
    let directory = executable.parent()?;
    let places = [directory.join(name), directory.join("../lib").join(name)];
    places
        .iter()
        .find(|path| path.exists())
        .and_then(|path: &PathBuf| Path::canonicalize(path.parent()?).ok())
        .and_then(|directory| Some(directory.join(Path::new(name).file_name()?)))
}

/// A library with another family's ABI.
pub fn find_facade(name: &str) -> Option<PathBuf> {
    find_library(&format!("{FACADES}/{name}"))
}

/// Text of `--version`: the version, the commit it was built from, and the standard it follows.
#[must_use]
pub fn version_text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let commit = find_shared("commit").and_then(|path| std::fs::read_to_string(path).ok());
        let commit = commit.map_or_else(|| "not installed".to_owned(), |text| format!("commit {}", text.trim()));
        format!("{}\n{commit}, MPI 5.0", env!("CARGO_PKG_VERSION"))
    })
}

/// A file of `share/redrt`.
fn find_shared(name: &str) -> Option<PathBuf> {
    let executable = std::env::current_exe().ok()?;
    Some(executable.parent()?.join("../share/redrt").join(name)).filter(|path| path.exists())
}
