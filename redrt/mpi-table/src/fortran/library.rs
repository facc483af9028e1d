//! The libraries of procedures: redrt's own, and those of families whose programs a façade serves.

use super::{Dialect, Procedure, line};
use crate::facade::{ADDRESSES, Facts, Family};
use crate::parse::{Function, Table};

/// A library of procedures for Fortran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library {
    /// Over the standard ABI.
    Standard,
    /// Over a façade.
    Facade(Family),
}

/// Keys of predefined attributes, and the C type of their values (`fortran_binding::Predefined`).
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
    /// The dialects that the library serves.
    pub(super) fn dialects(self) -> &'static [Dialect] {
        match self {
            Self::Standard => &[Dialect::Old, Dialect::New],
            Self::Facade(_) => &[Dialect::Old],
        }
    }

    /// The function to call in place of the C function of the same name: a façade calls procedures of reductions and
    /// error handlers with Fortran's handles.
    pub(super) fn instead(self, function: &Function) -> Option<String> {
        (self != Self::Standard && function.takes_stateless_callback())
            .then(|| format!("redrt_fortran_{}", function.snake_name()))
    }

    /// A further symbol of a procedure. Open MPI's library behind its module `mpi_f08` calls `ompi_..._f`.
    pub(super) fn further_symbol(self, procedure: Procedure<'_>, prefix: &str) -> Option<String> {
        let base = procedure.name(prefix).to_lowercase().replacen("mpi_", "ompi_", 1);
        (self == Self::Facade(Family::OpenMpi)).then(|| format!("{base}_f"))
    }

    /// The value of a constant in C.
    fn value(self, table: &Table, name: &str) -> Option<i64> {
        match self {
            Self::Standard => table.constants.iter().find(|c| c.name == name).map(|c| c.value),
            Self::Facade(family) => Facts::of(family).value(name),
        }
    }
}

/// Facts about their library for the procedures (`fortran_binding::Binding`).
///
/// # Panics
/// When a family lacks a constant that all families have.
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
        // The last bits of MPICH's keys are the language that they are for.
        let fortran = if library == Library::Facade(Family::Mpich) { key + 1 } else { key };
        let kind = format!("fortran_binding::Predefined::{kind}");
        line(&mut out, format_args!("        fortran_binding::Key {{ fortran: {fortran}, c: {key}, value: {kind} }},"));
    }
    out +=
        "    ];\n\n    #[inline]\n    fn sentinel(address: usize) -> Option<fortran_binding::sentinels::Sentinel> {\n";
    out += "        sentinel(address)\n    }\n}\n";
    out
}

/// The types of `MPI_SIZEOF`: the names of its procedures in Open MPI's module `mpi` and in MPICH's, if it is there,
/// and their sizes in bytes.
const SIZES: &[(&str, &str, u32)] = &[
    ("character", "ch", 1),
    ("logical", "l", 4),
    ("int8", "i1", 1),
    ("int16", "i2", 2),
    ("int32", "i", 4),
    ("int64", "i8", 8),
    ("real32", "r", 4),
    ("real64", "d", 8),
    ("real128", "", 16),
    ("complex32", "cx", 8),
    ("complex64", "", 16),
    ("complex128", "", 32),
];
/// The highest rank of an array (Fortran 2018, section 5.4.6).
const RANK_MAX: u32 = 15;

/// The symbols of `MPI_SIZEOF` for a type: for each shape one in Open MPI, for scalars and for vectors in MPICH.
fn size_symbols(family: Family, open_mpi: &str, mpich: &str) -> Vec<String> {
    match family {
        Family::Mpich if mpich.is_empty() => Vec::new(),
        Family::Mpich => ["", "v"].iter().map(|shape| format!("__mpi_sizeofs_MOD_mpi_sizeof_{mpich}{shape}")).collect(),
        Family::OpenMpi => {
            let shapes = (1..=RANK_MAX).map(|rank| format!("r{rank}")).chain(["scalar".to_owned()]);
            let both =
                shapes.flat_map(|shape| ["", "p"].map(|prefix| format!("{prefix}mpi_sizeof_{open_mpi}_{shape}_")));
            both.collect()
        }
    }
}

/// Procedures beside those of the standard's C functions: only the compiler calls them.
pub(super) fn render_own(out: &mut String, library: Library) {
    let Library::Facade(family) = library else { return };
    let further = match family {
        Family::Mpich => &[][..],
        Family::OpenMpi => &["ompi_f_sync_reg_f", "pompi_f_sync_reg_f"],
    };
    for name in ["mpi_f_sync_reg_", "pmpi_f_sync_reg_"].iter().chain(further) {
        out.push_str("#[unsafe(no_mangle)]\n");
        line(out, format_args!("pub extern \"C\" fn {name}(_buffer: *const c_void) {{}}"));
    }
    for (open_mpi, mpich, size) in SIZES {
        for name in size_symbols(family, open_mpi, mpich) {
            out.push_str("#[unsafe(no_mangle)]\n");
            let arguments = "_x: *const c_void, size: *mut c_int, ierror: *mut c_int";
            line(out, format_args!("pub unsafe extern \"C\" fn {name}({arguments}) {{"));
            line(out, format_args!("// SAFETY: arguments by reference.\nunsafe {{"));
            line(out, format_args!("*size = {size};\ngive_error(ierror, 0);\n}}\n}}"));
        }
    }
}
