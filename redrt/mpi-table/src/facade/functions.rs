//! The functions of a façade. This module only decides on the translation of each argument; the translations are in
//! `redrt/abi-facade`, and for constants and handles in the text that `values` renders.

use super::core::field_name;
use super::facts::{Facts, Family};
use super::line;
use super::values::{is_translated, type_name};
use crate::exports::identifier;
use crate::kind::Shape;
use crate::parse::{Direction, Function, Parameter};

/// The body of a function, collected argument by argument.
#[derive(Default)]
struct Shim {
    parameters: Vec<String>,
    before: Vec<String>,
    arguments: Vec<String>,
    /// Statements for a call that ended with code 0.
    on_success: Vec<String>,
    /// Statements after every call.
    after: Vec<String>,
    /// The library's own function that is called in place of the standard's.
    instead: Option<&'static str>,
    /// True when callbacks are procedures of Fortran, which take handles as numbers.
    in_fortran: bool,
}

/// MPI-1 names that the families still export, for functions with the same arguments.
const OLD_NAMES: &[(&str, &str)] = &[
    ("MPI_Get_address", "MPI_Address"),
    ("MPI_Type_create_struct", "MPI_Type_struct"),
    ("MPI_Type_create_hvector", "MPI_Type_hvector"),
    ("MPI_Type_create_hindexed", "MPI_Type_hindexed"),
    ("MPI_Comm_create_errhandler", "MPI_Errhandler_create"),
    ("MPI_Comm_get_errhandler", "MPI_Errhandler_get"),
    ("MPI_Comm_set_errhandler", "MPI_Errhandler_set"),
];

/// One function, under all its names. Functions that the family does not have are rendered too: otherwise a program
/// that asks for one by `dlsym` would find that of redrt's library, with other numbers.
pub(super) fn render(out: &mut String, function: &Function, large: bool, facts: &Facts) {
    let suffix = if large { "_c" } else { "" };
    let inner = format!("inner_{}{suffix}", function.snake_name());
    let mut shim = Shim::default();
    let body = match &*function.module {
        "convert" => conversion(&mut shim, function),
        "status" if is_copy(function) => copy_status(&mut shim, function),
        _ => {
            for parameter in function.parameters(large) {
                shim.add(function, parameter, large, facts.family);
            }
            special(&mut shim, function, large);
            call(&shim, function, large)
        }
    };
    if function.takes_stateless_callback() && !large {
        render_for_fortran(out, function, facts.family);
    }
    let returns = match function.returns {
        Some(kind) if kind.shape == Shape::Handle => type_name(kind.name),
        Some(kind) => kind.rust.to_owned(),
        None => "c_int".to_owned(),
    };
    let parameters = shim.parameters.join(", ");
    line(out, format_args!("#[inline(always)]\nunsafe fn {inner}({parameters}) -> {returns} {{\n{body}\n}}"));
    let arguments: Vec<_> = function.parameters(large).map(|p| identifier(&p.name)).collect();
    let name = function.name.trim_start_matches("MPI_");
    let old = OLD_NAMES.iter().filter(|(new, _)| *new == function.name && !large).map(|(_, old)| &old[4..]);
    for name in std::iter::once(format!("{name}{suffix}")).chain(old.map(str::to_owned)) {
        for prefix in ["MPI_", "PMPI_"] {
            out.push_str("#[unsafe(no_mangle)]\n");
            line(out, format_args!("pub unsafe extern \"C\" fn {prefix}{name}({parameters}) -> {returns} {{"));
            line(
                out,
                format_args!(
                    "// SAFETY: the same function under its exported name.\nunsafe {{ {inner}({}) }}\n}}",
                    arguments.join(", ")
                ),
            );
        }
    }
}

fn call(shim: &Shim, function: &Function, large: bool) -> String {
    let callee = shim.instead.map_or_else(|| field_name(function, large), |own| format!("own.{own}"));
    let call = format!("(core().{callee})({})", shim.arguments.join(", "));
    let safety = "// SAFETY: the arguments are those of the C call, which must be valid as MPI says.";
    if function.returns.is_some() {
        return format!("{safety}\nunsafe {{ {call} }}");
    }
    let mut text = format!("{safety}\nunsafe {{\n{}\nlet code = {call};\n", shim.before.join("\n"));
    if !shim.on_success.is_empty() {
        text += &format!("if code == 0 {{\n{}\n}}\n", shim.on_success.join("\n"));
    }
    text + &format!("{}\nerror_out(code)\n}}", shim.after.join("\n"))
}

/// The twin of a function whose callback has no state, for procedures of Fortran.
fn render_for_fortran(out: &mut String, function: &Function, family: Family) {
    let mut shim = Shim { in_fortran: true, ..Shim::default() };
    for parameter in function.parameters(false) {
        shim.add(function, parameter, false, family);
    }
    let (name, parameters, body) = (function.snake_name(), shim.parameters.join(", "), call(&shim, function, false));
    out.push_str("#[unsafe(no_mangle)]\n");
    line(out, format_args!("pub unsafe extern \"C\" fn redrt_fortran_{name}({parameters}) -> c_int {{\n{body}\n}}"));
}

/// Handles to integers of Fortran and back.
fn conversion(shim: &mut Shim, function: &Function) -> String {
    let parameter = &function.parameters[0];
    let name = identifier(&parameter.name);
    if parameter.kind.shape == Shape::Handle {
        shim.parameters.push(format!("{name}: {}", type_name(parameter.kind.name)));
        return format!("{name}.to_fortran()");
    }
    shim.parameters.push(format!("{name}: c_int"));
    format!("{}::of_fortran({name})", type_name(function.returns.expect("a conversion returns its result").name))
}

/// True when a status is copied from one language's form to another's; all have the same layout.
fn is_copy(function: &Function) -> bool {
    function.parameters.iter().any(|p| matches!(p.kind.name, "fstatus" | "f08status"))
}

fn copy_status(shim: &mut Shim, function: &Function) -> String {
    let [from, to] = &function.parameters[..] else { panic!("{} copies one status", function.name) };
    let (from, to) = (identifier(&from.name), identifier(&to.name));
    shim.parameters.push(format!("{from}: *const Status"));
    shim.parameters.push(format!("{to}: *mut Status"));
    format!("// SAFETY: the program's statuses.\nunsafe {{ copy_status({from}, {to}) }}")
}

/// Statements that only one function needs.
fn special(shim: &mut Shim, function: &Function, large: bool) {
    let out = match &*function.name {
        "MPI_Type_get_contents" => {
            let integers = if large { "true" } else { "false" };
            format!("contents_out::<Own>(datatype.core(), array_of_integers, max_integers as i64, {integers});")
        }
        // A library with the family's numbers does not have the standard's ABI (MPI-5.0 section 20.2).
        "MPI_Abi_get_version" => "*abi_major = -1;\n*abi_minor = -1;".to_owned(),
        // Only libraries with the standard ABI have this information.
        "MPI_Abi_get_fortran_info" => "*info = Info::of(INFO_NULL);".to_owned(),
        "MPI_Comm_get_attr" | "MPI_Attr_get" | "MPI_Win_get_attr" => {
            "attribute_out::<Own>(keyval_in(KEYVAL), *flag, attribute_val);".replace("KEYVAL", keyval(function))
        }
        _ => return,
    };
    shim.on_success.push(out);
}

fn keyval(function: &Function) -> &str {
    let keyval = function.parameters.iter().find(|p| p.kind.name == "keyval");
    &keyval.expect("an attribute has a key").name
}

impl Shim {
    fn add(&mut self, function: &Function, parameter: &Parameter, large: bool, family: Family) {
        let name = identifier(&parameter.name);
        let kind = parameter.kind;
        let incoming = parameter.direction == Direction::In;
        match kind.shape {
            Shape::Handle => self.handle(function, parameter),
            Shape::Function => self.callback(parameter, large),
            Shape::Pointee if kind.name == "status" => self.status(function, parameter),
            Shape::Pointee if incoming => self.take(&name, &format!("*const {}", kind.rust), name.clone()),
            Shape::Pointee => self.string(function, parameter),
            Shape::Raw => self.raw(function, parameter),
            _ if is_translated(kind.name) => self.constant(function, parameter, large),
            _ => self.number(parameter, large, family),
        }
    }

    fn take(&mut self, name: &str, rust: &str, argument: String) {
        self.parameters.push(format!("{name}: {rust}"));
        self.arguments.push(argument);
    }

    /// An integer without a translation.
    fn number(&mut self, parameter: &Parameter, large: bool, family: Family) {
        let name = identifier(&parameter.name);
        let rust = match parameter.kind.rust_type(large) {
            "ToolHandle" => "usize",
            other => other,
        };
        let incoming = parameter.direction == Direction::In;
        let pointer = if incoming { "const" } else { "mut" };
        if incoming && !parameter.array {
            let translated = family == Family::OpenMpi && parameter.kind.name == "tool_pvar";
            let argument = if translated { format!("all_handles_in({name})") } else { name.clone() };
            return self.take(&name, rust, argument);
        }
        let is_weights = parameter.name.ends_with("weights");
        let cast = if incoming { ".cast_mut()" } else { "" };
        let argument = if is_weights { format!("weights_in::<Own>({name}{cast})") } else { name.clone() };
        self.take(&name, &format!("*{pointer} {rust}"), argument);
    }

    /// An integer that stands for a constant.
    fn constant(&mut self, function: &Function, parameter: &Parameter, large: bool) {
        let (name, kind) = (identifier(&parameter.name), parameter.kind.name);
        let rust = parameter.kind.rust_type(large);
        match (parameter.array, parameter.direction) {
            (false, Direction::In) => self.take(&name, rust, format!("{kind}_in({name})")),
            (false, Direction::Out) => {
                self.take(&name, &format!("*mut {rust}"), name.clone());
                self.on_success.push(format!("*{name} = {kind}_out(*{name});"));
            }
            (false, Direction::InOut) => {
                self.before.push(format!("let mut {name}_core = {kind}_in(peek({name}, 0));"));
                self.take(&name, &format!("*mut {rust}"), format!("pointer_to(&mut {name}_core, {name}.is_null())"));
                self.on_success.push(format!("*{name} = {kind}_out({name}_core);"));
            }
            (true, direction) => {
                let pointer = if direction == Direction::In { "const" } else { "mut" };
                let Some(length) = length(function, parameter) else {
                    return self.take(&name, &format!("*{pointer} {rust}"), name.clone());
                };
                if direction == Direction::In {
                    self.before.push(format!("let {name}_core = Integers::new({name}, {length}, {kind}_in);"));
                    self.take(&name, &format!("*const {rust}"), format!("{name}_core.as_ptr()"));
                } else {
                    self.take(&name, &format!("*mut {rust}"), name.clone());
                    let write = format!("integers_out({name}, {length}, {kind}_out);");
                    if kind == "error" { self.after.push(write) } else { self.on_success.push(write) }
                }
            }
        }
    }

    fn handle(&mut self, function: &Function, parameter: &Parameter) {
        let name = identifier(&parameter.name);
        let own = type_name(parameter.kind.name);
        match (parameter.array, parameter.direction) {
            (false, Direction::In) => self.take(&name, &own, format!("{name}.core()")),
            (false, direction) => {
                let start =
                    if direction == Direction::InOut { format!("peek_handle({name})") } else { "UNSET".to_owned() };
                self.before.push(format!("let mut {name}_core = {start};"));
                self.take(&name, &format!("*mut {own}"), format!("pointer_to(&mut {name}_core, {name}.is_null())"));
                self.after.push(format!("give_handle({name}, {name}_core);"));
            }
            (true, direction) => {
                let length = length(function, parameter).expect("arrays of handles have a length");
                let pointer = if direction == Direction::In { "const" } else { "mut" };
                let make = if direction == Direction::Out { "unset" } else { "new" };
                let mutable = if direction == Direction::In { "" } else { "mut " };
                let access = if direction == Direction::In { "as_ptr" } else { "as_mut_ptr" };
                self.before.push(format!("let {mutable}{name}_core = Handles::{make}({name}, {length});"));
                self.take(&name, &format!("*{pointer} {own}"), format!("{name}_core.{access}()"));
                if direction != Direction::In {
                    self.after.push(format!("{name}_core.give({name});"));
                }
            }
        }
    }

    fn status(&mut self, function: &Function, parameter: &Parameter) {
        let name = identifier(&parameter.name);
        let pointer = if parameter.direction == Direction::In { "const" } else { "mut" };
        let own = format!("*{pointer} Status");
        if parameter.array {
            let count = function.parameters.iter().find(|p| matches!(&*p.name, "count" | "incount"));
            let count = &count.expect("an array of statuses goes with a number of requests").name;
            self.before.push(format!("let mut {name}_core = Statuses::<Own>::new({name}, {count});"));
            self.take(&name, &own, format!("{name}_core.as_mut_ptr()"));
            self.after.push(format!("{name}_core.give({name});"));
            return;
        }
        self.before.push(format!("let mut {name}_core = Statuses::<Own>::one({name});"));
        self.take(&name, &own, format!("{name}_core.as_mut_ptr()"));
        if parameter.direction != Direction::In {
            self.after.push(format!("{name}_core.give({name});"));
        }
    }

    /// An outgoing string, where the family's strings are shorter than the standard's.
    fn string(&mut self, function: &Function, parameter: &Parameter) {
        let name = identifier(&parameter.name);
        let room = match (&*function.name, &*parameter.name) {
            ("MPI_Get_processor_name", _) => "MPI_MAX_PROCESSOR_NAME",
            ("MPI_Error_string", _) => "MPI_MAX_ERROR_STRING",
            ("MPI_Get_library_version", _) => "MPI_MAX_LIBRARY_VERSION_STRING",
            ("MPI_Info_get_nthkey", _) => "MPI_MAX_INFO_KEY",
            ("MPI_Open_port" | "MPI_Lookup_name", _) => "MPI_MAX_PORT_NAME",
            ("MPI_File_get_view", _) => "MPI_MAX_DATAREP_STRING",
            (_, "comm_name" | "type_name" | "win_name") => "MPI_MAX_OBJECT_NAME",
            // The program passes the size of its buffer.
            _ => return self.take(&name, "*mut c_char", name.clone()),
        };
        self.before.push(format!("let mut {name}_core = Text::new({name});"));
        self.take(&name, "*mut c_char", format!("{name}_core.as_mut_ptr()"));
        let length =
            function.parameters.iter().find(|p| p.name == "resultlen").map_or("std::ptr::null_mut()", |p| &p.name);
        self.on_success.push(format!("{name}_core.give({name}, {room}, {length});"));
    }

    fn raw(&mut self, function: &Function, parameter: &Parameter) {
        let name = identifier(&parameter.name);
        let incoming = parameter.direction == Direction::In;
        let rust = match parameter.kind.name {
            "buffer" if incoming => "*const c_void",
            _ => parameter.kind.rust,
        };
        let argument = match parameter.kind.name {
            // The address itself is the result.
            "buffer" if function.name == "MPI_Get_address" => name.clone(),
            "buffer" if incoming => format!("buffer_in::<Own>({name}.cast_mut())"),
            "buffer" | "choice" => format!("buffer_in::<Own>({name})"),
            "state" | "state_int" => self.state(function, &name),
            _ => name.clone(),
        };
        self.take(&name, rust, argument);
        if parameter.kind.name == "detached" {
            self.on_success.push(format!("buffer_out::<Own>({name});"));
        }
    }

    /// The extra state of a callback: the functions of the program that it stands for, and the program's own state.
    fn state(&mut self, function: &Function, name: &str) -> String {
        let functions = function.parameters.iter().filter(|p| p.kind.shape == Shape::Function);
        let functions: Vec<_> = functions.map(|p| identifier(&p.name)).collect();
        let make = if function.name == "MPI_Grequest_start" { "own" } else { "shared" };
        format!("Context::{make}(&[{}], {name})", functions.join(", "))
    }

    fn callback(&mut self, parameter: &Parameter, large: bool) {
        let name = identifier(&parameter.name);
        let callback = parameter.callback.as_deref().expect("a function kind names its callback");
        let object = callback.trim_start_matches("MPI_").split('_').next().unwrap_or_default();
        let handle = if object == "Type" { "Datatype" } else { object };
        let of = |handle: &str| if self.in_fortran { format!("Fortran<{handle}>") } else { handle.to_owned() };
        let stand_in = match callback {
            "MPI_User_function" => {
                // The function has no state: the library gets the caller that passes it on.
                let (pointer, adapter) =
                    (if large { "1" } else { "0" }, format!("call_operation::<Own, {}, {large}>", of("Datatype")));
                return self.own(&name, "create_op", &format!("{pointer}, {adapter} as *const () as usize"));
            }
            other if other.ends_with("_errhandler_function") => {
                let kind = ["Comm", "Win", "File", "Session"].iter().position(|known| *known == object).unwrap_or(0);
                let adapter = format!("call_errhandler::<Own, {}> as *const () as usize", of(handle));
                return self.own(&name, "create_errhandler", &format!("{kind}, {adapter}"));
            }
            "MPI_Copy_function" => "copy_attribute::<Own, Comm>",
            "MPI_Delete_function" => "delete_attribute::<Own, Comm>",
            other if other.ends_with("_copy_attr_function") => &format!("copy_attribute::<Own, {handle}>"),
            other if other.ends_with("_delete_attr_function") => &format!("delete_attribute::<Own, {handle}>"),
            "MPI_Grequest_query_function" => "query_request::<Own>",
            "MPI_Grequest_free_function" => "free_request::<Own>",
            "MPI_Grequest_cancel_function" => "cancel_request::<Own>",
            "MPI_Datarep_extent_function" => "file_extent::<Own, Datatype>",
            "MPI_Datarep_conversion_function" => {
                let index = usize::from(!parameter.name.starts_with("read"));
                let count = if large { "i64" } else { "c_int" };
                &format!("convert::<Own, Datatype, {count}, {index}>")
            }
            // Callbacks of tools have neither handles nor codes.
            _ => return self.take(&name, "usize", name.clone()),
        };
        // A null function stays null: it is a predefined one, or none.
        self.take(&name, "usize", format!("unless_null({name}, {stand_in} as *const () as usize)"));
    }

    /// Calls a function of the library's own in place of the standard's.
    fn own(&mut self, name: &str, own: &'static str, further: &str) {
        self.instead = Some(own);
        self.take(name, "usize", name.to_owned());
        self.arguments.push(further.to_owned());
    }
}

/// The length of an array, as an expression; `None` where the table does not have it.
fn length(function: &Function, parameter: &Parameter) -> Option<String> {
    let of = |what: &str| format!("{what}(comm.core())");
    Some(match &*parameter.length {
        "peers" | "sources" | "destinations" if parameter.name == "sendtypes" => {
            format!("unless_in_place::<Own>(sendbuf, || {})", of(&parameter.length))
        }
        "peers" | "sources" | "destinations" => of(&parameter.length),
        "" => match &*function.name {
            "MPI_Comm_spawn" if parameter.kind.name == "error" => "maxprocs as usize".to_owned(),
            "MPI_Comm_spawn_multiple" if parameter.kind.name == "error" => "sum(array_of_maxprocs, count)".to_owned(),
            _ => return None,
        },
        "outcount" => "*outcount as usize".to_owned(),
        "num_elements" => "peek(num_elements, 0) as usize".to_owned(),
        // A negative length is an error that the function itself reports.
        name => format!("usize::try_from({}).unwrap_or(0)", identifier(name)),
    })
}
