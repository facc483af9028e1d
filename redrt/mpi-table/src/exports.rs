//! Renders the Rust side: the constants, and one `extern "C"` function for every name of the interface.
//!
//! An export does three things: it refuses calls outside the initialized phase, passes its arguments, widened, to the
//! implementation, and passes an error to the error handler. Both twins call the same implementation.

use crate::kind::{OWN_HANDLES, ParameterKind, Shape};
use crate::parse::{Bound, Constant, Direction, Function, Parameter, Table};
use std::fmt::Write;

/// The constants as Rust: integers and addresses under their C names, predefined handles as associated constants of the
/// handle types, handles that only other families' programs have, and the names of datatypes and error classes.
#[must_use]
pub fn render_constants(table: &Table) -> String {
    let mut out = String::new();
    for constant in &table.constants {
        render_constant(&mut out, constant);
    }
    for (kind, name, value) in OWN_HANDLES {
        let rust = ParameterKind::find(kind).expect("a kind of handles").rust;
        line(&mut out, format_args!("impl {rust} {{ pub const {name}: Self = Self({value}); }}"));
    }
    names(&mut out, table, "DATATYPE_NAMES", |c| c.kind.name == "datatype");
    names(&mut out, table, "ERROR_NAMES", is_error_class);
    out
}

fn is_error_class(constant: &Constant) -> bool {
    let name = &constant.name;
    let class = name.starts_with("MPI_ERR_") || name.starts_with("MPI_T_ERR_") || name == "MPI_SUCCESS";
    class && constant.kind.name == "int" && name != "MPI_ERR_LASTCODE"
}

fn names(out: &mut String, table: &Table, list: &str, wanted: impl Fn(&Constant) -> bool) {
    line(out, format_args!("pub const {list}: &[(&str, c_int)] = &["));
    for constant in table.constants.iter().filter(|c| wanted(c)) {
        line(out, format_args!("    (\"{}\", {}),", constant.name, constant.value));
    }
    out.push_str("];\n");
}

fn render_constant(out: &mut String, constant: &Constant) {
    let Constant { name, kind, value, .. } = constant;
    let rust = kind.rust;
    match kind.shape {
        Shape::Handle => {
            let short = short_handle_name(name);
            line(out, format_args!("impl {rust} {{ pub const {short}: Self = Self({value}); }}"));
        }
        Shape::Raw => line(out, format_args!("pub const {name}: {rust} = std::ptr::without_provenance_mut({value});")),
        Shape::Pointee => {
            line(out, format_args!("pub const {name}: *mut {rust} = std::ptr::without_provenance_mut({value});"));
        }
        Shape::Function => line(out, format_args!("pub const {name}: Callback = Callback({value});")),
        _ if rust == "ToolHandle" => line(out, format_args!("pub const {name}: ToolHandle = ToolHandle({value});")),
        _ => line(out, format_args!("pub const {name}: {rust} = {value};")),
    }
}

/// `MPI_COMM_WORLD` is `CommHandle::WORLD`; `MPI_2INT`, which is no name without the underscore,
/// `DatatypeHandle::_2INT`.
fn short_handle_name(name: &str) -> String {
    let name = name.trim_start_matches("MPI_");
    let prefixes = ["COMM_", "GROUP_", "INFO_", "MESSAGE_", "REQUEST_", "FILE_", "SESSION_", "WIN_", "ERRHANDLER_"];
    let short = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    match short {
        "DATATYPE_NULL" | "OP_NULL" => "NULL".to_owned(),
        digit if digit.starts_with(|c: char| c.is_ascii_digit()) => format!("_{digit}"),
        other => other.to_owned(),
    }
}

/// The `extern "C"` functions.
#[must_use]
pub fn render_exports(table: &Table, bound: &Bound) -> String {
    let mut out = String::new();
    for function in &table.functions {
        for large in [false, true].into_iter().take(1 + usize::from(function.twin)) {
            render_function(&mut out, function, large, bound.contains(function));
        }
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}

fn render_function(out: &mut String, function: &Function, large: bool, bound: bool) {
    let suffix = if large { "_c" } else { "" };
    let name = function.name.trim_start_matches("MPI_");
    let inner = format!("call_{}{suffix}", function.snake_name());
    let parameters: Vec<_> = function.parameters(large).map(|p| declaration(p, large)).collect();
    let parameters = parameters.join(", ");
    let arguments: Vec<_> = function.parameters(large).map(|p| identifier(&p.name)).collect();
    let arguments = arguments.join(", ");
    let returns = match function.returns {
        Some(kind) => kind.rust,
        None => "c_int",
    };
    line(out, format_args!("pub unsafe extern \"C-unwind\" fn {inner}({parameters}) -> {returns} {{"));
    line(out, format_args!("{}", body(function, large, bound)));
    out.push_str("}\n");
    for prefix in ["MPI_", "PMPI_"] {
        out.push_str("#[unsafe(no_mangle)]\n");
        line(out, format_args!("pub unsafe extern \"C\" fn {prefix}{name}{suffix}({parameters}) -> {returns} {{"));
        line(
            out,
            format_args!(
                "    // SAFETY: the same function under its exported name.\n    unsafe {{ {inner}({arguments}) }}\n}}"
            ),
        );
    }
}

pub(crate) fn identifier(name: &str) -> String {
    if matches!(name, "type" | "ref" | "fn" | "in" | "where" | "move" | "use") {
        format!("r#{name}")
    } else {
        name.to_owned()
    }
}

fn declaration(parameter: &Parameter, large: bool) -> String {
    let name = identifier(&parameter.name);
    let rust = parameter.kind.rust_type(large);
    let incoming = parameter.direction == Direction::In;
    match parameter.kind.shape {
        Shape::Function => format!("{name}: {rust}"),
        Shape::Raw if parameter.kind.name == "buffer" && incoming => format!("{name}: *const c_void"),
        Shape::Raw => format!("{name}: {rust}"),
        Shape::Scalar | Shape::Handle | Shape::Count if incoming && !parameter.array => format!("{name}: {rust}"),
        _ if incoming => format!("{name}: *const {rust}"),
        _ => format!("{name}: *mut {rust}"),
    }
}

/// The implementation's argument for one parameter.
fn argument(parameter: &Parameter, large: bool) -> String {
    let name = identifier(&parameter.name);
    let incoming = parameter.direction == Direction::In;
    if parameter.large_only && !large {
        return match parameter.kind.shape {
            Shape::Count if incoming => "0".to_owned(),
            Shape::Count => "CountOut::null()".to_owned(),
            _ => "Output::null().into()".to_owned(),
        };
    }
    let width = if parameter.kind.rust_type(large) == "c_int" { "narrow" } else { "wide" };
    match parameter.kind.shape {
        Shape::Count if incoming && parameter.array => format!("Counts::{width}({name}.cast())"),
        Shape::Count if incoming => format!("{name} as i64"),
        Shape::Count => format!("CountOut::{width}({name}.cast())"),
        Shape::Function | Shape::Raw => name,
        Shape::Scalar | Shape::Handle if incoming && !parameter.array => name,
        _ if incoming => format!("Input::new({name}).into()"),
        _ => format!("Output::new({name}).into()"),
    }
}

fn body(function: &Function, large: bool, bound: bool) -> String {
    if function.module == "convert" {
        return conversion(function);
    }
    let mut arguments: Vec<_> = function.parameters.iter().map(|p| argument(p, large)).collect();
    if function.wide {
        arguments.push(large.to_string());
    }
    let name = format!("{}{}", function.name, if large { "_c" } else { "" });
    let scope = scope(function);
    let mut call = format!("crate::api::{}::{}({})", function.module, function.snake_name(), arguments.join(", "));
    if function.collective {
        call = format!("crate::api::check::check_function(\"{}\", {scope}).and_then(|()| {call})", function.name);
    }
    if function.returns.is_some() {
        return format!("    // SAFETY: the arguments are those of the C call.\n    unsafe {{ {call} }}");
    }
    assert!(bound, "{name} is not bound to an implementation");
    let mut text = String::new();
    if !function.early {
        text += &format!("    if !redrt_abi::phase::is_active() {{ return inactive(\"{name}\"); }}\n");
    }
    let kind = call_kind(function);
    text += &format!("    let _inside = redrt_runtime::threads::enter(CallKind::{kind});\n");
    text += "    // SAFETY: the pointers are those of the C call, which must be valid as MPI says.\n";
    text += &format!("    match unsafe {{ {call} }} {{\n        Ok(()) => MPI_SUCCESS,\n");
    // MPI-5.0 section 15.3: the tool interface never invokes an error handler.
    let handled = match &*function.module {
        "tool" => "error.code()".to_owned(),
        _ => format!("raise(\"{name}\", error, {scope})"),
    };
    text + &format!("        Err(error) => {handled},\n    }}")
}

/// The variant of `redrt_wire::profile::CallKind` under which the call's time is counted.
fn call_kind(function: &Function) -> &'static str {
    match function.name.trim_start_matches("MPI_") {
        "Send" | "Bsend" | "Rsend" | "Ssend" => "Send",
        "Isend" | "Ibsend" | "Irsend" | "Issend" | "Isendrecv" | "Isendrecv_replace" | "Start" | "Startall" => "Isend",
        "Recv" | "Mrecv" | "Sendrecv" | "Sendrecv_replace" => "Recv",
        "Irecv" | "Imrecv" => "Irecv",
        "Wait" | "Waitall" | "Waitany" | "Waitsome" | "Test" | "Testall" | "Testany" | "Testsome" | "Probe"
        | "Iprobe" | "Mprobe" | "Improbe" => "Wait",
        _ if function.collective || function.module == "coll" => "Collective",
        _ => "Other",
    }
}

/// `MPI_X_toint`, `_c2f`: the value of the handle; `_fromint`, `_f2c`: the handle of that value.
fn conversion(function: &Function) -> String {
    let parameter = identifier(&function.parameters[0].name);
    let returns = function.returns.expect("a conversion returns its result").rust;
    if function.parameters[0].kind.shape == Shape::Handle {
        format!("    {parameter}.to_int()")
    } else {
        format!("    {returns}::from_int({parameter})")
    }
}

fn scope(function: &Function) -> String {
    let Some(parameter) = function.scope() else { return "Scope::Default".to_owned() };
    let variant = match parameter.kind.name {
        "comm" => "Comm",
        "win" => "Win",
        "file" => "File",
        _ => "Session",
    };
    if parameter.direction == Direction::In {
        format!("Scope::{variant}({})", parameter.name)
    } else {
        format!("Scope::{variant}(peek({}))", parameter.name)
    }
}
