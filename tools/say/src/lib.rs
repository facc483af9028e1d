//! Lines for the user. Printing them never ends the program: the standard library's macros panic when the reader has
//! gone, which would end a daemon whose login has ended, or `redctl status | head -1`.

#![forbid(unsafe_code)]

pub mod columns;
mod console;
pub mod developers;

pub use console::{Console, Lines, Severity};

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{ErrorKind, Write, stderr, stdout};

/// Writes a line to standard error, if anybody reads it.
pub fn error(line: impl Display) {
    // An error here has no reader either.
    let _ = stderr().write_all(format!("{}\n", shown(&line.to_string())).as_bytes());
}

/// Writes a text to standard output. A reader that has gone is no failure.
pub fn text(text: &[u8]) -> std::io::Result<()> {
    match stdout().write_all(text).and_then(|()| stdout().flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// The same for a line, or several lines.
pub fn line(line: impl Display) -> std::io::Result<()> {
    text(format!("{}\n", shown(&line.to_string())).as_bytes())
}

/// A text that is safe for a terminal. Control characters, which a log or a name may hold, could move its cursor or set
/// its title.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    let is_obeyed = |char: char| char.is_control() && char != '\n' && char != '\t';
    if !text.contains(is_obeyed) {
        return text.into();
    }
    let mut shown = String::new();
    for char in text.chars() {
        if is_obeyed(char) { shown.extend(char.escape_default()) } else { shown.push(char) }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_that_others_have_written() {
        assert_eq!(shown("h1\tä\nh2"), "h1\tä\nh2");
        assert_eq!(shown("a\x1b]0;title\x07\r\u{9b}2J"), r"a\u{1b}]0;title\u{7}\r\u{9b}2J");
    }
}
