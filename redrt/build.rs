//! Generates the exported functions from `redrt/mpi-table`.

use mpi_table::{Bound, Table, render_core_table, render_exports};
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=mpi-table");
    println!("cargo::rerun-if-changed=build.rs");
    let table = Table::standard();
    let bound = std::fs::read_to_string("mpi-table/bound").expect("redrt/mpi-table/bound is readable");
    let bound = Bound::parse(&bound, &table).unwrap_or_else(|error| panic!("redrt/mpi-table/bound: {error}"));
    let directory = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let write = |name: &str, text: String| std::fs::write(Path::new(&directory).join(name), text).expect("OUT_DIR");
    write("exports.rs", render_exports(&table, &bound));
    write("functions.rs", render_core_table(&table));
}
