//! Files of this installation.

use std::path::{Path, PathBuf};

/// redrt's library.
pub const LIBRARY: &str = "libmpi_abi.so.1";
/// Where the libraries with other families' ABIs are, beside redrt's own.
pub const FACADES: &str = "redrt";
/// Beside those, the library that puts them in front of what a program loads while it runs.
pub const LOADER: &str = "libredrt_loader.so";

/// A library of this installation: beside the executable (a cargo target directory) or in `../lib`.
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

/// The library with another family's ABI.
pub fn find_facade(name: &str) -> Option<PathBuf> {
    find_library(&format!("{FACADES}/{name}"))
}
