//! Common parts of all programs' command lines: messages about wrong ones, manual pages and completions, times and
//! sizes.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]

mod generate;
pub mod quantity;

pub use generate::{Generate, generate_for};

use std::ffi::OsString;

/// Exit code of a program with a wrong command line.
pub const USAGE_EXIT_CODE: i32 = 2;

/// A command line that cannot be carried out, as a message of one line. The exit code is 2.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.replace(char::is_control, " "))]
pub struct UsageError(pub String);

/// Parses a command line, whose first word is the program's name.
///
/// # Errors
/// The exit code, after help or a message was printed.
pub fn parse_from<T: clap::Parser>(words: Vec<OsString>) -> Result<T, i32> {
    T::try_parse_from(words).map_err(|error| show(&error))
}

/// Prints clap's message or help. Returns the exit code.
pub fn show(error: &clap::Error) -> i32 {
    // Help and version go to standard output, with exit code 0.
    let _ = error.print();
    error.exit_code()
}

/// clap's message in one line, without its advice: clap takes every unknown option for a value.
pub fn one_line(error: &clap::Error) -> UsageError {
    let text = error.render().to_string();
    let message = text.split("\n\nUsage:").next().unwrap_or(&text);
    let message = message.split("\n\nFor more").next().unwrap_or(message).trim_start_matches("error: ");
    let message = message.split("\n\n  tip: to pass").next().unwrap_or(message);
    UsageError(message.split_whitespace().collect::<Vec<_>>().join(" "))
}
