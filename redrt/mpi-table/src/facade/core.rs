//! The table by which a façade finds the functions of redrt's library. A lookup by name would find the façade's own,
//! which have the same names.

use super::{functions, line};
use crate::exports::identifier;
use crate::kind::Shape;
use crate::parse::{Direction, Function, Parameter, Table};

/// Functions of redrt's library that are not of the standard, in the order of the fields of `abi_facade::core::Own`.
pub(super) const OWN: [&str; 7] = [
    "redrt_create_op",
    "redrt_create_errhandler",
    "redrt_peers",
    "redrt_call_op_by",
    "redrt_call_errhandler_by",
    "redrt_exchange_keyval_state",
    "redrt_on_exception",
];

/// First word of the table: another layout has another number.
fn layout(table: &Table) -> u64 {
    // FNV-1a over the declarations: the two libraries may be of different builds, and a hash suffices to tell.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let standard = functions(table).map(|(function, large)| field(function, large));
    for declaration in standard.chain(OWN.map(str::to_owned)) {
        for byte in declaration.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash
}

/// The table itself, for redrt's library. Functions outside of the standard come last.
#[must_use]
pub fn render_core_table(table: &Table) -> String {
    let mut entries = Vec::new();
    for (function, large) in functions(table) {
        // A reference by exported name would be linked to the façade's function.
        entries.push(format!("call_{}{}", function.snake_name(), if large { "_c" } else { "" }));
    }
    entries.extend(OWN.map(str::to_owned));
    let mut out = String::new();
    out.push_str("#[unsafe(no_mangle)]\n#[allow(non_upper_case_globals)]\n");
    line(
        &mut out,
        format_args!(
            "pub static redrt_functions: CoreTable<{}> = CoreTable {{ layout: {}, functions: [",
            entries.len(),
            layout(table)
        ),
    );
    for entry in &entries {
        line(&mut out, format_args!("    {entry} as *const (),"));
    }
    out.push_str("] };\n");
    out
}

/// The table's type, for façades.
#[must_use]
pub fn render_core_type(table: &Table) -> String {
    let mut out = String::new();
    line(&mut out, format_args!("pub const LAYOUT: u64 = {};", layout(table)));
    out.push_str("#[repr(C)]\npub struct Functions {\npub layout: u64,\n");
    for (function, large) in functions(table) {
        line(&mut out, format_args!("{},", field(function, large)));
    }
    out.push_str("pub own: Own,\n}\n");
    out
}

fn field(function: &Function, large: bool) -> String {
    let parameters: Vec<_> = function.parameters(large).map(|p| parameter_type(p, large)).collect();
    let returns =
        function.returns.map_or("c_int", |kind| if kind.shape == Shape::Handle { "usize" } else { kind.rust });
    format!(
        "pub {}: unsafe extern \"C-unwind\" fn({}) -> {returns}",
        field_name(function, large),
        parameters.join(", ")
    )
}

/// `send`, or `send_c` for the large-count twin.
pub(super) fn field_name(function: &Function, large: bool) -> String {
    format!("{}{}", identifier(&function.snake_name()), if large { "_c" } else { "" })
}

fn parameter_type(parameter: &Parameter, large: bool) -> String {
    let kind = parameter.kind;
    let rust = match kind.shape {
        Shape::Handle | Shape::Function => "usize",
        _ if kind.rust == "ToolHandle" => "usize",
        Shape::Pointee if kind.rust == "Status" => "CoreStatus",
        _ => kind.rust_type(large),
    };
    let incoming = parameter.direction == Direction::In;
    match kind.shape {
        Shape::Function => rust.to_owned(),
        Shape::Raw if kind.name == "buffer" && incoming => "*const c_void".to_owned(),
        Shape::Raw => rust.to_owned(),
        Shape::Scalar | Shape::Handle | Shape::Count if incoming && !parameter.array => rust.to_owned(),
        _ if incoming => format!("*const {rust}"),
        _ => format!("*mut {rust}"),
    }
}
