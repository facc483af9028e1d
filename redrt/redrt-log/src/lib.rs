//! Events for developers: `REDRT_LOG=engine=debug,redrun=trace` shows the events of these parts, a line each on
//! standard error.
//!
//! The parts are the targets of events: `engine`, `runtime`, `redrun`, `redrtd`. Without the variable there is no
//! subscriber, and an event costs a look at one word.
//!
//! The subscriber is our own. Within a replica it must not read the time of day, which is a decision of the leader, nor
//! allocate from the C library's heap.
#![forbid(unsafe_code)]

mod filter;

pub use filter::{Filter, FilterError};

use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::metadata::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The environment variable with the choice of events.
pub const VARIABLE: &str = "REDRT_LOG";

/// Functions that the events are written with.
#[derive(Clone, Copy)]
pub struct Sink {
    /// Name of the process in each line.
    pub who: fn() -> String,
    /// Time of an event in nanoseconds.
    pub now_ns: fn() -> u64,
    /// Shows a line.
    pub show: fn(&str),
}

/// Shows events from now on, if the environment asks for any. The first call counts.
///
/// # Errors
/// When the variable cannot be read. Then no event is shown.
pub fn begin(sink: Sink) -> Result<(), FilterError> {
    let Ok(text) = std::env::var(VARIABLE) else { return Ok(()) };
    let lines = Lines { filter: text.parse()?, sink };
    // An embedding program may have a subscriber already, which then shows the events.
    let _ = tracing::subscriber::set_global_default(lines);
    Ok(())
}

struct Lines {
    filter: Filter,
    sink: Sink,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.filter.shows(metadata.target(), *metadata.level())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.most())
    }

    fn event(&self, event: &Event<'_>) {
        let (at, metadata) = ((self.sink.now_ns)() / 1_000, event.metadata());
        let head = format!("redrt {}.{:06} {}", at / 1_000_000, at % 1_000_000, (self.sink.who)());
        let mut line = Line(format!("{head} {} {}:", metadata.level(), metadata.target()));
        event.record(&mut line);
        (self.sink.show)(&line.0);
    }

    // Spans are not used.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    static SHOWN: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn events_that_are_asked_for_are_a_line_each() {
        let sink = Sink {
            who: || "3.1".to_owned(),
            now_ns: || 12_345_678_000,
            show: |line| SHOWN.lock().unwrap().push(line.to_owned()),
        };
        let lines = Lines { filter: "engine=debug,warn".parse().unwrap(), sink };
        tracing::subscriber::with_default(lines, || {
            tracing::debug!(target: "engine", process = 4, "a link is open");
            tracing::trace!(target: "engine", "not asked for");
            tracing::info!(target: "redrtd", "nor this");
            tracing::warn!(target: "redrtd", "this is");
        });
        let shown = SHOWN.lock().unwrap();
        assert_eq!(
            *shown,
            ["redrt 12.345678 3.1 DEBUG engine: a link is open process=4", "redrt 12.345678 3.1 WARN redrtd: this is"]
        );
    }
}
