//! Generates the functions from the table, and sets the names of the library and of the one that it needs.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let directory = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let text = mpi_table::render_facade(&mpi_table::Table::standard(), mpi_table::Family::Mpich);
    std::fs::write(directory.join("facade.rs"), text).expect("OUT_DIR can be written");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmpi.so.12");
    // Functions with the same body may be merged. Calls within the library are bound to its own functions, even where
    // another library interposes the name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // Installed in PREFIX/lib/redrt; redrt's library is one directory up.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-rpath,$ORIGIN/..");
    let stand_in = stand_in(&directory);
    println!("cargo::rustc-cdylib-link-arg=-Wl,--no-as-needed");
    println!("cargo::rustc-cdylib-link-arg={}", stand_in.display());
}

/// An empty library of this name: with it as needed, loading the façade loads redrt's library too.
fn stand_in(directory: &Path) -> PathBuf {
    let (source, library) = (directory.join("empty.c"), directory.join("libmpi_abi.so.1"));
    std::fs::write(&source, "").expect("OUT_DIR can be written");
    let mut linker = Command::new("cc");
    linker.args(["-shared", "-nostdlib", "-Wl,-soname,libmpi_abi.so.1", "-o"]).arg(&library).arg(&source);
    let status = linker.status().expect("cc links Rust programs, and can be run");
    assert!(status.success(), "cc made no library of {}", source.display());
    library
}
