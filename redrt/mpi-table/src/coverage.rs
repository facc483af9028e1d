//! Renders `docs/mpi-coverage.md`: the functions of the standard that redrt implements.

use crate::parse::{Bound, Function, Table};
use std::fmt::Write;

/// The modules in the order of the standard, with the chapter that describes their functions.
const CHAPTERS: &[(&str, &str)] = &[
    ("p2p", "Chapter 3: point-to-point communication"),
    ("status", "Chapter 3: statuses"),
    ("partitioned", "Chapter 4: partitioned communication"),
    ("datatype", "Chapter 5: datatypes"),
    ("coll", "Chapter 6: collective communication"),
    ("op", "Chapter 6: reduction operations"),
    ("group", "Chapter 7: groups"),
    ("comm", "Chapters 7 and 8: communicators and process topologies"),
    ("attr", "Chapter 7: attributes"),
    ("topology", "Chapter 8: dimensions"),
    ("env", "Chapters 9 and 20: environment and ABI"),
    ("errhandler", "Chapter 9: error handlers"),
    ("info", "Chapter 10: info objects"),
    ("init", "Chapter 11: initialization, sessions and finalization"),
    ("dynamic", "Chapter 11: starting and connecting processes"),
    ("rma", "Chapter 12: one-sided communication"),
    ("io", "Chapter 14: input and output"),
    ("tool", "Chapter 15: tool support"),
    ("convert", "Chapters 19 and 20: handle conversion"),
];

/// All functions that replicas are refused, with the reason. Each returns its class of error through the error handler.
/// `redrt-tests/cases/refused.rs` calls each of them.
pub const REFUSED: &[(&str, &str)] = &[
    ("MPI_Close_port", "MPI_ERR_UNSUPPORTED_OPERATION"),
    ("MPI_Comm_accept", "MPI_ERR_UNSUPPORTED_OPERATION"),
    ("MPI_Comm_connect", "MPI_ERR_UNSUPPORTED_OPERATION"),
    ("MPI_Comm_join", "MPI_ERR_UNSUPPORTED_OPERATION"),
    ("MPI_Comm_spawn", "MPI_ERR_UNSUPPORTED_OPERATION"),
    ("MPI_Comm_spawn_multiple", "MPI_ERR_UNSUPPORTED_OPERATION"),
    ("MPI_Lookup_name", "MPI_ERR_UNSUPPORTED_OPERATION"),
    ("MPI_Open_port", "MPI_ERR_UNSUPPORTED_OPERATION"),
    ("MPI_Publish_name", "MPI_ERR_UNSUPPORTED_OPERATION"),
    ("MPI_Unpublish_name", "MPI_ERR_UNSUPPORTED_OPERATION"),
];

/// Functions that do not work at every degree, or have limits, by module.
const NOTES: &[(&str, &str)] = &[
    (
        "p2p",
        "Sends are never cancelled, at any degree; receives are. At r ≥ 2 threads come in the order of their leader's\n\
         ([determinism.md](determinism.md)).",
    ),
    (
        "op",
        "Replicas of a rank must come to the same: what an operation of the program makes may depend on nothing but what it is given.",
    ),
    (
        "comm",
        "With replicas `MPI_Comm_split_type` with `MPI_COMM_TYPE_SHARED` puts ranks together whose replicas of each index were started\n\
         on one host. With `--verify deferred` each rank is by itself.",
    ),
    (
        "dynamic",
        "At r = 1 without `--spares` and `--pool` only: else all but `MPI_Comm_get_parent` and `MPI_Comm_disconnect` return\n\
         `MPI_ERR_UNSUPPORTED_OPERATION` through the error handler, and say so. See [dynamic.md](dynamic.md).",
    ),
    (
        "rma",
        "At r ≥ 2 the memory model is `MPI_WIN_SEPARATE`, and windows over several ranks need `--verify strict`.\n\
         `MPI_Win_allocate_shared` is for ranks that `MPI_Comm_split_type` puts together, at every degree, and `MPI_ERR_RMA_SHARED` for\n\
         others. Replicas of one index share memory ([determinism.md](determinism.md#memory-that-ranks-share)).\n\
         At r = 1 the model is `MPI_WIN_UNIFIED`, unless there are `--spares` or a `--pool`.",
    ),
    (
        "io",
        "At r ≥ 2 the leader of a rank reads and writes, its siblings take what it has read and compare what it has written\n\
         ([files.md](files.md#files-of-mpi)).",
    ),
    (
        "tool",
        "Events are of what happens to the process that is asked: replicas of one rank are told different things at different\n\
         times, as their MPI calls end. So a callback must send nothing, and decide nothing that is sent. Variables are of the\n\
         process that is asked as well.",
    ),
];

const HEAD: &str = "# MPI coverage

Every function of MPI-5.0 is exported, as `MPI_` and as `PMPI_`, with its large-count version `_c` where it has one.

This page is generated from `redrt/mpi-table`; `REDRT_UPDATE=1 cargo test -p mpi-table` brings it up to date.
";

const DEGREES: &str = "\
A job at r = 1 with `--spares` or a `--pool` counts as replicated: its processes can be copied. What works at r ≥ 2 works while replicas
are copied, too; the conformance tests of all chapters run with it (`scripts/chaos-conformance.sh --spare`). What does not is an error of
the class that is said below, with the reason; nothing else happens.";

/// The text of `docs/mpi-coverage.md`.
#[must_use]
pub fn render_coverage(table: &Table, bound: &Bound) -> String {
    let implemented = |function: &Function| bound.contains(function) || function.module == "convert";
    let mut out = HEAD.to_owned();
    let is_refused = |function: &Function| REFUSED.iter().any(|(name, _)| *name == function.name);
    let line = |out: &mut String, text: std::fmt::Arguments<'_>| writeln!(out, "{text}").expect("writing to a String");
    let count = table.functions.iter().filter(|f| implemented(f)).count();
    line(&mut out, format_args!("\n{count} of {} functions are implemented.\n", table.functions.len()));
    let (old, new, large) = crate::fortran::counts(table);
    let fortran = format!(
        "In Fortran, `mpif.h` and the module `mpi` have {old} of them, `mpi_f08` has {new}, {large} of these also with large\n\
         counts; what C has beyond that, the conversion of handles and the tool interface, is C's alone. See\n\
         [fortran.md](fortran.md)."
    );
    line(&mut out, format_args!("{fortran}\n"));
    line(&mut out, format_args!("| | all | at r = 1 | at r ≥ 2 |\n|---|---:|---:|---:|"));
    let of_module = |module: &'static str| table.functions.iter().filter(move |f| f.module == module);
    for (module, title) in CHAPTERS {
        let plain = of_module(module).filter(|f| implemented(f)).count();
        let replicated = of_module(module).filter(|f| implemented(f) && !is_refused(f)).count();
        line(&mut out, format_args!("| {title} | {} | {plain} | {replicated} |", of_module(module).count()));
    }
    line(&mut out, format_args!("\n{DEGREES}"));
    for (module, title) in CHAPTERS {
        line(&mut out, format_args!("\n## {title}\n"));
        if let Some((_, note)) = NOTES.iter().find(|(other, _)| other == module) {
            line(&mut out, format_args!("{note}\n"));
        }
        for (label, wanted) in [("Implemented", true), ("Not implemented", false)] {
            let functions = of_module(module).filter(|f| implemented(f) == wanted);
            let names: Vec<_> = functions.map(|f| format!("`{}`", f.name.trim_start_matches("MPI_"))).collect();
            if !names.is_empty() {
                line(&mut out, format_args!("{label}: {}.\n", names.join(", ")));
            }
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}
