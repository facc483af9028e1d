//! The procedures that Fortran calls, as Rust: each takes its arguments by reference, calls the C function, and returns
//! its results.
//!
//! Further work on arguments is in functions of the library's own (`redrt/redrt-fortran/src`); this module only decides
//! which of them an argument needs.

use super::extern_c::{self, rust_name, value_type};
use super::library::{Library, render_own};
use super::{Dialect, PREFIXES, Procedure, functions, keeps_buffers, line, needs_large, procedures};
use crate::facade::type_name;
use crate::kind::Shape;
use crate::parse::{Direction, Function, Parameter, Table};

/// The declarations of the C functions and all procedures of a library.
#[must_use]
pub fn render_fortran_library(table: &Table, library: Library) -> String {
    let mut out = "unsafe extern \"C\" {\n".to_owned();
    for function in functions(table, Dialect::Old).filter(|f| !copies_status(f)) {
        let has_large = needs_large(function) && library.dialects().contains(&Dialect::New);
        for large in [false, true].into_iter().take(1 + usize::from(has_large)) {
            let names = PREFIXES.map(|prefix| Procedure { function, dialect: Dialect::Old, large }.c_name(prefix));
            let names = library.instead(function).map_or(names.to_vec(), |instead| vec![instead]);
            for name in names {
                line(&mut out, format_args!("    {}", extern_c::declaration(&name, function, large)));
            }
        }
    }
    out += "}\n";
    for dialect in library.dialects() {
        for procedure in procedures(table, *dialect) {
            for prefix in PREFIXES {
                render_procedure(&mut out, procedure, prefix, library);
            }
        }
    }
    render_own(&mut out, library);
    out
}

/// True when the function only copies a status from one of Fortran's forms to the other; both have the same layout.
fn copies_status(function: &Function) -> bool {
    function.parameters.iter().all(|p| matches!(p.kind.name, "fstatus" | "f08status"))
        && !function.parameters.is_empty()
}

/// The body of a procedure, collected argument by argument.
#[derive(Default)]
struct Shim {
    /// Parameters, and the lengths of strings, which compilers append.
    parameters: Vec<String>,
    lengths: Vec<String>,
    before: Vec<String>,
    arguments: Vec<String>,
    after: Vec<String>,
}

fn render_procedure(out: &mut String, procedure: Procedure<'_>, prefix: &str, library: Library) {
    let mut shim = Shim::default();
    let c_name = procedure.c_name(prefix);
    for parameter in procedure.parameters() {
        shim.add(procedure, parameter, &c_name);
    }
    if procedure.has_error() {
        shim.parameters.push("ierror: *mut c_int".to_owned());
        shim.after.push("give_error(ierror, code);".to_owned());
    }
    shim.parameters.append(&mut shim.lengths);
    let returns = procedure.function.returns.map_or(String::new(), |kind| format!(" -> {}", kind.rust));
    // These two are additions to the standard ABI, so a library of that ABI may lack them.
    let instead = library.instead(procedure.function);
    let callee = if copies_status(procedure.function) { "copy_status" } else { instead.as_deref().unwrap_or(&c_name) };
    let call = format!("{callee}({})", shim.arguments.join(", "));
    let body = match procedure.function.returns {
        Some(_) => call,
        None => format!("{}\nlet code = {call};\n{}", shim.before.join("\n"), shim.after.join("\n")),
    };
    let parameters = shim.parameters.join(", ");
    let mut names = vec![procedure.symbol(prefix)];
    names.extend(library.further_symbol(procedure, prefix));
    if procedure.dialect == Dialect::Old && procedure.parameters().any(|p| p.kind.name == "base") {
        // The same address, declared as a TYPE(C_PTR).
        names.push(format!("{}_cptr_", procedure.name(prefix).to_lowercase()));
    }
    for name in names {
        out.push_str("#[unsafe(no_mangle)]\n");
        line(out, format_args!("pub unsafe extern \"C\" fn {name}({parameters}){returns} {{"));
        line(out, format_args!("// SAFETY: the arguments are those of the Fortran call, as its interface has them."));
        line(out, format_args!("unsafe {{\n{body}\n}}\n}}"));
    }
}

impl Shim {
    fn add(&mut self, procedure: Procedure<'_>, parameter: &Parameter, c_name: &str) {
        let (name, large) = (rust_name(parameter), procedure.large);
        let incoming = parameter.direction == Direction::In;
        match parameter.kind.name {
            "env_count" => self.arguments.push("0".to_owned()),
            "argc" | "argv" | "env" => self.arguments.push("std::ptr::null_mut()".to_owned()),
            "buffer" | "choice" => self.choice(procedure, parameter, c_name),
            "base" => self.take(&name, "*mut Aint", format!("{name}.cast()")),
            "detached" if procedure.dialect == Dialect::New => {
                self.take(&name, "*mut Aint", format!("{name}.cast()"));
            }
            "detached" => {
                self.before.push(format!("let mut {name}_unused = std::ptr::null_mut::<c_void>();"));
                self.take(&name, "*mut c_void", format!("(&raw mut {name}_unused).cast()"));
            }
            "attribute" | "attribute_int" => self.attribute(procedure.function, parameter),
            "state" | "state_int" => self.state(procedure.function, parameter),
            "function" | "functions" => self.callback(parameter, large),
            "strings" | "strings2" => self.strings(parameter),
            "string" => self.string(procedure, parameter),
            "length" => {
                self.before.push(format!("let mut {name}_with_end = with_end(*{name});"));
                self.take(&name, "*mut c_int", format!("&mut {name}_with_end"));
                self.after.push(format!("*{name} = without_end({name}_with_end);"));
            }
            "index" => self.index(parameter),
            "status" if incoming => self.take(&name, "*const Status", name.clone()),
            "status" => self.take(&name, "*mut Status", format!("sentinels::status::<Own>({name})")),
            "fstatus" | "f08status" if incoming => self.take(&name, "*const Status", name.clone()),
            "fstatus" | "f08status" => self.take(&name, "*mut Status", name.clone()),
            _ if parameter.kind.shape == Shape::Handle => self.handle(procedure, parameter),
            _ => self.number(parameter, large),
        }
    }

    fn take(&mut self, name: &str, rust: &str, argument: String) {
        self.parameters.push(format!("{name}: {rust}"));
        self.arguments.push(argument);
    }

    fn number(&mut self, parameter: &Parameter, large: bool) {
        let (name, value) = (rust_name(parameter), value_type(parameter, large));
        let incoming = parameter.direction == Direction::In;
        let pointer = if incoming { "const" } else { "mut" };
        let argument = match () {
            () if parameter.name.ends_with("weights") => format!("sentinels::weights::<Own>({name}.cast_mut())"),
            () if parameter.name == "array_of_errcodes" => format!("sentinels::error_codes::<Own>({name})"),
            () if parameter.kind.name == "keyval" && incoming => format!("keyval_to_c::<Own>(*{name})"),
            () if incoming && !parameter.array => format!("*{name}"),
            () => name.clone(),
        };
        let argument = if incoming { argument } else { argument.replace(".cast_mut()", "") };
        self.take(&name, &format!("*{pointer} {value}"), argument);
    }

    fn handle(&mut self, procedure: Procedure<'_>, parameter: &Parameter) {
        let (name, own) = (rust_name(parameter), type_name(parameter.kind.name));
        match (parameter.array, parameter.direction) {
            (false, Direction::In) => self.take(&name, "*const c_int", format!("{own}::of_fortran(*{name})")),
            (false, direction) => {
                let start = if direction == Direction::InOut {
                    format!("{own}::of_fortran(*{name})")
                } else {
                    format!("{own}::UNSET")
                };
                self.before.push(format!("let mut {name}_handle = {start};"));
                self.take(&name, "*mut c_int", format!("&mut {name}_handle"));
                self.after.push(format!("give_handle({name}, {name}_handle);"));
            }
            (true, direction) => {
                let length = array_length(procedure, parameter);
                let pointer = if direction == Direction::In { "const" } else { "mut" };
                let (make, access) = match direction {
                    Direction::Out => (format!("unset_handles::<{own}>({length})"), "as_mut_ptr"),
                    Direction::InOut => (format!("handles::<{own}>({name}, {length})"), "as_mut_ptr"),
                    Direction::In => (format!("handles::<{own}>({name}, {length})"), "as_ptr"),
                };
                let mutable = if direction == Direction::In { "" } else { "mut " };
                self.before.push(format!("let {mutable}{name}_handles = {make};"));
                self.take(&name, &format!("*{pointer} c_int"), format!("{name}_handles.{access}()"));
                if direction != Direction::In {
                    self.after.push(format!("give_handles({name}, &{name}_handles);"));
                }
            }
        }
    }

    fn index(&mut self, parameter: &Parameter) {
        let name = rust_name(parameter);
        if parameter.array {
            self.take(&name, "*mut c_int", name.clone());
            self.after
                .push(format!("if is_set::<Own>(code) {{ count_from_one::<Own>({name}, *{}); }}", parameter.length));
        } else {
            self.before.push(format!("let mut {name}_from_zero = Own::UNDEFINED;"));
            self.take(&name, "*mut c_int", format!("&mut {name}_from_zero"));
            self.after.push(format!("*{name} = {name}_from_zero;\ncount_from_one::<Own>({name}, 1);"));
        }
    }

    /// An incoming string ends with a NUL in C; an outgoing one is filled up with blanks in Fortran.
    fn string(&mut self, procedure: Procedure<'_>, parameter: &Parameter) {
        let name = rust_name(parameter);
        let incoming = parameter.direction == Direction::In;
        // MPI-5.0 sections 10.1 and 11.8.2: blanks at both ends are not part of an info object's keys and values, nor
        // of a program's name.
        let strips = procedure.function.module == "info" || parameter.name == "command";
        let trim = if strips { "trimmed" } else { "text" };
        self.lengths.push(format!("{name}_length: usize"));
        if incoming {
            self.before.push(format!("let {name}_c = {trim}({name}, {name}_length);"));
            self.take(&name, "*const c_char", format!("{name}_c.as_ptr()"));
        } else {
            let length = procedure.own_parameters().find(|p| p.kind.name == "length" || p.name == "valuelen");
            let room = length.map_or("0".to_owned(), |p| format!("*{}", rust_name(p)));
            self.before.push(format!("let mut {name}_c = Text::with_room({room});"));
            self.take(&name, "*mut c_char", format!("{name}_c.as_mut_ptr()"));
            self.after.push(format!("{name}_c.give({name}, {name}_length);"));
        }
    }

    fn strings(&mut self, parameter: &Parameter) {
        let name = rust_name(parameter);
        self.lengths.push(format!("{name}_length: usize"));
        let make = match &*parameter.name {
            "argv" => format!("Words::arguments::<Own>({name}, {name}_length)"),
            "array_of_commands" => format!("Words::counted({name}, {name}_length, *count)"),
            _ => format!("WordLists::new::<Own>({name}, {name}_length, *count)"),
        };
        self.before.push(format!("let mut {name}_c = {make};"));
        self.take(&name, "*const c_char", format!("{name}_c.as_mut_ptr()"));
    }

    fn attribute(&mut self, function: &Function, parameter: &Parameter) {
        let name = rust_name(parameter);
        let value = if parameter.kind.name == "attribute" { "Aint" } else { "c_int" };
        if parameter.direction == Direction::In {
            self.take(&name, &format!("*const {value}"), format!("attribute_to_c(*{name} as Aint)"));
            return;
        }
        let keyval = function.parameters.iter().find(|p| p.kind.name == "keyval").expect("an attribute has a key");
        self.before.push(format!("let mut {name}_c = std::ptr::null_mut::<c_void>();"));
        self.take(&name, &format!("*mut {value}"), format!("(&raw mut {name}_c).cast()"));
        let given = format!("*{name} = attribute_out::<Own>(*{}, {name}_c) as {value};", keyval.name);
        self.after.push(format!("if code == 0 && *flag != 0 {{ {given} }}"));
    }

    /// The extra state that C passes to callbacks: the procedures of the program that they stand for, and the program's
    /// own state.
    fn state(&mut self, function: &Function, parameter: &Parameter) {
        let name = rust_name(parameter);
        let value = if parameter.kind.name == "state" { "Aint" } else { "c_int" };
        let functions = function.parameters.iter().filter(|p| p.kind.shape == Shape::Function);
        let functions: Vec<_> = functions.map(rust_name).collect();
        let make = if function.name == "MPI_Grequest_start" { "own" } else { "shared" };
        let argument = format!("Context::{make}(&[{}], *{name} as Aint)", functions.join(", "));
        self.take(&name, &format!("*const {value}"), argument);
    }

    /// Where the types of a callback in C and in Fortran are the same for the processor, C gets the program's procedure
    /// itself.
    fn callback(&mut self, parameter: &Parameter, large: bool) {
        let name = rust_name(parameter);
        let callback = parameter.callback.as_deref().expect("a function kind names its callback");
        let object = type_name(match callback.trim_start_matches("MPI_").split('_').next() {
            Some("Win") => "win",
            Some("Type") => "datatype",
            _ => "comm",
        });
        let stand_in = match callback {
            "MPI_User_function" => None,
            name if name.ends_with("_errhandler_function") => None,
            "MPI_Copy_function" => Some(format!("copy_attribute_int::<{object}>")),
            "MPI_Delete_function" => Some(format!("delete_attribute_int::<{object}>")),
            name if name.ends_with("_copy_attr_function") => Some(format!("copy_attribute::<{object}>")),
            name if name.ends_with("_delete_attr_function") => Some(format!("delete_attribute::<{object}>")),
            "MPI_Grequest_query_function" => Some("query_request::<Status>".to_owned()),
            "MPI_Grequest_free_function" => Some("free_request".to_owned()),
            "MPI_Grequest_cancel_function" => Some("cancel_request".to_owned()),
            "MPI_Datarep_extent_function" => Some("file_extent::<Datatype>".to_owned()),
            "MPI_Datarep_conversion_function" => {
                let direction = if parameter.name.starts_with("read") { "read" } else { "write" };
                let suffix = if large { "_large" } else { "" };
                let stand_in = format!("{direction}_converted{suffix}::<Datatype> as *const () as usize");
                self.take(&name, "usize", format!("conversion({name}, {stand_in})"));
                return;
            }
            other => panic!("{other} has no stand-in for Fortran"),
        };
        let argument = stand_in.map_or_else(|| name.clone(), |function| format!("{function} as *const () as usize"));
        self.take(&name, "usize", argument);
    }

    fn choice(&mut self, procedure: Procedure<'_>, parameter: &Parameter, c_name: &str) {
        let name = rust_name(parameter);
        if !procedure.has_descriptors() {
            return self.take(&name, "*mut c_void", format!("sentinels::buffer::<Own>({name})"));
        }
        self.parameters.push(format!("{name}: *const Section"));
        let comm = procedure.parameters().find(|p| p.kind.name == "comm" && p.direction == Direction::In);
        let comm = comm.map_or("COMM_SELF".to_owned(), |p| format!("Comm::of_fortran(*{})", rust_name(p)));
        let refused = format!("return refuse(\"{c_name}\", \"{}\", {comm}, ierror)", parameter.name);
        match treatment(procedure.function, parameter) {
            Treatment::Address => self.arguments.push(format!("sentinels::buffer::<Own>((*{name}).address())")),
            Treatment::Copied => {
                let writes = parameter.direction != Direction::In;
                self.before.push(format!("let mut {name}_copy = Copied::new(&*{name});"));
                self.arguments.push(format!("{name}_copy.address()"));
                if writes {
                    self.after.push(format!("{name}_copy.write_back(&*{name});"));
                }
            }
            Treatment::Lent => {
                let lent = format!("Lent::new(&*{name})");
                self.before.push(format!("let Some({name}_lent) = {lent} else {{ {refused} }};"));
                self.arguments.push(format!("{name}_lent.address()"));
            }
            Treatment::Contiguous => {
                self.before.push(format!("if !(*{name}).is_contiguous() {{ {refused} }}"));
                self.arguments.push(format!("sentinels::buffer::<Own>((*{name}).address())"));
            }
            Treatment::Typed { count, datatype } => {
                let typed = format!("Typed::new(&*{name}, *{count} as Count, Datatype::of_fortran(*{datatype}))");
                self.before.push(format!("let Some({name}_typed) = {typed} else {{ {refused} }};"));
                // Then the two arguments that follow have other values.
                self.before
                    .push(format!("let {count}_own = {name}_typed.count as _;\nlet {count} = &raw const {count}_own;"));
                self.before.push(format!("let {datatype}_own = {name}_typed.datatype.to_fortran();"));
                self.before.push(format!("let {datatype} = &raw const {datatype}_own;"));
                self.arguments.push(format!("sentinels::buffer::<Own>((*{name}).address())"));
            }
        }
    }
}

/// Treatment of a buffer that is a section with strides.
enum Treatment<'a> {
    /// Only its address counts.
    Address,
    /// A contiguous copy serves, as the call is complete at its return.
    Copied,
    /// A message of its own: a datatype describes the places of its elements.
    Typed { count: &'a str, datatype: &'a str },
    /// A buffer of a collective, which gets the section's shape.
    Lent,
    /// The section is refused.
    Contiguous,
}

fn treatment<'a>(function: &'a Function, parameter: &Parameter) -> Treatment<'a> {
    let name = &*function.name;
    let only_address = ["MPI_Get_address", "MPI_Free_mem", "MPI_Win_attach", "MPI_Win_detach"];
    if only_address.contains(&name) || (function.module == "io" && name.ends_with("_end")) {
        return Treatment::Address;
    }
    if !keeps_buffers(function) {
        return Treatment::Copied;
    }
    let position = function.parameters.iter().position(|p| p.name == parameter.name).expect("its own parameter");
    let is_message = matches!(&*function.module, "p2p" | "rma" | "io") || parameter.name == "buffer";
    match &function.parameters[position + 1..] {
        [count, datatype, ..] if is_message && count.kind.name == "count" && datatype.kind.name == "datatype" => {
            Treatment::Typed { count: &count.name, datatype: &datatype.name }
        }
        _ if function.module == "coll" => Treatment::Lent,
        // MPI_Isendrecv_replace and the like have one buffer; all other functions of these modules name both behind
        // each.
        _ => Treatment::Contiguous,
    }
}

/// The length of an array of handles, as an expression.
fn array_length(procedure: Procedure<'_>, parameter: &Parameter) -> String {
    let peers = match &*parameter.length {
        "peers" => "peers(Comm::of_fortran(*comm))",
        "sources" => "sources(Comm::of_fortran(*comm))",
        "destinations" => "destinations(Comm::of_fortran(*comm))",
        length => return format!("*{length}"),
    };
    // With MPI_IN_PLACE the send types do not exist.
    let address = if procedure.has_descriptors() { "(*sendbuf).address()" } else { "sendbuf" };
    if parameter.name == "sendtypes" { format!("unless_in_place::<Own>({address}, {peers})") } else { peers.to_owned() }
}
