//! Renders `mpi.h`.

use crate::kind::Shape;
use crate::parse::{Constant, Direction, Function, Parameter, Table};
use std::fmt::Write;

const HEAD: &str = r"/* mpi.h - the C interface of MPI-5.0 with the standard ABI, as provided by redrt.
 *
 * Generated from the tables in redrt/mpi-table; `cargo test -p mpi-table` checks that it is up to date.
 * Beyond the standard ABI it declares MPI_Fint and the functions that convert handles and statuses to and from
 * Fortran, for a Fortran compiler whose INTEGER is a C int.
 */
#ifndef REDRT_MPI_H
#define REDRT_MPI_H

#include <stdint.h>

#if defined(__cplusplus)
extern C_LINKAGE {
#endif

typedef intptr_t MPI_Aint;
typedef int64_t MPI_Offset;
typedef int64_t MPI_Count;
typedef int MPI_Fint;

typedef struct MPI_Status {
    int MPI_SOURCE;
    int MPI_TAG;
    int MPI_ERROR;
    int MPI_internal[5];
} MPI_Status;

/* The Fortran 2008 TYPE(MPI_Status) has the same components. */
typedef struct MPI_F08_status {
    MPI_Fint MPI_SOURCE;
    MPI_Fint MPI_TAG;
    MPI_Fint MPI_ERROR;
    MPI_Fint MPI_internal[5];
} MPI_F08_status;
";

const HANDLES: &[&str] =
    &["Comm", "Datatype", "Errhandler", "File", "Group", "Info", "Message", "Op", "Request", "Session", "Win"];

const TOOL_HANDLES: &[&str] =
    &["enum", "cvar_handle", "pvar_handle", "pvar_session", "event_registration", "event_instance"];

const ALIASES: &str = r"
/* Deprecated names of the error handler types. */
typedef MPI_Comm_errhandler_function MPI_Comm_errhandler_fn;
typedef MPI_File_errhandler_function MPI_File_errhandler_fn;
typedef MPI_Session_errhandler_function MPI_Session_errhandler_fn;
typedef MPI_Win_errhandler_function MPI_Win_errhandler_fn;
";

const TAIL: &str = r"
/* Fortran statuses: where the standard ABI leaves them to the Fortran side. */
#define MPI_F_STATUS_IGNORE ((MPI_Fint *)0)
#define MPI_F_STATUSES_IGNORE ((MPI_Fint *)0)
#define MPI_F08_STATUS_IGNORE ((MPI_F08_status *)0)
#define MPI_F08_STATUSES_IGNORE ((MPI_F08_status *)0)

#if defined(__cplusplus)
}
#endif

#endif
";

/// The text of `mpi.h`.
#[must_use]
pub fn render_header(table: &Table) -> String {
    let mut out = HEAD.replace("C_LINKAGE", "\"C\"");
    out.push('\n');
    for name in HANDLES {
        line(&mut out, format_args!("typedef struct MPI_ABI_{name} *MPI_{name};"));
    }
    out.push('\n');
    for name in TOOL_HANDLES {
        line(&mut out, format_args!("typedef struct MPI_T_ABI_{name} *MPI_T_{name};"));
    }
    out.push_str("\ntypedef int MPI_T_cb_safety;\ntypedef int MPI_T_source_order;\n\n");
    for callback in &table.callbacks {
        for large in [false, true].into_iter().take(1 + usize::from(callback.twin)) {
            render_callback(&mut out, callback, large);
        }
    }
    out.push_str(ALIASES);
    out.push('\n');
    for constant in &table.constants {
        render_constant(&mut out, constant);
    }
    for prefix in ["MPI_", "PMPI_"] {
        line(&mut out, format_args!("\n/* {prefix} functions */"));
        for function in &table.functions {
            for large in [false, true].into_iter().take(1 + usize::from(function.twin)) {
                render_prototype(&mut out, function, prefix, large);
            }
        }
    }
    out.push_str(TAIL);
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}

fn return_type(function: &Function) -> &'static str {
    function.returns.map_or("int", |kind| kind.c)
}

fn render_callback(out: &mut String, callback: &Function, large: bool) {
    let suffix = if large { "_c" } else { "" };
    let parameters = render_parameters(callback, large);
    line(out, format_args!("typedef {} ({}{suffix})({parameters});", return_type(callback), callback.name));
}

fn render_prototype(out: &mut String, function: &Function, prefix: &str, large: bool) {
    let suffix = if large { "_c" } else { "" };
    let name = function.name.trim_start_matches("MPI_");
    let parameters = render_parameters(function, large);
    let space = if return_type(function).ends_with('*') { "" } else { " " };
    line(out, format_args!("{}{space}{prefix}{name}{suffix}({parameters});", return_type(function)));
}

fn render_parameters(function: &Function, large: bool) -> String {
    let mut parts: Vec<_> = function.parameters(large).map(|p| render_parameter(p, large)).collect();
    if function.variadic {
        parts.push("...".to_owned());
    }
    if parts.is_empty() { "void".to_owned() } else { parts.join(", ") }
}

fn render_parameter(parameter: &Parameter, large: bool) -> String {
    let name = &parameter.name;
    let c = parameter.kind.c_type(large);
    let incoming = parameter.direction == Direction::In;
    match parameter.kind.shape {
        Shape::Function => format!("{} *{name}", callback_name(parameter, large)),
        Shape::Raw if parameter.kind.name == "buffer" && incoming => format!("const void *{name}"),
        Shape::Raw => format!("{c}{name}"),
        _ if parameter.kind.name == "triplet" => format!("int {name}[][3]"),
        // The address may be MPI_UNWEIGHTED, where compilers would know that there is no array.
        _ if name.ends_with("weights") && incoming => format!("const {c} *{name}"),
        _ if name.ends_with("weights") => format!("{c} *{name}"),
        _ if parameter.array && incoming => format!("const {c} {name}[]"),
        _ if parameter.array => format!("{c} {name}[]"),
        Shape::Pointee if incoming => format!("const {c} *{name}"),
        Shape::Scalar | Shape::Handle | Shape::Count if incoming => format!("{c} {name}"),
        _ => format!("{c} *{name}"),
    }
}

fn callback_name(parameter: &Parameter, large: bool) -> String {
    let name = parameter.callback.as_deref().expect("a function kind names its callback");
    let suffix = if large && parameter.kind.name == "functions" { "_c" } else { "" };
    format!("{name}{suffix}")
}

fn render_constant(out: &mut String, constant: &Constant) {
    let Constant { name, kind, value, .. } = constant;
    let text = match kind.shape {
        Shape::Function => {
            format!("(({} *){value})", constant.callback.as_deref().expect("a function kind names its callback"))
        }
        Shape::Raw => format!("(({}){value})", kind.c),
        Shape::Pointee => format!("(({} *){value})", kind.c),
        Shape::Handle => format!("(({}){value:#010x})", kind.c),
        _ if kind.c != "int" => format!("(({}){value})", kind.c),
        _ if *value < 0 => format!("({value})"),
        _ => value.to_string(),
    };
    line(out, format_args!("#define {name} {text}"));
}
