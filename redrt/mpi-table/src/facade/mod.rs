//! Renders façades: a façade is the library of another family's ABI. Its functions translate their arguments, call the
//! functions of redrt's library, and translate the results.
//!
//! | rendered | by |
//! |---|---|
//! | the table of functions that redrt's library exports, and its type | `core` |
//! | constants and handles, in and out; exported data | `values` |
//! | the functions | `functions` |

mod core;
mod facts;
mod functions;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use values::{ADDRESSES, type_name};

pub use self::core::{render_core_table, render_core_type};
pub use facts::{Fact, Facts, Family};

use crate::parse::{Function, Table};
use std::fmt::Write;

/// The generated part of a family's library.
#[must_use]
pub fn render_facade(table: &Table, family: Family) -> String {
    let facts = Facts::of(family);
    let mut out = String::new();
    values::data(&mut out, table, &facts);
    values::render(&mut out, table, &facts);
    for (function, large) in functions(table) {
        functions::render(&mut out, function, large, &facts);
    }
    out
}

/// All functions and their large-count twins, in the order of the table of functions.
fn functions(table: &Table) -> impl Iterator<Item = (&Function, bool)> {
    table.functions.iter().flat_map(|f| [false, true].into_iter().take(1 + usize::from(f.twin)).map(move |l| (f, l)))
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}
