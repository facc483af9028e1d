//! Declarations in Rust of the C functions, for callers outside of the library.

use crate::kind::Shape;
use crate::parse::{Direction, Function, Parameter};

/// The declaration of a C function in Rust.
pub(super) fn declaration(name: &str, function: &Function, large: bool) -> String {
    let parameters = function.parameters(large).map(|p| format!("{}: {}", rust_name(p), type_of(p, large)));
    let variadic = function.variadic.then(|| "...".to_owned());
    let parameters: Vec<_> = parameters.chain(variadic).collect();
    let returns = function.returns.map_or("c_int", |kind| kind.rust);
    format!("fn {name}({}) -> {returns};", parameters.join(", "))
}

/// The name of a parameter, changed where it is a keyword of Rust.
pub(super) fn rust_name(parameter: &Parameter) -> String {
    crate::exports::identifier(&parameter.name)
}

/// Handles have a type for each kind; callbacks are plain addresses.
fn type_of(parameter: &Parameter, large: bool) -> String {
    let incoming = parameter.direction == Direction::In;
    let value = value_type(parameter, large);
    match parameter.kind.shape {
        Shape::Function => "usize".to_owned(),
        Shape::Raw if parameter.kind.rust == "*mut c_void" => "*mut c_void".to_owned(),
        Shape::Raw => parameter.kind.rust.to_owned(),
        Shape::Scalar | Shape::Handle | Shape::Count if incoming && !parameter.array => value,
        _ if incoming => format!("*const {value}"),
        _ => format!("*mut {value}"),
    }
}

/// The type of one element.
pub(super) fn value_type(parameter: &Parameter, large: bool) -> String {
    match parameter.kind.shape {
        Shape::Handle => crate::facade::type_name(parameter.kind.name),
        _ if matches!(parameter.kind.name, "fstatus" | "f08status") => "Status".to_owned(),
        _ => parameter.kind.rust_type(large).to_owned(),
    }
}
