//! Detects whether this process can go on by itself: a job in which none can is ended, instead of waiting for ever.
//!
//! A process is passive when all of its threads that may call MPI wait in MPI, nothing that has arrived is unread, and
//! nothing waits to go. `redrun` asks all processes twice (Mattern, "Algorithms for distributed termination detection",
//! 1987, the four-counter method). If all were passive both times, with the same counts, and as much had arrived as was
//! sent, nothing was under way in between and nothing will ever move again.

use super::replication::Replication;
use super::request::{Operation, Requests};
use super::runtime::Runtime;
use quiesce::matching::Pattern;

/// Bound on the operations that one process reports as waited for.
const TOLD_MAX: usize = 3;

/// The operations that a process waits for.
#[derive(Default)]
pub(super) struct Awaited {
    told: Vec<String>,
    awaits_leader: bool,
}

impl Awaited {
    /// Adds posted receives, by context and pattern.
    pub fn add_receives(&mut self, runtime: &dyn Runtime, posted: impl Iterator<Item = (u64, Pattern)>) {
        for (context, pattern) in posted.filter(|(context, _)| !runtime.serves(*context)) {
            let Pattern { source, tag } = pattern;
            let source = source.map_or("any rank".to_owned(), |rank| format!("rank {rank}"));
            if let Some(collective) = runtime.told_in_context(context) {
                self.told.push(format!("{source} to come to {collective}"));
                continue;
            }
            let tag = tag.map_or("any tag".to_owned(), |tag| format!("tag {}", tag.0));
            self.told.push(format!("a message from {source}, {tag}, {}", runtime.label_of_context(context)));
        }
    }

    /// Adds these descriptions.
    pub fn add(&mut self, told: impl IntoIterator<Item = String>) {
        self.told.extend(told);
    }

    /// Adds sends that are not complete.
    pub fn add_sends(&mut self, requests: &Requests) {
        let sends = requests.iter().filter(|request| !request.complete && !request.detached);
        let sends = sends.filter(|request| matches!(request.operation, Operation::Send)).count();
        if sends > 0 {
            self.told.push(format!("{sends} sends to be received"));
        }
    }

    /// Adds the other replicas, if the process waits for nothing else.
    pub fn add_replicas(&mut self, replication: &Replication) {
        if self.told.is_empty() {
            self.awaits_leader = !replication.is_deciding();
            self.told.extend(replication.owed());
        }
    }

    /// The oldest of them in words, and true if the process waits for its leader alone.
    pub fn in_words(self) -> (Vec<String>, bool) {
        let Self { mut told, awaits_leader } = self;
        if told.is_empty() {
            let what = if awaits_leader { "its leader's decision" } else { "the other ranks" };
            told.push(what.to_owned());
        }
        let more = told.len().saturating_sub(TOLD_MAX);
        told.truncate(TOLD_MAX);
        if more > 0 {
            told.push(format!("{more} more"));
        }
        (told, awaits_leader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_much_that_is_awaited_the_oldest_is_told() {
        let mut awaited = Awaited::default();
        assert_eq!(Awaited::default().in_words(), (vec!["the other ranks".to_owned()], false));
        awaited.add(["a", "b", "c", "d", "e"].map(str::to_owned));
        let (told, awaits_leader) = awaited.in_words();
        assert_eq!((told, awaits_leader), (["a", "b", "c", "2 more"].map(str::to_owned).to_vec(), false));
    }
}
