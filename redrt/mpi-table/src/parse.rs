//! Reads the table files. Every line that does not follow the notation is an error with its number.

use crate::kind::{ParameterKind, Shape};
use std::collections::HashMap;

/// Direction of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Read by the library.
    In,
    /// Written by the library.
    Out,
    /// Read and written by the library.
    InOut,
}

/// One parameter of a function or callback.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Name in the standard.
    pub name: String,
    /// Kind, which decides the types.
    pub kind: &'static ParameterKind,
    /// For kinds of shape `Function`: the name of the callback type.
    pub callback: Option<String>,
    /// Direction of the parameter.
    pub direction: Direction,
    /// True for an array.
    pub array: bool,
    /// Length of the array: the name of a parameter, or a word that the table explains; empty where no renderer needs
    /// it.
    pub length: String,
    /// True when only the large-count twin has the parameter.
    pub large_only: bool,
}

/// One function or callback type.
#[derive(Clone, Debug)]
pub struct Function {
    /// Name with its `MPI_`.
    pub name: String,
    /// The module of `redrt::api` that implements it; empty for callbacks.
    pub module: String,
    /// True when there is a large-count twin.
    pub twin: bool,
    /// True when it may be called at any time.
    pub early: bool,
    /// True when the implementation is told which twin was called.
    pub wide: bool,
    /// True when ignored arguments may follow.
    pub variadic: bool,
    /// True when all members of its communicator, window or file must call it, and return only after all have.
    pub collective: bool,
    /// True when Fortran does not have it.
    pub c_only: bool,
    /// True when Fortran has it in `mpif.h` and the module `mpi` only.
    pub old: bool,
    /// Kind of the return value, if that is not an error code.
    pub returns: Option<&'static ParameterKind>,
    /// The parameters in order.
    pub parameters: Vec<Parameter>,
}

impl Function {
    /// True when it takes a callback without extra state: a reduction, or an error handler.
    pub(crate) fn takes_stateless_callback(&self) -> bool {
        let functions = self.parameters.iter().filter(|p| p.kind.shape == Shape::Function);
        let stateless = |name: &str| name == "MPI_User_function" || name.ends_with("_errhandler_function");
        functions.filter_map(|p| p.callback.as_deref()).any(stateless)
    }

    /// Name in snake case without `MPI_`: `comm_get_name`.
    #[must_use]
    pub fn snake_name(&self) -> String {
        self.name.trim_start_matches("MPI_").to_lowercase()
    }

    /// The handle whose error handler is used: the first incoming communicator, window, file or session.
    #[must_use]
    pub fn scope(&self) -> Option<&Parameter> {
        let scoped = |p: &&Parameter| matches!(p.kind.name, "comm" | "win" | "file" | "session") && !p.array;
        self.parameters.iter().filter(scoped).find(|p| p.direction != Direction::Out)
    }

    /// The parameters of the function, or of its large-count twin.
    pub fn parameters(&self, large: bool) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(move |p| large || !p.large_only)
    }
}

/// One constant.
#[derive(Clone, Debug)]
pub struct Constant {
    /// Name with its `MPI_`.
    pub name: String,
    /// Kind, which gives the type.
    pub kind: &'static ParameterKind,
    /// For null functions: the name of the callback type.
    pub callback: Option<String>,
    /// Value in the standard ABI.
    pub value: i64,
}

/// The whole interface.
#[derive(Clone, Debug)]
pub struct Table {
    /// Functions, by module.
    pub functions: Vec<Function>,
    /// Types of the program's callbacks.
    pub callbacks: Vec<Function>,
    /// Constants, by category.
    pub constants: Vec<Constant>,
}

/// A line does not follow the notation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {breach}")]
pub struct ParseError {
    pub(crate) line: usize,
    pub(crate) breach: Breach,
}

/// The way in which a line breaks the notation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Breach {
    #[error("expected {0}")]
    Form(&'static str),
    #[error("'{0}' does not begin with MPI_")]
    Prefix(String),
    #[error("unknown flag '{0}'")]
    Flag(String),
    #[error("unknown kind '{0}'")]
    Kind(String),
    #[error("'{0}': a function kind, and no other, names a callback type")]
    Callback(String),
    #[error("'{0}' has no kind")]
    NoKind(String),
    #[error("'{word}': unknown part '{part}'")]
    Part { word: String, part: String },
    #[error("'{0}' is not a number")]
    Number(String),
    #[error("'{0}' is not a fact")]
    Fact(String),
    #[error("{0} is there twice")]
    Twice(String),
    #[error("module {module} has no function {function}")]
    NoFunction { module: String, function: String },
}

impl Table {
    /// The interface of MPI-5.0, from the files of this crate.
    ///
    /// # Panics
    /// When a file of this crate is wrong; the tests would show it.
    #[must_use]
    pub fn standard() -> Self {
        let functions = parse_functions(include_str!("../mpi-5.0.functions")).expect("mpi-5.0.functions");
        let callbacks = parse_functions(include_str!("../mpi-5.0.callbacks")).expect("mpi-5.0.callbacks");
        let constants = parse_constants(include_str!("../mpi-5.0.constants")).expect("mpi-5.0.constants");
        Self { functions, callbacks, constants }
    }
}

/// Lines with content, with their numbers from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// Parses the notation of `mpi-5.0.functions`.
///
/// # Errors
/// The first line that breaks the notation.
pub fn parse_functions(text: &str) -> Result<Vec<Function>, ParseError> {
    let mut functions = Vec::new();
    let mut module = String::new();
    for (line, content) in lines(text) {
        if let Some(name) = content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            module = name.to_owned();
            continue;
        }
        let function = parse_function(content, &module).map_err(|breach| ParseError { line, breach })?;
        functions.push(function);
    }
    Ok(functions)
}

fn parse_function(content: &str, module: &str) -> Result<Function, Breach> {
    let mut words = content.split_whitespace();
    let name = words.next().ok_or(Breach::Form("a name"))?;
    if !name.starts_with("MPI_") {
        return Err(Breach::Prefix(name.to_owned()));
    }
    let mut function = Function {
        name: name.to_owned(),
        module: module.to_owned(),
        twin: false,
        early: false,
        wide: false,
        variadic: false,
        collective: false,
        c_only: false,
        old: false,
        returns: None,
        parameters: Vec::new(),
    };
    for flag in words.next().ok_or(Breach::Form("flags"))?.split(',') {
        match flag {
            "-" => {}
            "twin" => function.twin = true,
            "early" => function.early = true,
            "wide" => function.wide = true,
            "variadic" => function.variadic = true,
            "collective" => function.collective = true,
            "c" => function.c_only = true,
            "old" => function.old = true,
            other => {
                let kind = other.strip_prefix("returns=").ok_or_else(|| Breach::Flag(other.to_owned()))?;
                function.returns = Some(find_kind(kind)?);
            }
        }
    }
    function.parameters = words.map(parse_parameter).collect::<Result<_, _>>()?;
    Ok(function)
}

fn find_kind(name: &str) -> Result<&'static ParameterKind, Breach> {
    ParameterKind::find(name).ok_or_else(|| Breach::Kind(name.to_owned()))
}

fn parse_kind(text: &str) -> Result<(&'static ParameterKind, Option<String>), Breach> {
    let (name, callback) = match text.split_once('=') {
        Some((name, callback)) => (name, Some(callback.to_owned())),
        None => (text, None),
    };
    let kind = find_kind(name)?;
    if (kind.shape == Shape::Function) != callback.is_some() {
        return Err(Breach::Callback(text.to_owned()));
    }
    Ok((kind, callback))
}

fn parse_parameter(word: &str) -> Result<Parameter, Breach> {
    let mut parts = word.split(':');
    let name = parts.next().filter(|name| !name.is_empty()).ok_or(Breach::Form("a parameter with a name"))?;
    let (kind, callback) = parse_kind(parts.next().ok_or_else(|| Breach::NoKind(word.to_owned()))?)?;
    let mut parameter = Parameter {
        name: name.to_owned(),
        kind,
        callback,
        direction: Direction::In,
        array: false,
        length: String::new(),
        large_only: false,
    };
    for part in parts {
        match part {
            "in" => parameter.direction = Direction::In,
            "out" => parameter.direction = Direction::Out,
            "inout" => parameter.direction = Direction::InOut,
            "large" => parameter.large_only = true,
            other => {
                let length = other.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                let length = length.ok_or_else(|| Breach::Part { word: word.to_owned(), part: other.to_owned() })?;
                parameter.array = true;
                parameter.length = length.to_owned();
            }
        }
    }
    Ok(parameter)
}

/// Parses the notation of `mpi-5.0.constants`.
///
/// # Errors
/// The first line that breaks the notation.
pub fn parse_constants(text: &str) -> Result<Vec<Constant>, ParseError> {
    let parse = |content: &str| -> Result<Constant, Breach> {
        let words: Vec<_> = content.split_whitespace().collect();
        let [name, kind, value] = words[..] else { return Err(Breach::Form("NAME KIND VALUE")) };
        let (kind, callback) = parse_kind(kind)?;
        let value = value.parse().map_err(|_| Breach::Number(value.to_owned()))?;
        Ok(Constant { name: name.to_owned(), kind, callback, value })
    };
    lines(text).map(|(line, content)| parse(content).map_err(|breach| ParseError { line, breach })).collect()
}

/// The functions that redrt implements, by module.
#[derive(Clone, Debug, Default)]
pub struct Bound {
    modules: HashMap<String, Vec<String>>,
}

impl Bound {
    /// Parses lines `MODULE: NAME...`; several lines may name one module.
    ///
    /// # Errors
    /// A line that breaks the notation, or a name that the module does not have in `table`.
    pub fn parse(text: &str, table: &Table) -> Result<Self, ParseError> {
        let mut bound = Self::default();
        for (line, content) in lines(text) {
            let error = |breach| ParseError { line, breach };
            let (module, names) = content.split_once(':').ok_or_else(|| error(Breach::Form("MODULE: NAME...")))?;
            for name in names.split_whitespace() {
                let full_name = format!("MPI_{name}");
                let known = |f: &Function| f.module == module && (name == "*" || f.name == full_name);
                if !table.functions.iter().any(known) {
                    return Err(error(Breach::NoFunction { module: module.to_owned(), function: full_name }));
                }
                bound.modules.entry(module.to_owned()).or_default().push(name.to_owned());
            }
        }
        Ok(bound)
    }

    /// True when redrt implements the function.
    #[must_use]
    pub fn contains(&self, function: &Function) -> bool {
        let name = function.name.trim_start_matches("MPI_");
        self.modules.get(&function.module).is_some_and(|names| names.iter().any(|n| n == "*" || n == name))
    }
}
