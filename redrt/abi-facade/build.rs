//! Generates the type of the table of functions.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let directory = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let text = mpi_table::render_core_type(&mpi_table::Table::standard());
    std::fs::write(directory.join("functions.rs"), text).expect("OUT_DIR can be written");
}
