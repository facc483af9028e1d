//! Messages to the user on standard error, coloured when that is a terminal.

use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;

/// Urgency of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Something went wrong and was dealt with.
    Warning,
    /// The job fails.
    Error,
}

/// Writer of a console's lines while others write to standard error too.
pub trait Lines: std::fmt::Debug {
    /// Writes a line.
    fn error(&self, line: Vec<u8>);
    /// Shows these lines at the foot of the terminal.
    fn show_status(&self, lines: Vec<String>);
}

/// Reports an error elsewhere than to the user; returns true if that worked.
type Above = Box<dyn Fn(&str) -> bool>;

/// Writes lines that begin with the program's name.
pub struct Console {
    name: String,
    coloured: Cell<bool>,
    /// Writer of the lines while a job runs; without one, the console writes itself.
    standard: RefCell<Option<Arc<dyn Lines>>>,
    shows_status: Cell<bool>,
    /// In a spawned job: reports errors to another place than the user.
    above: Option<Above>,
    is_silent: bool,
}

impl Console {
    /// A console for the program `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let console = Self {
            name: name.to_owned(),
            coloured: Cell::new(false),
            standard: RefCell::default(),
            shows_status: Cell::new(false),
            above: None,
            is_silent: false,
        };
        console.inspect_terminal();
        console
    }

    /// Checks again if standard error is a terminal.
    pub fn inspect_terminal(&self) {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        self.coloured.set(wanted && stderr().is_terminal());
    }

    /// A console that writes nothing, for tests whose lines would hide those of others.
    #[must_use]
    pub fn silent(name: &str) -> Self {
        Self { is_silent: true, ..Self::new(name) }
    }

    /// From now on errors go to `above` first; the user sees those it does not take.
    pub fn report_above(&mut self, above: impl Fn(&str) -> bool + 'static) {
        self.above = Some(Box::new(above));
    }

    /// From now on `standard` writes: the caller never waits for the terminal, file or pipe behind standard error.
    pub fn attach(&self, standard: Arc<dyn Lines>) {
        self.standard.replace(Some(standard));
    }

    /// From now on the console writes itself again.
    pub fn detach(&self) {
        self.standard.replace(None);
    }

    /// Allows lines at the foot of the terminal, if standard error is one and `are_wanted`.
    pub fn allow_status(&self, are_wanted: bool) {
        self.shows_status.set(are_wanted && stderr().is_terminal());
    }

    /// True if lines at the foot are visible.
    #[must_use]
    pub fn shows_status(&self) -> bool {
        self.shows_status.get()
    }

    /// Shows these lines at the foot of the terminal.
    pub fn show_status(&self, lines: Vec<String>) {
        if let Some(standard) = self.standard.borrow().as_ref().filter(|_| self.shows_status()) {
            standard.show_status(lines);
        }
    }

    /// Writes a line with this urgency.
    pub fn say(&self, severity: Severity, line: &str) {
        match severity {
            Severity::Note => self.plain(line),
            Severity::Warning => self.warning(line),
            Severity::Error => self.error(line),
        }
    }

    /// Writes a warning.
    pub fn warning(&self, line: &str) {
        self.write("\x1b[33m", "warning: ", line);
    }

    /// Writes an error, unless it was reported elsewhere.
    pub fn error(&self, line: &str) {
        if self.above.as_ref().is_some_and(|above| above(line)) {
            return;
        }
        self.write("\x1b[31m", "error: ", line);
    }

    /// Writes a line without a mark of urgency.
    pub fn plain(&self, line: &str) {
        self.write("", "", line);
    }

    fn write(&self, colour: &str, kind: &str, line: &str) {
        if self.is_silent {
            return;
        }
        let (on, off) = if self.coloured.get() && !colour.is_empty() { (colour, "\x1b[0m") } else { ("", "") };
        // One write for a line: it does not mix with the output of others. Control characters are replaced, as a
        // process's own words may hold any.
        let line = line.replace(char::is_control, " ");
        let whole = format!("{}: {on}{kind}{off}{line}\n", self.name);
        match &*self.standard.borrow() {
            Some(standard) => standard.error(whole.into_bytes()),
            None => drop(stderr().write_all(whole.as_bytes())),
        }
    }
}
