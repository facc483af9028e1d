//! Lines that a run shows. A line is made only if somebody reads it.

use std::cell::RefCell;
use std::collections::VecDeque;

/// The lines that a recording keeps: the last ones.
const KEPT_LINES: usize = 40;

thread_local! {
    static RECORDED: RefCell<VecDeque<String>> = const { RefCell::new(VecDeque::new()) };
}

/// The reader of a run's lines.
#[derive(Clone, Copy, Debug, Default)]
pub enum Trace {
    /// Nobody: no line is made.
    #[default]
    Off,
    /// The thread of the run keeps the last lines ([`take`]).
    Recorded,
    /// Each line is passed on at once, also by a run that does not end.
    To(fn(&str)),
}

impl Trace {
    /// True if somebody reads the lines: for what is gone by the time a line is made.
    #[must_use]
    pub fn is_read(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Shows a line.
    pub fn say(self, line: impl FnOnce() -> String) {
        match self {
            Self::Off => {}
            Self::Recorded => RECORDED.with_borrow_mut(|lines| {
                lines.push_back(line());
                if lines.len() > KEPT_LINES {
                    lines.pop_front();
                }
            }),
            Self::To(show) => show(&line()),
        }
    }
}

/// The last lines that this thread has recorded. The recording begins anew.
#[must_use]
pub fn take() -> Vec<String> {
    RECORDED.take().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_keeps_the_last_lines() {
        (0..100).for_each(|number| Trace::Recorded.say(|| number.to_string()));
        let lines = take();
        assert_eq!((lines.len(), lines.last().map(String::as_str)), (KEPT_LINES, Some("99")));
        assert!(take().is_empty());
    }

    #[test]
    fn no_line_is_made_that_nobody_reads() {
        Trace::Off.say(|| panic!("it is made"));
    }
}
