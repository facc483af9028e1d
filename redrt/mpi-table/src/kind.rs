//! Kinds of parameters: the types of each in C and in Rust, in a function and in its large-count twin.

/// The way to pass a parameter of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// By value going in, by pointer coming out.
    Scalar,
    /// By value, with `NULL` and predefined values; the object is behind it.
    Handle,
    /// A count or displacement: `int` or wider, widened for the implementation.
    Count,
    /// Always by pointer, also going in.
    Pointee,
    /// A pointer in itself, passed on unchanged.
    Raw,
    /// The address of a function of the program.
    Function,
}

/// One row of the table of kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParameterKind {
    /// Name in the table files.
    pub name: &'static str,
    /// Way to pass the parameter.
    pub shape: Shape,
    /// C type in a function.
    pub c: &'static str,
    /// C type in the large-count twin.
    pub c_large: &'static str,
    /// Rust type in a function.
    pub rust: &'static str,
    /// Rust type in the large-count twin.
    pub rust_large: &'static str,
}

impl ParameterKind {
    /// The kind of this name, if there is one.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// C type in the function or its twin.
    #[must_use]
    pub fn c_type(&self, large: bool) -> &'static str {
        if large { self.c_large } else { self.c }
    }

    /// Rust type in the function or its twin.
    #[must_use]
    pub fn rust_type(&self, large: bool) -> &'static str {
        if large { self.rust_large } else { self.rust }
    }
}

const fn same(name: &'static str, shape: Shape, c: &'static str, rust: &'static str) -> ParameterKind {
    ParameterKind { name, shape, c, c_large: c, rust, rust_large: rust }
}

const fn twin(
    name: &'static str,
    small: (&'static str, &'static str),
    large: (&'static str, &'static str),
) -> ParameterKind {
    ParameterKind { name, shape: Shape::Count, c: small.0, c_large: large.0, rust: small.1, rust_large: large.1 }
}

/// Handles that families have and the standard lacks: their kind, the name in the families' files, and redrt's value,
/// which is below those that it gives out.
pub(crate) const OWN_HANDLES: &[(&str, &str, i64)] = &[("errhandler", "ERRORS_THROW_EXCEPTIONS", 0xffe)];

/// Every kind that the table files use.
pub const KINDS: &[ParameterKind] = &[
    twin("count", ("int", "c_int"), ("MPI_Count", "Count")),
    twin("disp", ("int", "c_int"), ("MPI_Aint", "Aint")),
    twin("extent", ("MPI_Aint", "Aint"), ("MPI_Count", "Count")),
    same("int", Shape::Scalar, "int", "c_int"),
    same("rank", Shape::Scalar, "int", "c_int"),
    same("tag", Shape::Scalar, "int", "c_int"),
    same("logical", Shape::Scalar, "int", "c_int"),
    same("keyval", Shape::Scalar, "int", "c_int"),
    same("error", Shape::Scalar, "int", "c_int"),
    // Counts from 1 in Fortran.
    same("index", Shape::Scalar, "int", "c_int"),
    // The length of an outgoing string with its NUL, which Fortran's strings do not have.
    same("length", Shape::Scalar, "int", "c_int"),
    // Integers that stand for a constant, with different values in different ABIs (`facade`).
    same("thread", Shape::Scalar, "int", "c_int"),
    same("comparison", Shape::Scalar, "int", "c_int"),
    same("topology", Shape::Scalar, "int", "c_int"),
    same("split_type", Shape::Scalar, "int", "c_int"),
    same("order", Shape::Scalar, "int", "c_int"),
    same("distribution", Shape::Scalar, "int", "c_int"),
    same("darg", Shape::Scalar, "int", "c_int"),
    same("combiner", Shape::Scalar, "int", "c_int"),
    same("typeclass", Shape::Scalar, "int", "c_int"),
    same("lock_type", Shape::Scalar, "int", "c_int"),
    same("assert", Shape::Scalar, "int", "c_int"),
    same("amode", Shape::Scalar, "int", "c_int"),
    same("whence", Shape::Scalar, "int", "c_int"),
    same("verbosity", Shape::Scalar, "int", "c_int"),
    same("bind", Shape::Scalar, "int", "c_int"),
    same("scope", Shape::Scalar, "int", "c_int"),
    same("pvar_class", Shape::Scalar, "int", "c_int"),
    same("view_disp", Shape::Scalar, "MPI_Offset", "Offset"),
    same("aint", Shape::Scalar, "MPI_Aint", "Aint"),
    same("offset", Shape::Scalar, "MPI_Offset", "Offset"),
    same("mpicount", Shape::Scalar, "MPI_Count", "Count"),
    same("fint", Shape::Scalar, "MPI_Fint", "Fint"),
    same("double", Shape::Scalar, "double", "f64"),
    same("void", Shape::Scalar, "void", "()"),
    same("comm", Shape::Handle, "MPI_Comm", "CommHandle"),
    same("datatype", Shape::Handle, "MPI_Datatype", "DatatypeHandle"),
    same("errhandler", Shape::Handle, "MPI_Errhandler", "ErrhandlerHandle"),
    same("file", Shape::Handle, "MPI_File", "FileHandle"),
    same("group", Shape::Handle, "MPI_Group", "GroupHandle"),
    same("info", Shape::Handle, "MPI_Info", "InfoHandle"),
    same("message", Shape::Handle, "MPI_Message", "MessageHandle"),
    same("op", Shape::Handle, "MPI_Op", "OpHandle"),
    same("request", Shape::Handle, "MPI_Request", "RequestHandle"),
    same("session", Shape::Handle, "MPI_Session", "SessionHandle"),
    same("win", Shape::Handle, "MPI_Win", "WinHandle"),
    same("status", Shape::Pointee, "MPI_Status", "Status"),
    same("fstatus", Shape::Pointee, "MPI_Fint", "Fint"),
    same("f08status", Shape::Pointee, "MPI_F08_status", "Status"),
    same("string", Shape::Pointee, "char", "c_char"),
    same("buffer", Shape::Raw, "void *", "*mut c_void"),
    same("address", Shape::Raw, "void *", "*mut c_void"),
    // Addresses, by their form in Fortran: a buffer; an outgoing pointer; a pointer for which the modules without types
    // of their own have no place; the value of an attribute; the extra state of a callback.
    same("choice", Shape::Raw, "void *", "*mut c_void"),
    same("base", Shape::Raw, "void *", "*mut c_void"),
    same("detached", Shape::Raw, "void *", "*mut c_void"),
    same("attribute", Shape::Raw, "void *", "*mut c_void"),
    same("attribute_int", Shape::Raw, "void *", "*mut c_void"),
    same("state", Shape::Raw, "void *", "*mut c_void"),
    same("state_int", Shape::Raw, "void *", "*mut c_void"),
    same("argc", Shape::Raw, "int *", "*mut c_int"),
    same("argv", Shape::Raw, "char ***", "*mut *mut *mut c_char"),
    // The arguments of main, which Fortran does not have.
    same("env_count", Shape::Scalar, "int", "c_int"),
    same("env", Shape::Raw, "char **", "*mut *mut c_char"),
    same("strings", Shape::Raw, "char **", "*mut *mut c_char"),
    same("strings2", Shape::Raw, "char ***", "*mut *mut *mut c_char"),
    same("ints", Shape::Raw, "int *", "*mut c_int"),
    same("triplet", Shape::Scalar, "int", "[c_int; 3]"),
    same("function", Shape::Function, "", "Callback"),
    same("functions", Shape::Function, "", "Callback"),
    same("tool_enum", Shape::Scalar, "MPI_T_enum", "ToolHandle"),
    same("tool_cvar", Shape::Scalar, "MPI_T_cvar_handle", "ToolHandle"),
    same("tool_pvar", Shape::Scalar, "MPI_T_pvar_handle", "ToolHandle"),
    same("tool_pvar_session", Shape::Scalar, "MPI_T_pvar_session", "ToolHandle"),
    same("tool_registration", Shape::Scalar, "MPI_T_event_registration", "ToolHandle"),
    same("tool_instance", Shape::Scalar, "MPI_T_event_instance", "ToolHandle"),
    same("tool_safety", Shape::Scalar, "MPI_T_cb_safety", "c_int"),
    same("tool_order", Shape::Scalar, "MPI_T_source_order", "c_int"),
];
