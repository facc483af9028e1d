//! The replication manager's reports, in words for people ([`line()`]) and as records of the audit log ([`record()`]).
//! No decision is made here.

#![forbid(unsafe_code)]

mod line;
mod output;
mod path;
mod record;
mod words;

pub use line::line;
pub use record::{exit_record, record};
pub use words::{bytes_text, counted, drain_command, in_words, line_failure, share_text, time_text};

#[cfg(test)]
mod tests;
