//! Generates the procedures from the table, and sets the names of the library and of the one that it needs.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let directory = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let (table, library) = (mpi_table::Table::standard(), mpi_table::FortranLibrary::Standard);
    let write = |name: &str, text: String| std::fs::write(directory.join(name), text).expect("OUT_DIR can be written");
    write("procedures.rs", mpi_table::render_fortran_library(&table, library));
    write("binding.rs", mpi_table::render_fortran_binding(&table, library));
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libredrt_mpifort.so.1");
    // Functions with the same body may be merged. Calls within the library are bound to its own functions, even where
    // another library interposes the name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // Loading this library must load the MPI library too. An empty library of that name suffices for the linker.
    let stand_in = stand_in(&directory);
    println!("cargo::rustc-cdylib-link-arg=-Wl,--no-as-needed");
    println!("cargo::rustc-cdylib-link-arg={}", stand_in.display());
}

fn stand_in(directory: &Path) -> PathBuf {
    let (source, library) = (directory.join("empty.c"), directory.join("libmpi_abi.so.1"));
    std::fs::write(&source, "").expect("OUT_DIR can be written");
    let mut linker = Command::new("cc");
    linker.args(["-shared", "-nostdlib", "-Wl,-soname,libmpi_abi.so.1", "-o"]).arg(&library).arg(&source);
    let status = linker.status().expect("cc links Rust programs, and can be run");
    assert!(status.success(), "cc made no library of {}", source.display());
    library
}
