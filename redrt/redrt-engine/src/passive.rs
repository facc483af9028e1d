//! Detects whether this process can go on by itself: a job in which none can is ended, instead of waiting for ever.
//!
//! A process is passive when all of its threads that may call MPI wait in MPI, nothing that has arrived is unread, and
//! nothing waits to go. `redrun` asks all processes twice (Mattern, "Algorithms for distributed termination detection",
//! 1987, the four-counter method). If all were passive both times, with the same counts, and as much had arrived as was
//! sent, nothing was under way in between and nothing will ever move again.

use super::Engine;
use super::message::Data;
use super::request::Operation;
use quiesce::matching::Pattern;
use redrt_types::ViewNumber;
use redrt_wire::control::Passive;

/// Bound on the operations that one process reports as waited for.
const TOLD_MAX: usize = 3;

/// The threads that wait for the polling thread.
#[derive(Default)]
pub struct Waiters {
    waiting: u32,
    /// Threads that were woken and have not looked yet.
    stirred: u32,
    generation: u64,
}

impl Waiters {
    /// Begins a thread's wait. Its end is [`Waiters::end`], with the number returned.
    pub fn begin(&mut self) -> u64 {
        self.waiting += 1;
        self.generation
    }

    /// Ends a wait: the thread has woken, and looks.
    pub fn end(&mut self, begun: u64) {
        self.waiting -= 1;
        if begun != self.generation {
            self.stirred -= 1;
        }
    }

    /// Counts all waiting threads as woken.
    pub fn stir(&mut self) {
        self.generation += 1;
        self.stirred = self.waiting;
    }

    /// Returns true if any thread waits.
    pub fn any(&self) -> bool {
        self.waiting > 0
    }
}

impl Engine {
    /// Returns true if all threads of this process that may call MPI are in calls that wait. A thread that polls in its
    /// call waits as well: its program does not go on.
    pub fn is_waiting(&self, thread_count: u32) -> bool {
        self.polling && self.waiters.waiting + 1 >= thread_count
    }

    /// This process's statement when it is passive; `None` otherwise. `thread_count`: its threads that may call MPI.
    pub fn passive(&mut self, thread_count: u32, view: ViewNumber) -> Option<Passive> {
        let all_wait = self.asleep.is_some() && self.waiters.stirred == 0 && self.waiters.waiting + 1 >= thread_count;
        let is_resuming = || self.replication.as_ref().is_some_and(|replication| replication.is_resuming());
        if !all_wait || self.alarm_ns.is_some() || self.links.is_busy() || is_resuming() || self.meetings.has_any_come()
        {
            return None;
        }
        let (sent_bytes, received_bytes) = self.links.traffic();
        // Board events are there at once and count as sent and received: progress of the program must show.
        let (sent_bytes, received_bytes) = (sent_bytes + self.meetings.count(), received_bytes + self.meetings.count());
        let (waits_for, awaits_leader) = self.waits_for();
        let is_counted = self.replication.as_ref().is_some_and(|replication| replication.counts_calls());
        let places = if is_counted { self.runtime.places() } else { 0 };
        Some(Passive { view, sent_bytes, received_bytes, places, waits_for, awaits_leader })
    }

    /// The oldest incomplete operations in words, and true if the process waits for its leader alone.
    fn waits_for(&mut self) -> (Vec<String>, bool) {
        let mut told = Vec::new();
        for (context, pattern) in self.contexts.posted().filter(|(context, _)| !self.runtime.serves(*context)) {
            let Pattern { source, tag } = pattern;
            let source = source.map_or("any rank".to_owned(), |rank| format!("rank {rank}"));
            if let Some(collective) = self.runtime.told_in_context(context) {
                told.push(format!("{source} to come to {collective}"));
                continue;
            }
            let tag = tag.map_or("any tag".to_owned(), |tag| format!("tag {}", tag.0));
            told.push(format!("a message from {source}, {tag}, {}", self.runtime.label_of_context(context)));
        }
        told.extend(self.meetings.missing(&|context| self.runtime.label_of_context(context)));
        for (_, message) in &self.messages {
            let receives = message.receive.is_some() && !message.is_shadow;
            if receives && matches!(message.data, Data::Placed | Data::Landing(_)) {
                let what = if message.verified { "the payload" } else { "the digests of other replicas" };
                told.push(format!("{what} of a message from rank {}, tag {}", message.source, message.tag));
            }
        }
        let sends = self.requests.iter().filter(|request| !request.complete && !request.detached);
        let sends = sends.filter(|request| matches!(request.operation, Operation::Send)).count();
        if sends > 0 {
            told.push(format!("{sends} sends to be received"));
        }
        let follows = self.replication.as_ref().is_some_and(|replication| !replication.is_deciding());
        let awaits_leader = told.is_empty() && follows;
        if told.is_empty()
            && let Some(replication) = &self.replication
        {
            told.extend(replication.owed());
        }
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
    fn a_thread_counts_as_stirred_until_it_has_looked() {
        let mut waiters = Waiters::default();
        let first = waiters.begin();
        waiters.stir();
        // The second thread begins after the call that woke the first.
        let second = waiters.begin();
        assert_eq!(waiters.stirred, 1);
        // It woke for no reason: it was not among the stirred threads.
        waiters.end(second);
        assert_eq!(waiters.stirred, 1);
        waiters.stir();
        waiters.end(first);
        assert_eq!(waiters.stirred, 0);
        assert!(!waiters.any());
    }
}
