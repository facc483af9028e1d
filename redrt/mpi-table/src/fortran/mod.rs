//! Fortran: the modules `mpi` and `mpi_f08`, `mpif.h`, and the procedures behind all three.
//!
//! The modules hold interfaces and constants only, no code: a compiler makes `.mod` files of them and nothing to link.
//! The procedures are a library, written in Rust, that calls the C functions. So one library serves every compiler
//! that passes arguments as gfortran does, and only the `.mod` files depend on the compiler.
//!
//! | in | calls | symbol |
//! |---|---|---|
//! | `mpif.h`, `mpi` | `MPI_Send` | `mpi_send_` |
//! | `mpi_f08`, no buffer among the arguments, or a string beside it | `MPI_Wait_f08` | `mpi_wait_f08_` |
//! | `mpi_f08`, with a buffer, passed as a descriptor | `MPI_Send_f08ts` | `mpi_send_f08ts_` |
//! | `mpi_f08`, large counts | `MPI_Send_c_f08ts` | `mpi_send_c_f08ts_` |
//!
//! Each has a twin `pmpi_...`. Specific names and symbols are those of MPI-5.0 section 19.1.5.

mod declare;
mod extern_c;
mod include;
mod library;
mod modules;
mod shims;

pub use include::render_mpif_h;
pub use library::{Library, render_fortran_binding};
pub use modules::{render_base_module, render_mpi_f08_module, render_mpi_module};
pub use shims::render_fortran_library;

use crate::parse::{Constant, Function, Parameter, Table};

/// A family of interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dialect {
    /// `mpif.h` and the module `mpi`: handles are integers, buffers are addresses.
    Old,
    /// The module `mpi_f08`: handles have types, buffers are descriptors.
    New,
}

/// One procedure: a function in a dialect.
#[derive(Clone, Copy, Debug)]
struct Procedure<'a> {
    function: &'a Function,
    dialect: Dialect,
    large: bool,
}

impl<'a> Procedure<'a> {
    fn parameters(self) -> impl Iterator<Item = &'a Parameter> {
        self.function.parameters(self.large)
    }

    /// Parameters in Fortran; the arguments of main are left out.
    fn own_parameters(self) -> impl Iterator<Item = &'a Parameter> {
        self.parameters().filter(|p| !matches!(p.kind.name, "argc" | "argv" | "env_count" | "env"))
    }

    /// True when buffers come as descriptors, which makes it a `BIND(C)` procedure. Compilers in a standard-conforming
    /// mode take no `LOGICAL` and no string in one.
    fn has_descriptors(self) -> bool {
        let others = |p: &Parameter| matches!(p.kind.name, "logical" | "string");
        self.dialect == Dialect::New && self.parameters().any(is_choice) && !self.parameters().any(others)
    }

    /// True when its last argument is the error code.
    fn has_error(self) -> bool {
        self.function.returns.is_none() && self.function.name != "MPI_Pcontrol"
    }

    /// Name of the procedure, with the prefix `MPI_` or `PMPI_`.
    fn name(self, prefix: &str) -> String {
        let base = self.function.name.trim_start_matches("MPI_");
        let large = if self.large { "_c" } else { "" };
        let dialect = match self.dialect {
            Dialect::Old => "",
            Dialect::New if self.has_descriptors() => "_f08ts",
            Dialect::New => "_f08",
        };
        format!("{prefix}{base}{large}{dialect}")
    }

    /// Symbol of the procedure.
    fn symbol(self, prefix: &str) -> String {
        format!("{}_", self.name(prefix).to_lowercase())
    }

    /// Name of the C function that it calls.
    fn c_name(self, prefix: &str) -> String {
        let base = self.function.name.trim_start_matches("MPI_");
        format!("{prefix}{base}{}", if self.large { "_c" } else { "" })
    }

    /// Name in the program's call: large counts have the same name where arguments tell the two apart.
    fn generic(self, prefix: &str) -> String {
        let base = self.function.name.trim_start_matches("MPI_");
        // The type of a callback does not tell them apart: MPI-5.0 section 19.1.5.
        let by_name = self.large && self.parameters().any(|p| p.kind.name == "functions");
        format!("{prefix}{base}{}", if by_name { "_c" } else { "" })
    }
}

/// The functions that a dialect has.
fn functions(table: &Table, dialect: Dialect) -> impl Iterator<Item = &Function> {
    let known = move |f: &&Function| {
        !f.c_only && !matches!(&*f.module, "convert" | "tool") && (dialect == Dialect::Old || !f.old)
    };
    table.functions.iter().filter(known)
}

/// All procedures of a dialect.
fn procedures(table: &Table, dialect: Dialect) -> impl Iterator<Item = Procedure<'_>> {
    functions(table, dialect).flat_map(move |function| {
        let small = Procedure { function, dialect, large: false };
        let large = (dialect == Dialect::New && needs_large(function)).then_some(Procedure { large: true, ..small });
        [Some(small), large].into_iter().flatten()
    })
}

/// Number of procedures of each dialect, and of those that take large counts: for the coverage page and the tests.
pub(crate) fn counts(table: &Table) -> (usize, usize, usize) {
    let large = procedures(table, Dialect::New).filter(|p| p.large).count();
    (functions(table, Dialect::Old).count(), functions(table, Dialect::New).count(), large)
}

/// True when the version for large counts has other types in Fortran. `MPI_Aint` and `MPI_Count` both have 64 bits, so
/// a function that differs in no other type exists once.
fn needs_large(function: &Function) -> bool {
    let differs = |p: &Parameter| p.large_only || matches!(p.kind.name, "count" | "disp" | "functions");
    function.twin && function.parameters.iter().any(differs)
}

/// True when the argument is a buffer of any type and rank.
fn is_choice(parameter: &Parameter) -> bool {
    matches!(parameter.kind.name, "buffer" | "choice")
}

/// True when the library may use the buffers after the procedure has returned.
fn keeps_buffers(function: &Function) -> bool {
    let name = function.snake_name();
    let base = name.strip_prefix("file_").unwrap_or(&name);
    let begins = base.strip_prefix('i').is_some_and(|rest| {
        let blocking = ["send", "recv", "read", "write", "bsend", "ssend", "rsend", "mrecv"];
        let collective = ["gather", "scatter", "all", "bcast", "reduce", "scan", "exscan", "neighbor"];
        blocking.iter().chain(&collective).any(|verb| rest.starts_with(verb))
    });
    let kept_module = matches!(&*function.module, "rma" | "partitioned");
    begins || kept_module || name.ends_with("_init") || name.ends_with("_begin") || name.contains("attach")
}

/// True when Fortran has the constant.
fn is_fortran_constant(constant: &Constant) -> bool {
    let name = &constant.name;
    let tool = name.starts_with("MPI_T_") && !name.starts_with("MPI_T_ERR_");
    !tool && !name.starts_with("MPI_F_")
}

/// The value of an integer constant in Fortran: strings have no NUL at their end (MPI-5.0 section 2.5.4).
fn fortran_value(constant: &Constant) -> i64 {
    let is_length = constant.name.starts_with("MPI_MAX_");
    if is_length { constant.value - 1 } else { constant.value }
}

/// Constants with a special meaning as arguments: name, and type and shape in `mpif.h` and the modules.
///
/// Each is a common block of its own, so that a procedure knows it by its address (MPI-5.0 section 19.1.8).
const SENTINELS: &[(&str, &str, &str)] = &[
    ("MPI_BOTTOM", "INTEGER", ""),
    ("MPI_IN_PLACE", "INTEGER", ""),
    ("MPI_BUFFER_AUTOMATIC", "INTEGER", ""),
    ("MPI_ERRCODES_IGNORE", "INTEGER", "(1)"),
    ("MPI_UNWEIGHTED", "INTEGER", "(1)"),
    ("MPI_WEIGHTS_EMPTY", "INTEGER", "(1)"),
    ("MPI_ARGV_NULL", "CHARACTER", "(1)"),
    ("MPI_ARGVS_NULL", "CHARACTER", "(1,1)"),
];

/// The name of the common block of a sentinel.
fn block(sentinel: &str) -> String {
    sentinel.replace("MPI_", "redrt_mpi_").to_lowercase()
}

const PREFIXES: [&str; 2] = ["MPI_", "PMPI_"];

/// Appends a line.
fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    use std::fmt::Write;
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}

/// Appends a statement of free-form source, broken at blanks into lines that every compiler takes.
fn statement(out: &mut String, indent: usize, text: &str) {
    const WIDTH: usize = 110;
    let mut current = " ".repeat(indent);
    for word in text.split(' ') {
        if current.len() + word.len() > WIDTH {
            line(out, format_args!("{current}&"));
            current = " ".repeat(indent + 4);
        }
        current += word;
        current.push(' ');
    }
    line(out, format_args!("{}", current.trim_end()));
}

#[cfg(test)]
mod tests;
