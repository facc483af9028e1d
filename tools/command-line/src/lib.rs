//! What the command lines of all programs have: what is said of a wrong one, manual pages and completions, times and
//! sizes.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]

mod generate;
pub mod quantity;

pub use generate::{Generate, generate_for};

use std::ffi::OsString;

/// What a program ends with when its command line is wrong.
pub const USAGE_EXIT_CODE: i32 = 2;

/// A command line that cannot be carried out, in one line. The exit code is 2.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.replace(char::is_control, " "))]
pub struct UsageError(pub String);

/// Reads a command line, which includes the program's own name.
///
/// # Errors
/// The exit code, when there is nothing more to do: help, or what is wrong, was printed.
pub fn parse_from<T: clap::Parser>(words: Vec<OsString>) -> Result<T, i32> {
    T::try_parse_from(words).map_err(|error| show(&error))
}

/// Prints what clap says of a command line, help perhaps; the exit code.
pub fn show(error: &clap::Error) -> i32 {
    // Help and version go to standard output, with exit code 0.
    let _ = error.print();
    error.exit_code()
}

/// `clap`'s message in one line, without its advice; it takes every unknown option for a value that was meant.
pub fn one_line(error: &clap::Error) -> UsageError {
    let text = error.render().to_string();
    let message = text.split("\n\nUsage:").next().unwrap_or(&text);
    let message = message.split("\n\nFor more").next().unwrap_or(message).trim_start_matches("error: ");
    let message = message.split("\n\n  tip: to pass").next().unwrap_or(message);
    UsageError(message.split_whitespace().collect::<Vec<_>>().join(" "))
}
