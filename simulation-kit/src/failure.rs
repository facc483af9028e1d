//! Runs that are wrong, and words that mean nothing.

use std::fmt;

/// An invariant that does not hold, in words for the reader of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation(String);

impl Violation {
    /// A violation in the words of this value.
    pub fn of(what: impl fmt::Display) -> Self {
        Self(what.to_string())
    }
}

impl From<String> for Violation {
    fn from(what: String) -> Self {
        Self(what)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

/// Words of a command line that mean nothing to a simulator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The simulator has no such option.
    NoOption {
        /// Name of the simulator.
        simulator: &'static str,
        /// Name of the option.
        option: String,
    },
    /// The option cannot have this value.
    Value {
        /// Name of the option.
        option: String,
        /// Its value.
        value: String,
        /// The possible values, in words; empty where there are too many, or none.
        of: String,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOption { simulator, option } => write!(f, "{simulator} has no --{option}"),
            Self::Value { option, value, of } if of.is_empty() => write!(f, "--{option} cannot be {value}"),
            Self::Value { option, value, of } => write!(f, "--{option} cannot be {value}: one of {of}"),
        }
    }
}

impl std::error::Error for Refusal {}

/// The value of an option, or its refusal.
///
/// # Errors
/// When the value is none of its type.
pub fn parsed<T: std::str::FromStr>(option: &str, value: &str) -> Result<T, Refusal> {
    let refusal = |_| Refusal::Value { option: option.to_owned(), value: value.to_owned(), of: String::new() };
    value.parse().map_err(refusal)
}
