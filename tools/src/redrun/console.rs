//! Messages to the user, on standard error, coloured when that is a terminal.

use super::spawned::{Upwards, lock};
use super::standard::Standard;
use job_report::Severity;
use redrt_wire::dynamic::FromSpawned;
use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;

/// Writes lines that begin with the program's name.
#[derive(Debug)]
pub struct Console {
    name: String,
    coloured: bool,
    /// What writes for it while a job runs; else it writes itself.
    standard: RefCell<Option<Arc<Standard>>>,
    shows_status: Cell<bool>,
    /// In a job that was spawned, who is told of errors in place of the user.
    above: Option<Upwards>,
    /// Says nothing: a test that says much would hide what others say.
    #[cfg(test)]
    pub is_silent: bool,
}

impl Console {
    /// A console for the program `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self {
            name: name.to_owned(),
            coloured: wanted && stderr().is_terminal(),
            standard: RefCell::default(),
            shows_status: Cell::new(false),
            above: None,
            #[cfg(test)]
            is_silent: false,
        }
    }

    /// From now on errors are told there.
    pub(super) fn tell_above(&mut self, above: Upwards) {
        self.above = Some(above);
    }

    /// From now on these write: nobody waits for the terminal, file or pipe that standard error is.
    pub(super) fn attach(&self, standard: Arc<Standard>) {
        self.standard.replace(Some(standard));
    }

    /// From now on it writes itself.
    pub(super) fn detach(&self) {
        self.standard.replace(None);
    }

    /// From now on there may be lines at the foot of the terminal, if it is one.
    pub fn allow_status(&self) {
        self.shows_status.set(stderr().is_terminal());
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
        if let Some(above) = &self.above
            && lock(above).send(&FromSpawned::Error(line.to_owned())).is_ok()
        {
            return;
        }
        self.write("\x1b[31m", "error: ", line);
    }

    /// A plain line.
    pub fn plain(&self, line: &str) {
        self.write("", "", line);
    }

    fn write(&self, colour: &str, kind: &str, line: &str) {
        #[cfg(test)]
        if self.is_silent {
            return;
        }
        let (on, off) = if self.coloured && !colour.is_empty() { (colour, "\x1b[0m") } else { ("", "") };
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
