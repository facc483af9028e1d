//! The libraries of procedures: redrt's own, and those of families whose programs a façade serves.

use super::{Dialect, Procedure, line};
use crate::facade::{ADDRESSES, Facts, Family};
use crate::kind::Shape;
use crate::parse::{Function, Table};

/// A library of procedures for Fortran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library {
    /// Over the standard ABI.
    Standard,
    /// Over a façade.
    Facade(Family),
}

/// Keys of predefined attributes, and whether C has an integer under them (false: the value itself, or its address).
const KEYS: &[(&str, &str)] = &[
    ("MPI_TAG_UB", "Int"),
    ("MPI_IO", "Int"),
    ("MPI_HOST", "Int"),
    ("MPI_WTIME_IS_GLOBAL", "Int"),
    ("MPI_APPNUM", "Int"),
    ("MPI_LASTUSEDCODE", "Int"),
    ("MPI_UNIVERSE_SIZE", "Int"),
    ("MPI_WIN_BASE", "Address"),
    ("MPI_WIN_SIZE", "Size"),
    ("MPI_WIN_DISP_UNIT", "Int"),
    ("MPI_WIN_CREATE_FLAVOR", "Int"),
    ("MPI_WIN_MODEL", "Int"),
];

impl Library {
    /// The interfaces that it serves.
    pub(super) fn dialects(self) -> &'static [Dialect] {
        match self {
            Self::Standard => &[Dialect::Old, Dialect::New],
            Self::Facade(_) => &[Dialect::Old],
        }
    }

    /// The function that takes the place of the C function of the same name: a façade calls procedures of reductions and
    /// error handlers with handles as Fortran has them.
    pub(super) fn instead(self, function: &Function) -> Option<String> {
        (self != Self::Standard && takes_stateless(function))
            .then(|| format!("redrt_fortran_{}", function.snake_name()))
    }

    /// What else the linker knows a procedure by. Open MPI's library behind its module `mpi_f08` calls `ompi_..._f`.
    pub(super) fn further_symbol(self, procedure: Procedure<'_>, prefix: &str) -> Option<String> {
        let base = procedure.name(prefix).to_lowercase().replacen("mpi_", "ompi_", 1);
        (self == Self::Facade(Family::OpenMpi)).then(|| format!("{base}_f"))
    }

    /// What a constant is in C.
    fn value(self, table: &Table, name: &str) -> Option<i64> {
        match self {
            Self::Standard => table.constants.iter().find(|c| c.name == name).map(|c| c.value),
            Self::Facade(family) => Facts::of(family).value(name),
        }
    }
}

/// Whether the function takes a callback that has no state.
pub(crate) fn takes_stateless(function: &Function) -> bool {
    let functions = function.parameters.iter().filter(|p| p.kind.shape == Shape::Function);
    let stateless = |name: &str| name == "MPI_User_function" || name.ends_with("_errhandler_function");
    functions.filter_map(|p| p.callback.as_deref()).any(stateless)
}

/// What the procedures need to know of their library (`fortran_binding::Binding`).
///
/// # Panics
/// When a family lacks what every family has.
#[must_use]
pub fn render_fortran_binding(table: &Table, library: Library) -> String {
    let mut out = "/// The ABI that the procedures are bound to.\n#[derive(Debug)]\npub struct Own;\n\n".to_owned();
    let value = |name: &str| library.value(table, name);
    let known = |name: &str| value(name).unwrap_or_else(|| panic!("there is no {name}"));
    let address = |name: &str| {
        let missing = ADDRESSES.iter().find(|(known, _)| *known == name).expect("an address").1;
        value(name).unwrap_or(missing)
    };
    out += "impl fortran_binding::Binding for Own {\n    type Status = Status;\n";
    line(&mut out, format_args!("    const UNDEFINED: std::ffi::c_int = {};", known("MPI_UNDEFINED")));
    line(&mut out, format_args!("    const ERR_IN_STATUS: std::ffi::c_int = {};", known("MPI_ERR_IN_STATUS")));
    out += "    const ADDRESSES: fortran_binding::sentinels::Addresses = fortran_binding::sentinels::Addresses {\n";
    for name in ["in_place", "buffer_automatic", "status_ignore", "unweighted", "weights_empty"] {
        let value = address(&format!("MPI_{}", name.to_uppercase()));
        line(&mut out, format_args!("        {name}: {value}_isize as usize,"));
    }
    out += "    };\n    const KEYS: &'static [fortran_binding::Key] = &[\n";
    for (name, kind) in KEYS {
        let Some(key) = value(name) else { continue };
        // MPICH's keys tell by their last bits for which language they are.
        let fortran = if library == Library::Facade(Family::Mpich) { key + 1 } else { key };
        let kind = format!("fortran_binding::Predefined::{kind}");
        line(&mut out, format_args!("        fortran_binding::Key {{ fortran: {fortran}, c: {key}, value: {kind} }},"));
    }
    out +=
        "    ];\n\n    #[inline]\n    fn sentinel(address: usize) -> Option<fortran_binding::sentinels::Sentinel> {\n";
    out += "        sentinel(address)\n    }\n}\n";
    out
}
