//! What was asked of the outside and not answered yet: a root that comes back asks again, since who was at it ended
//! with the one before.
//!
//! Whoever is asked twice does it once: a line that is kept is not kept again, and a life that nobody was launched in
//! is begun anew.

use super::{Output, Root};
use coordinator::{Input, StoreNews, TakenLine};
use redrt_wire::line::Generation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// See the module.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Unanswered {
    /// What the store is at.
    line: Option<LineWork>,
    /// Lines that are given up: what has become of them is to be said.
    dropped: BTreeSet<Generation>,
    /// All processes are gone, and others are to take their places.
    return_count: Option<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
enum LineWork {
    Open(Generation),
    Commit(Box<TakenLine>),
}

impl LineWork {
    fn generation(&self) -> Generation {
        match self {
            Self::Open(generation) => *generation,
            Self::Commit(taken) => taken.generation,
        }
    }
}

impl Unanswered {
    /// This is asked.
    pub fn ask(&mut self, output: &Output) {
        match output {
            Output::OpenLine(generation) => self.line = Some(LineWork::Open(*generation)),
            Output::CommitLine(taken) => self.line = Some(LineWork::Commit(taken.clone())),
            Output::DropLine(generation) => {
                self.line_is_settled(*generation);
                self.dropped.insert(*generation);
            }
            Output::GoBack { count } => (self.line, self.return_count) = (None, Some(*count)),
            _ => {}
        }
    }

    pub fn hear(&mut self, input: &Input) {
        match input {
            Input::Store { generation, news: StoreNews::Committed | StoreNews::Failed(_) } => {
                self.line_is_settled(*generation);
            }
            Input::Store { generation, news: StoreNews::Dropped } => {
                self.dropped.remove(generation);
            }
            _ => {}
        }
    }

    /// The store has a place for it, or has done with it.
    pub fn line_is_settled(&mut self, generation: Generation) {
        self.line.take_if(|work| work.generation() == generation);
    }

    /// Others are being launched.
    pub fn launched(&mut self) {
        self.return_count = None;
    }
}

impl Root {
    /// What was asked of the outside, and is to be asked again by a root that comes back.
    pub fn unanswered(&self) -> impl Iterator<Item = Output> + '_ {
        let line = self.unanswered.line.iter().map(|work| match work {
            LineWork::Open(generation) => Output::OpenLine(*generation),
            LineWork::Commit(taken) => Output::CommitLine(taken.clone()),
        });
        let dropped = self.unanswered.dropped.iter().map(|generation| Output::DropLine(*generation));
        dropped.chain(line).chain(self.unanswered.return_count.map(|count| Output::GoBack { count }))
    }
}
