//! Requests to the outside that have not been answered. A root that comes back repeats them, since the work on them
//! ended with the process of the one before.
//!
//! A repeated request is harmless: a checkpoint that is kept is not kept again, and a life in which no process was
//! launched is begun anew.

use super::{Output, Root};
use coordinator::{Input, StoreNews, TakenLine};
use redrt_wire::line::Generation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The requests without an answer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Unanswered {
    /// The request to the store that is being carried out.
    line: Option<LineWork>,
    /// Checkpoints that were given up, until the store says what has become of them.
    dropped: BTreeSet<Generation>,
    /// The number of a start from a checkpoint, from the end of all processes until others are launched.
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
    /// Records the request that an output makes, if it makes one.
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

    /// Drops the request for a checkpoint: the store has a place for it, or has done with it.
    pub fn line_is_settled(&mut self, generation: Generation) {
        self.line.take_if(|work| work.generation() == generation);
    }

    /// Drops the request to go back, because processes are being launched.
    pub fn launched(&mut self) {
        self.return_count = None;
    }
}

impl Root {
    /// The requests that a root which comes back must repeat.
    pub fn unanswered(&self) -> impl Iterator<Item = Output> + '_ {
        let line = self.unanswered.line.iter().map(|work| match work {
            LineWork::Open(generation) => Output::OpenLine(*generation),
            LineWork::Commit(taken) => Output::CommitLine(taken.clone()),
        });
        let dropped = self.unanswered.dropped.iter().map(|generation| Output::DropLine(*generation));
        dropped.chain(line).chain(self.unanswered.return_count.map(|count| Output::GoBack { count }))
    }
}
