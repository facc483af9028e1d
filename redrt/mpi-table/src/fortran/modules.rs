//! The modules `mpi` and `mpi_f08`, and the one with the parts that they share.

use super::declare::{self, number};
use super::{
    Dialect, PREFIXES, Procedure, SENTINELS, block, fortran_value, functions, is_fortran_constant, line, procedures,
    statement,
};
use crate::kind::Shape;
use crate::parse::{Constant, Function, Table};

/// Handles with a type of their own, as in C.
const HANDLES: &[&str] =
    &["Comm", "Datatype", "Errhandler", "File", "Group", "Info", "Message", "Op", "Request", "Session", "Win"];

const BASE_HEAD: &str = "! What the modules mpi and mpi_f08 of redrt share. Generated; it holds no code, so there is nothing to link.
MODULE redrt_mpi_base
  USE, INTRINSIC :: ISO_C_BINDING, ONLY: redrt_c_ptr => C_PTR, redrt_intptr => C_INTPTR_T, redrt_int64 => C_INT64_T
  IMPLICIT NONE
  PUBLIC
  INTEGER, PARAMETER :: MPI_ADDRESS_KIND = redrt_intptr
  INTEGER, PARAMETER :: MPI_COUNT_KIND = redrt_int64
  INTEGER, PARAMETER :: MPI_OFFSET_KIND = redrt_int64
  INTEGER, PARAMETER :: MPI_INTEGER_KIND = KIND(0)
  ! The library takes INTEGER and LOGICAL for a C int. Options that make them larger are refused here, by a division by zero.
  INTEGER, PARAMETER, PRIVATE :: redrt_integer_is_int = &
      1 / MERGE(1, 0, STORAGE_SIZE(0) == 32 .AND. STORAGE_SIZE(.TRUE.) == 32)
  INTEGER, PARAMETER :: MPI_STATUS_SIZE = 8
  INTEGER, PARAMETER :: MPI_SOURCE = 1
  INTEGER, PARAMETER :: MPI_TAG = 2
  INTEGER, PARAMETER :: MPI_ERROR = 3
  ! Sections with strides work in mpi_f08 where docs/fortran.md says so; .TRUE. would promise it for every procedure.
  LOGICAL, PARAMETER :: MPI_SUBARRAYS_SUPPORTED = .FALSE.
  LOGICAL, PARAMETER :: MPI_ASYNC_PROTECTS_NONBLOCKING = .FALSE.
  TYPE, BIND(C) :: MPI_Status
    INTEGER :: MPI_SOURCE
    INTEGER :: MPI_TAG
    INTEGER :: MPI_ERROR
    INTEGER, PRIVATE :: internal(5)
  END TYPE
";

/// The module `redrt_mpi_base`: kinds, types, constants other than handles, constants for absent values, comparison.
#[must_use]
pub fn render_base_module(table: &Table) -> String {
    let mut out = BASE_HEAD.to_owned();
    for handle in HANDLES {
        line(&mut out, format_args!("  TYPE, BIND(C) :: MPI_{handle}\n    INTEGER :: MPI_VAL\n  END TYPE"));
    }
    for constant in table.constants.iter().filter(|c| is_fortran_constant(c) && c.kind.shape == Shape::Scalar) {
        let base = number(constant.kind.c);
        let value = fortran_value(constant);
        let kind = if base == "INTEGER" { "" } else { "_MPI_OFFSET_KIND" };
        line(&mut out, format_args!("  {base}, PARAMETER :: {} = {value}{kind}", constant.name));
    }
    for (name, base, shape) in SENTINELS {
        line(&mut out, format_args!("  {base} :: {name}{shape}\n  COMMON /{}/ {name}", block(name)));
    }
    for (operator, word) in [("==", "eq"), ("/=", "ne")] {
        line(&mut out, format_args!("  INTERFACE OPERATOR({operator})"));
        for handle in HANDLES {
            let name = format!("redrt_{}_{word}", handle.to_lowercase());
            line(&mut out, format_args!("    FUNCTION {name}(a, b) RESULT(answer)\n      IMPORT"));
            line(&mut out, format_args!("      TYPE(MPI_{handle}), INTENT(IN) :: a, b\n      LOGICAL :: answer"));
            line(&mut out, format_args!("    END FUNCTION"));
        }
        line(&mut out, format_args!("  END INTERFACE"));
    }
    // These two exist in Fortran alone. The descriptor of an argument has the size of its elements.
    line(&mut out, format_args!("  INTERFACE"));
    for prefix in PREFIXES {
        let lower = prefix.to_lowercase();
        line(
            &mut out,
            format_args!("    SUBROUTINE {prefix}Sizeof(x, size, ierror) BIND(C, NAME=\"{lower}sizeof_f08ts_\")"),
        );
        line(
            &mut out,
            format_args!("      TYPE(*), DIMENSION(..), INTENT(IN) :: x\n      INTEGER, INTENT(OUT) :: size"),
        );
        line(&mut out, format_args!("      INTEGER, OPTIONAL, INTENT(OUT) :: ierror\n    END SUBROUTINE"));
        line(
            &mut out,
            format_args!("    SUBROUTINE {prefix}F_sync_reg(buf) BIND(C, NAME=\"{lower}f_sync_reg_f08ts_\")"),
        );
        line(&mut out, format_args!("      TYPE(*), DIMENSION(..), ASYNCHRONOUS :: buf\n    END SUBROUTINE"));
    }
    line(&mut out, format_args!("  END INTERFACE\nEND MODULE redrt_mpi_base"));
    out
}

/// The module `mpi`.
#[must_use]
pub fn render_mpi_module(table: &Table) -> String {
    let mut out = "! The module mpi of redrt: handles are integers. Generated.\nMODULE mpi\n".to_owned();
    out += "  USE redrt_mpi_base\n  IMPLICIT NONE\n  PUBLIC\n";
    out += "  INTEGER :: MPI_STATUS_IGNORE(MPI_STATUS_SIZE)\n  COMMON /redrt_mpi_status_ignore/ MPI_STATUS_IGNORE\n";
    out += "  INTEGER :: MPI_STATUSES_IGNORE(MPI_STATUS_SIZE, 1)\n";
    out += "  COMMON /redrt_mpi_statuses_ignore/ MPI_STATUSES_IGNORE\n";
    for constant in handle_constants(table) {
        line(&mut out, format_args!("  INTEGER, PARAMETER :: {} = {}", constant.name, constant.value));
    }
    for prefix in PREFIXES {
        for procedure in procedures(table, Dialect::Old) {
            render_old(&mut out, procedure, prefix);
        }
    }
    render_predefined_functions(&mut out, table, Dialect::Old);
    out += "END MODULE mpi\n";
    out
}

/// The module `mpi_f08`.
#[must_use]
pub fn render_mpi_f08_module(table: &Table) -> String {
    let mut out = "! The module mpi_f08 of redrt: handles have types. Generated.\nMODULE mpi_f08\n".to_owned();
    out += "  USE redrt_mpi_base\n  IMPLICIT NONE\n  PUBLIC\n";
    out += "  TYPE(MPI_Status) :: MPI_STATUS_IGNORE\n  COMMON /redrt_mpi_status_ignore/ MPI_STATUS_IGNORE\n";
    out += "  TYPE(MPI_Status) :: MPI_STATUSES_IGNORE(1)\n";
    out += "  COMMON /redrt_mpi_statuses_ignore/ MPI_STATUSES_IGNORE\n";
    for constant in handle_constants(table) {
        let Constant { name, kind, value, .. } = constant;
        line(&mut out, format_args!("  TYPE({}), PARAMETER :: {name} = {}({value})", kind.c, kind.c));
    }
    line(&mut out, format_args!("  ABSTRACT INTERFACE"));
    for callback in table.callbacks.iter().filter(|c| is_new_callback(c)) {
        for large in [false, true].into_iter().take(1 + usize::from(callback.twin)) {
            let name = format!("{}{}", callback.name, if large { "_c" } else { "" });
            render_callback(&mut out, &name, callback, Dialect::New, large);
        }
    }
    line(&mut out, format_args!("  END INTERFACE"));
    for prefix in PREFIXES {
        for function in functions(table, Dialect::New) {
            render_new(&mut out, table, function, prefix);
        }
    }
    render_predefined_functions(&mut out, table, Dialect::New);
    out += "END MODULE mpi_f08\n";
    out
}

fn handle_constants(table: &Table) -> impl Iterator<Item = &Constant> {
    table.constants.iter().filter(|c| is_fortran_constant(c) && c.kind.shape == Shape::Handle)
}

/// One interface, or two where a pointer may come out as an integer or as a `TYPE(C_PTR)`.
fn render_old(out: &mut String, procedure: Procedure<'_>, prefix: &str) {
    let name = procedure.name(prefix);
    let with_pointer = procedure.parameters().any(|p| p.kind.name == "base");
    line(out, format_args!("  INTERFACE {}", if with_pointer { &*name } else { "" }));
    render_interface(out, procedure, &name, "", &declare::arguments(procedure));
    if with_pointer {
        let pointer = |text: String| {
            let is_base = text.ends_with(":: baseptr");
            if is_base { "TYPE(redrt_c_ptr) :: baseptr".to_owned() } else { text }
        };
        let arguments: Vec<_> = declare::arguments(procedure).into_iter().map(pointer).collect();
        render_interface(out, procedure, &format!("{name}_cptr"), "", &arguments);
    }
    line(out, format_args!("  END INTERFACE"));
}

/// The generic name with its specific procedures.
fn render_new(out: &mut String, table: &Table, function: &Function, prefix: &str) {
    let all = procedures(table, Dialect::New).filter(|p| std::ptr::eq(p.function, function));
    let mut last = String::new();
    for procedure in all {
        let generic = procedure.generic(prefix);
        if generic != last {
            if !last.is_empty() {
                line(out, format_args!("  END INTERFACE"));
            }
            line(out, format_args!("  INTERFACE {generic}"));
            last = generic;
        }
        let symbol = procedure.symbol(prefix);
        let binding = if procedure.has_descriptors() { format!(" BIND(C, NAME=\"{symbol}\")") } else { String::new() };
        render_interface(out, procedure, &procedure.name(prefix), &binding, &declare::arguments(procedure));
    }
    line(out, format_args!("  END INTERFACE"));
}

fn render_interface(out: &mut String, procedure: Procedure<'_>, name: &str, binding: &str, arguments: &[String]) {
    let names = declare::names(procedure).join(", ");
    let result = procedure.function.returns.map(|kind| number(kind.c));
    let word = if result.is_some() { "FUNCTION" } else { "SUBROUTINE" };
    let returns = if result.is_some() { " RESULT(answer)" } else { "" };
    statement(out, 4, &format!("{word} {name}({names}){returns}{binding}"));
    line(out, format_args!("      IMPORT"));
    for argument in arguments {
        // A directive starts in the first column, for all compilers to see it.
        let indent = if argument.starts_with('!') { "" } else { "      " };
        line(out, format_args!("{indent}{argument}"));
    }
    if let Some(result) = result {
        line(out, format_args!("      {result} :: answer"));
    }
    line(out, format_args!("    END {word}"));
}

fn is_new_callback(callback: &Function) -> bool {
    !callback.name.starts_with("MPI_T_") && !matches!(&*callback.name, "MPI_Copy_function" | "MPI_Delete_function")
}

fn render_callback(out: &mut String, name: &str, callback: &Function, dialect: Dialect, large: bool) {
    let (names, arguments) = declare::callback(callback, dialect, large);
    statement(out, 4, &format!("SUBROUTINE {name}({})", names.join(", ")));
    line(out, format_args!("      IMPORT"));
    for argument in arguments {
        line(out, format_args!("      {argument}"));
    }
    line(out, format_args!("    END SUBROUTINE"));
}

/// `MPI_COMM_DUP_FN` and the like: procedures of the library, with the interface of their callback.
fn render_predefined_functions(out: &mut String, table: &Table, dialect: Dialect) {
    line(out, format_args!("  INTERFACE"));
    for constant in table.constants.iter().filter(|c| c.kind.shape == Shape::Function) {
        let name = constant.callback.as_deref().expect("a function kind names its callback");
        let small = name.trim_end_matches("_c");
        let callback = table.callbacks.iter().find(|c| c.name == small).expect("the table's tests look for it");
        let is_large = small != name;
        let wanted = if dialect == Dialect::New { is_new_callback(callback) } else { !is_large };
        if wanted {
            render_callback(out, &constant.name, callback, dialect, is_large);
        }
    }
    line(out, format_args!("  END INTERFACE"));
}
