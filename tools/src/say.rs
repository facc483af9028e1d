//! Lines for the user that must cost nobody anything, wherever they go: the standard library's own macros panic when the reader
//! has gone, and a daemon whose login has ended, or `redctl status | head -1`, would be ended by what it says.

use std::fmt::Display;
use std::io::{ErrorKind, Write, stderr, stdout};

/// A line on standard error, if anybody reads it.
pub fn error(line: impl Display) {
    // Nobody is left to be told.
    let _ = stderr().write_all(format!("{line}\n").as_bytes());
}

/// A text on standard output. A reader that wants no more is no failure.
pub fn text(text: &[u8]) -> std::io::Result<()> {
    match stdout().write_all(text).and_then(|()| stdout().flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// The same for a line.
pub fn line(line: impl Display) -> std::io::Result<()> {
    text(format!("{line}\n").as_bytes())
}
