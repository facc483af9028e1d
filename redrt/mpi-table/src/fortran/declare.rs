//! Declarations of arguments in Fortran.

use super::{Dialect, Procedure, is_choice, keeps_buffers};
use crate::kind::Shape;
use crate::parse::{Direction, Function, Parameter};

/// The specification statements for the arguments of a procedure.
pub(super) fn arguments(procedure: Procedure<'_>) -> Vec<String> {
    let mut out: Vec<_> = procedure.own_parameters().flat_map(|p| argument(procedure, p)).collect();
    if procedure.has_error() {
        let optional = if procedure.dialect == Dialect::New { ", OPTIONAL, INTENT(OUT)" } else { "" };
        out.push(format!("INTEGER{optional} :: ierror"));
    }
    out
}

/// Names of the arguments, in order.
pub(super) fn names(procedure: Procedure<'_>) -> Vec<&str> {
    let own = procedure.own_parameters().map(|p| &*p.name);
    own.chain(procedure.has_error().then_some("ierror")).collect()
}

fn argument(procedure: Procedure<'_>, parameter: &Parameter) -> Vec<String> {
    let Procedure { dialect, large, .. } = procedure;
    let name = &parameter.name;
    if is_choice(parameter) || (dialect == Dialect::Old && parameter.kind.name == "detached") {
        return choice(procedure, parameter);
    }
    if parameter.kind.shape == Shape::Function {
        let callback = parameter.callback.as_deref().expect("a function kind names its callback");
        let suffix = if large && parameter.kind.name == "functions" { "_c" } else { "" };
        return match dialect {
            Dialect::Old => vec![format!("EXTERNAL :: {name}")],
            Dialect::New => vec![format!("PROCEDURE({callback}{suffix}) :: {name}")],
        };
    }
    let base = type_of(parameter, dialect, large);
    let intent = if dialect == Dialect::New { intent(parameter) } else { "" };
    vec![format!("{base}{intent} :: {name}{}", shape(parameter, dialect))]
}

/// A buffer of any type and rank. Outside of TYPE(*), DIMENSION(..) compilers have no common notation for it.
fn choice(procedure: Procedure<'_>, parameter: &Parameter) -> Vec<String> {
    let (name, function) = (&parameter.name, procedure.function);
    if procedure.has_descriptors() {
        // An attached buffer, or one whose address is taken, is written to later on.
        let is_kept =
            parameter.kind.name == "choice" || matches!(&*function.name, "MPI_Get_address" | "MPI_Win_detach");
        let only_read = parameter.direction == Direction::In && !is_kept;
        let intent = if only_read { ", INTENT(IN)" } else { "" };
        let ends = function.module == "io" && function.name.ends_with("_end");
        let kept = if keeps_buffers(function) || is_kept || ends { ", ASYNCHRONOUS" } else { "" };
        return vec![format!("TYPE(*), DIMENSION(..){intent}{kept} :: {name}")];
    }
    vec![
        format!("!GCC$ ATTRIBUTES NO_ARG_CHECK :: {name}"),
        format!("!DEC$ ATTRIBUTES NO_ARG_CHECK :: {name}"),
        format!("!DIR$ IGNORE_TKR {name}"),
        format!("TYPE(*), DIMENSION(*) :: {name}"),
    ]
}

/// The type that an argument is declared with.
pub(super) fn type_of(parameter: &Parameter, dialect: Dialect, large: bool) -> String {
    let kind = parameter.kind;
    match (kind.name, dialect) {
        ("logical", _) => "LOGICAL".to_owned(),
        ("string" | "strings" | "strings2", _) => "CHARACTER(LEN=*)".to_owned(),
        ("f08status", _) | ("status", Dialect::New) => "TYPE(MPI_Status)".to_owned(),
        ("status" | "fstatus" | "attribute_int" | "state_int", _) => "INTEGER".to_owned(),
        ("attribute" | "state", _) | ("base", Dialect::Old) => "INTEGER(KIND=MPI_ADDRESS_KIND)".to_owned(),
        ("base" | "detached" | "address", _) => "TYPE(redrt_c_ptr)".to_owned(),
        _ if kind.shape == Shape::Handle && dialect == Dialect::New => format!("TYPE({})", kind.c),
        _ if kind.shape == Shape::Handle => "INTEGER".to_owned(),
        _ => number(kind.c_type(large)).to_owned(),
    }
}

/// The Fortran type of a C number.
pub(super) fn number(c: &str) -> &'static str {
    match c {
        "int" | "MPI_Fint" => "INTEGER",
        "MPI_Aint" => "INTEGER(KIND=MPI_ADDRESS_KIND)",
        "MPI_Offset" => "INTEGER(KIND=MPI_OFFSET_KIND)",
        "MPI_Count" => "INTEGER(KIND=MPI_COUNT_KIND)",
        "double" => "DOUBLE PRECISION",
        other => panic!("{other} has no type in Fortran"),
    }
}

/// An argument that may be a constant for an absent value has no intent: those constants are variables.
fn intent(parameter: &Parameter) -> &'static str {
    let may_be_ignored = matches!(parameter.kind.name, "status")
        || parameter.name.ends_with("weights")
        || parameter.name == "array_of_errcodes";
    match parameter.direction {
        Direction::In => ", INTENT(IN)",
        _ if may_be_ignored => "",
        Direction::Out => ", INTENT(OUT)",
        Direction::InOut => ", INTENT(INOUT)",
    }
}

fn shape(parameter: &Parameter, dialect: Dialect) -> &'static str {
    match (parameter.kind.name, dialect) {
        ("status", Dialect::Old) if parameter.array => "(MPI_STATUS_SIZE, *)",
        ("status", Dialect::Old) | ("fstatus", _) => "(MPI_STATUS_SIZE)",
        ("triplet", _) => "(3, *)",
        ("strings", _) => "(*)",
        ("strings2", _) => "(count, *)",
        _ if parameter.array => "(*)",
        _ => "",
    }
}

/// A callback of the program: its names and its specification statements, without intents, as in the standard.
pub(super) fn callback(callback: &Function, dialect: Dialect, large: bool) -> (Vec<String>, Vec<String>) {
    let mut names: Vec<_> = callback.parameters.iter().map(|p| p.name.clone()).collect();
    let declare = |p: &Parameter| {
        let value = if p.kind.name == "address" { ", VALUE" } else { "" };
        format!("{}{value} :: {}{}", type_of(p, dialect, large), p.name, shape(p, dialect))
    };
    let mut lines: Vec<_> = callback.parameters.iter().map(declare).collect();
    // MPI_User_function and error handlers return nothing in C, and have no error code here.
    if callback.returns.is_none() {
        names.push("ierror".to_owned());
        lines.push("INTEGER :: ierror".to_owned());
    }
    (names, lines)
}
