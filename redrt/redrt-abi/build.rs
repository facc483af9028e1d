//! Generates the constants from `redrt/mpi-table`.

use mpi_table::{Table, render_constants};
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=../mpi-table");
    println!("cargo::rerun-if-changed=build.rs");
    let directory = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let constants = render_constants(&Table::standard());
    std::fs::write(Path::new(&directory).join("constants.rs"), constants).expect("OUT_DIR");
}
