//! Changing lines at the foot of a terminal: below all other text, and cleared before other text is written.

use console::{Term, truncate_str};
use std::io::Write;

/// Status lines. `terminal` is `None` if standard error is no terminal, or status lines are not wanted.
#[derive(Debug, Default)]
pub struct StatusLines {
    terminal: Option<Term>,
    lines: Vec<String>,
    shown_count: usize,
    /// True while the cursor is within a line of the program's output, which must not be overwritten.
    is_held: bool,
}

impl StatusLines {
    /// Shows lines on standard error if it is a terminal.
    #[must_use]
    pub fn new() -> Self {
        let terminal = Some(Term::stderr()).filter(Term::is_term);
        Self { terminal, ..Self::default() }
    }

    /// True if there is a terminal to show them on.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.terminal.is_some()
    }

    /// Replaces the lines.
    pub fn set(&mut self, lines: Vec<String>) {
        if self.lines != lines {
            self.clear();
            self.lines = lines;
            self.draw();
        }
    }

    /// Clears the lines before other text is written.
    pub fn clear(&mut self) {
        if let Some(terminal) = self.terminal.as_ref().filter(|_| self.shown_count > 0) {
            // A terminal that is gone is no reason to stop.
            let _ = terminal.clear_last_lines(self.shown_count);
        }
        self.shown_count = 0;
    }

    /// Draws the lines again after other text. `is_at_start`: the cursor is at the start of a line.
    pub fn resume(&mut self, is_at_start: bool) {
        self.is_held = !is_at_start;
        self.draw();
    }

    fn draw(&mut self) {
        let Some(terminal) = self.terminal.as_mut().filter(|_| !self.is_held && self.shown_count == 0) else { return };
        let (row_count, column_count) = terminal.size();
        let room = usize::from(row_count).saturating_sub(1);
        let shown = self.lines.iter().take(room);
        self.shown_count = shown.len();
        let lines: String = shown.map(|line| format!("{}\n", truncate_str(line, column_count.into(), "…"))).collect();
        let _ = terminal.write_all(lines.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::pty::openpty;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;

    /// Status lines on a terminal, and the terminal's other end.
    fn on_terminal() -> (StatusLines, File) {
        let pair = openpty(None, None).unwrap();
        let slave = File::from(pair.slave);
        let terminal = Term::read_write_pair(slave.try_clone().unwrap(), slave);
        (StatusLines { terminal: Some(terminal), ..StatusLines::default() }, File::from(pair.master))
    }

    /// Reads the terminal's other end until `awaited` appears, or until nothing more comes.
    fn seen(end: &mut File, awaited: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(awaited) {
            let mut fds = [PollFd::new(end.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, PollTimeout::from(5_000u16)).unwrap() == 0 {
                break;
            }
            let mut bytes = [0; 4096];
            let count = end.read(&mut bytes).unwrap();
            seen += &String::from_utf8_lossy(&bytes[..count]);
        }
        seen
    }

    #[test]
    fn lines_are_taken_away_before_anything_else_is_written() {
        let (mut lines, mut end) = on_terminal();
        lines.set(vec!["one".into()]);
        assert_eq!(seen(&mut end, "\n"), "one\r\n");
        lines.clear();
        assert!(seen(&mut end, "\u{1b}[2K").contains("\u{1b}[2K"));
        lines.resume(true);
        assert!(seen(&mut end, "one\r\n").ends_with("one\r\n"));
    }

    #[test]
    fn a_line_that_the_program_has_not_ended_is_left_alone() {
        let (mut lines, mut end) = on_terminal();
        lines.resume(false);
        lines.set(vec!["hidden".into()]);
        lines.resume(true);
        assert_eq!(seen(&mut end, "\n"), "hidden\r\n");
        // Shown once.
        assert_eq!(lines.shown_count, 1);
    }

    #[test]
    fn without_a_terminal_nothing_is_shown() {
        let mut lines = StatusLines::default();
        lines.set(vec!["one".into()]);
        lines.clear();
        assert!(!lines.is_shown() && lines.shown_count == 0);
    }
}
