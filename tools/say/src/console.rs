//! Messages to the user, on standard error, coloured when that is a terminal.

use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;

/// How urgent a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Something went wrong and was dealt with.
    Warning,
    /// The job fails.
    Error,
}

/// Where a console's lines go while others write to standard error too.
pub trait Lines: std::fmt::Debug {
    /// Writes a line.
    fn error(&self, line: Vec<u8>);
    /// Shows these lines at the foot of the terminal.
    fn show_status(&self, lines: Vec<String>);
}

/// Is told of an error in place of the user; whether it was.
type Above = Box<dyn Fn(&str) -> bool>;

/// Writes lines that begin with the program's name.
pub struct Console {
    name: String,
    coloured: Cell<bool>,
    /// What writes for it while a job runs; else it writes itself.
    standard: RefCell<Option<Arc<dyn Lines>>>,
    shows_status: Cell<bool>,
    /// In a job that was spawned, who is told of errors in place of the user.
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
        console.look_at_terminal();
        console
    }

    /// Standard error may have become a terminal, or ceased to be one.
    pub fn look_at_terminal(&self) {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        self.coloured.set(wanted && stderr().is_terminal());
    }

    /// A console that says nothing: a test that says much would hide what others say.
    #[must_use]
    pub fn silent(name: &str) -> Self {
        Self { is_silent: true, ..Self::new(name) }
    }

    /// From now on errors are told there.
    pub fn tell_above(&mut self, above: impl Fn(&str) -> bool + 'static) {
        self.above = Some(Box::new(above));
    }

    /// From now on these write: nobody waits for the terminal, file or pipe that standard error is.
    pub fn attach(&self, standard: Arc<dyn Lines>) {
        self.standard.replace(Some(standard));
    }

    /// From now on it writes itself.
    pub fn detach(&self) {
        self.standard.replace(None);
    }

    /// From now on there may be lines at the foot of the terminal, if it is one, and if they `are_wanted`.
    pub fn allow_status(&self, are_wanted: bool) {
        self.shows_status.set(are_wanted && stderr().is_terminal());
    }

    /// Whether lines at the foot are seen.
    #[must_use]
    pub fn shows_status(&self) -> bool {
        self.shows_status.get()
    }

    /// Shows these lines at the foot.
    pub fn show_status(&self, lines: Vec<String>) {
        if let Some(standard) = self.standard.borrow().as_ref().filter(|_| self.shows_status()) {
            standard.show_status(lines);
        }
    }

    /// A line of some urgency.
    pub fn say(&self, severity: Severity, line: &str) {
        match severity {
            Severity::Note => self.plain(line),
            Severity::Warning => self.warning(line),
            Severity::Error => self.error(line),
        }
    }

    /// A warning.
    pub fn warning(&self, line: &str) {
        self.write("\x1b[33m", "warning: ", line);
    }

    /// An error.
    pub fn error(&self, line: &str) {
        if self.above.as_ref().is_some_and(|above| above(line)) {
            return;
        }
        self.write("\x1b[31m", "error: ", line);
    }

    /// A plain line.
    pub fn plain(&self, line: &str) {
        self.write("", "", line);
    }

    fn write(&self, colour: &str, kind: &str, line: &str) {
        if self.is_silent {
            return;
        }
        let (on, off) = if self.coloured.get() && !colour.is_empty() { (colour, "\x1b[0m") } else { ("", "") };
        // One write a line, so that it does not mix with what others print.
        // What a process says of itself may be anything.
        let line = line.replace(char::is_control, " ");
        let whole = format!("{}: {on}{kind}{off}{line}\n", self.name);
        match &*self.standard.borrow() {
            Some(standard) => standard.error(whole.into_bytes()),
            None => drop(stderr().write_all(whole.as_bytes())),
        }
    }
}
