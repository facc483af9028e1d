//! The machine that decides or follows the order of one process's threads.

use crate::counts::Counts;
#[cfg(any(test, feature = "simulation"))]
use crate::sim::Mistake;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// One operation on a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// The thread's number, the same in all replicas.
    pub thread: u64,
    /// Position among the thread's operations, from 1 on.
    pub number: u64,
}

/// Facts of an operation that a follower cannot guess.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Number of the operation.
    pub number: u64,
    /// Operations of other threads that came before it: those that had the lock last.
    pub after: Vec<Operation>,
    /// True if the thread has the lock afterwards.
    pub takes: bool,
    /// Result of the call: 0 or an error number; on a channel whatever the call returned.
    pub result: i32,
    /// Further facts of the call, in bytes of the caller's: the descriptors that a wait found ready.
    pub found: Vec<u8>,
}

/// A thread's state when the order began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Number of operations that it had made.
    pub made: u64,
    /// True if it waited to be woken by others.
    pub waits: bool,
}

/// A thread's operations since the previous batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// The thread's number.
    pub thread: u64,
    /// Number of its last operation.
    pub until: u64,
    /// Its events by number. Operations without an event take their lock and return 0.
    pub events: Vec<Event>,
    /// In the first batch, for a thread that is older than the order.
    pub begins: Option<Point>,
}

/// Operations of all threads since the previous batch. An empty one ends the order: see [`Order::learn`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Batch(pub Vec<Progress>);

/// Treatment of a thread's next operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Not yet: the thread asks again when a batch was learned, or another thread has made an operation.
    Wait,
    /// Free: the thread acts by itself, and reports by [`Order::record`].
    Free,
    /// The order is over: threads run as they come.
    Over,
    /// As in the leader: the thread takes the lock, or does not, and reports by [`Order::follow`].
    Decided {
        /// True if it waits for the lock and takes it.
        takes: bool,
        /// Result that the call must return.
        result: i32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Follows,
    /// The leader was lost: this process makes the operations of its batches before it goes on by itself.
    TakesOver,
    Leads,
    /// Threads are no longer ordered.
    Over,
}

#[derive(Debug)]
struct Thread {
    counts: Arc<Counts>,
    /// State when the order began, until that is in a batch.
    begins: Option<Point>,
    /// Number of the last operation in a batch.
    told: u64,
    /// Events of operations in batches that are not made yet; where this process leads, of operations that are in no
    /// batch yet.
    events: VecDeque<Event>,
    /// True once it makes no more operations.
    has_left: bool,
}

impl Thread {
    fn new(leads: bool) -> Self {
        let counts = Arc::new(Counts::new(leads));
        Self { counts, begins: None, told: 0, events: VecDeque::new(), has_left: false }
    }

    /// The leader's event of the next operation, if it has one.
    fn next_event(&self) -> Option<&Event> {
        self.events.front().filter(|event| event.number == self.counts.made() + 1)
    }

    /// Lets the thread make operations of its batches by shortcuts, up to the next event.
    fn allow(&self) {
        self.counts.allow(self.events.front().map_or(self.told, |event| self.told.min(event.number - 1)));
    }
}

impl Clone for Thread {
    /// Clones the counts too: those of a copy are its own.
    fn clone(&self) -> Self {
        let counts = Arc::new(Counts::clone(&self.counts));
        let Self { begins, told, has_left, .. } = *self;
        Self { counts, begins, told, events: self.events.clone(), has_left }
    }
}

/// The order of one process.
#[derive(Clone, Debug)]
pub struct Order {
    role: Role,
    /// True if the order ends when this process has taken over.
    leaves_off: bool,
    /// True once the leader has ended the order: no further batch comes.
    has_last: bool,
    /// True once the order has begun in a follower, until the caller has woken threads that wait since before.
    has_sleepers: bool,
    threads: BTreeMap<u64, Thread>,
    /// Threads that have left, with all their operations made and in batches.
    gone: BTreeSet<u64>,
    /// Latest operation on each channel.
    channels: BTreeMap<u64, Operation>,
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) mistake: Option<Mistake>,
}

impl Order {
    /// The order of a process that leads, or follows another.
    #[must_use]
    pub fn new(leads: bool) -> Self {
        let role = if leads { Role::Leads } else { Role::Follows };
        Self {
            role,
            leaves_off: false,
            has_last: false,
            has_sleepers: false,
            threads: BTreeMap::new(),
            gone: BTreeSet::new(),
            channels: BTreeMap::new(),
            #[cfg(any(test, feature = "simulation"))]
            mistake: None,
        }
    }

    fn thread(&mut self, number: u64) -> &mut Thread {
        let (leads, is_over) = (self.leads(), self.is_over());
        self.threads.entry(number).or_insert_with(|| {
            let new = Thread::new(leads);
            if is_over {
                new.counts.end();
            }
            new
        })
    }

    /// Shared counts of a thread, for its shortcuts.
    #[must_use]
    pub fn counts(&mut self, thread: u64) -> Arc<Counts> {
        Arc::clone(&self.thread(thread).counts)
    }

    /// Adds a thread that is older than the order, with its state. To be called before any thread asks for its turn.
    pub fn adopt(&mut self, thread: u64, point: Point) {
        let of = self.thread(thread);
        of.counts.set_made(point.made);
        of.begins = Some(point);
    }

    /// Returns true once in a follower whose threads were adopted, when the order has begun. Then threads that have
    /// waited since before are to be woken: the leader decides which of them goes on, and a signal may reach another
    /// one here.
    #[must_use]
    pub fn takes_sleepers(&mut self) -> bool {
        std::mem::take(&mut self.has_sleepers)
    }

    /// Takes in that a thread has ended: it makes no more operations, and its counts are out of use.
    pub fn leave(&mut self, thread: u64) {
        self.thread(thread).has_left = true;
        self.forget(thread);
    }

    /// Drops a thread that has left, once nothing of it is outstanding.
    fn forget(&mut self, thread: u64) {
        let is_done =
            |of: &Thread| of.has_left && of.begins.is_none() && of.counts.made() == of.told && of.events.is_empty();
        if self.threads.get(&thread).is_some_and(is_done) {
            self.threads.remove(&thread);
            self.gone.insert(thread);
        }
    }

    /// Makes this process the leader. It must have learned all batches that one of its siblings holds.
    pub fn lead(&mut self) {
        if self.role == Role::Follows {
            self.role = Role::TakesOver;
        }
    }

    /// Ends the order here: threads run as they come. Returns the last batch of a leader, whose siblings need an empty
    /// one after it.
    pub fn end(&mut self) -> Option<Batch> {
        let last = self.cut();
        self.role = Role::Over;
        for thread in self.threads.values_mut() {
            thread.counts.end();
            thread.events.clear();
        }
        last
    }

    /// Ends the order once the operations in batches are made: at once in a leader that has made them, in a follower
    /// when its leader ends it too, or is lost. To be called in each replica at the same operation of the program.
    ///
    /// Returns true if the order is over: then the caller has to call [`Order::end`] and tell the siblings.
    #[must_use]
    pub fn leave_off(&mut self) -> bool {
        self.leaves_off = true;
        #[cfg(any(test, feature = "simulation"))]
        if self.mistake == Some(Mistake::LeavesOffAlone) {
            let _ = self.end();
        }
        matches!(self.role, Role::Leads | Role::Over)
    }

    /// Returns true once threads are no longer ordered.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.role == Role::Over
    }

    /// Returns true if its threads go on by themselves.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.role == Role::Leads
    }

    /// Makes this process, a copy of the one whose order this was, a follower. A leader must be copied after a cut:
    /// operations in no batch would mislead its copy if the leader is lost before it cuts.
    pub fn join(&mut self) {
        if self.is_over() {
            return;
        }
        for thread in self.threads.values_mut() {
            if self.role == Role::Leads {
                thread.events.clear();
            }
            thread.allow();
        }
        self.role = if self.has_last { Role::TakesOver } else { Role::Follows };
    }

    /// Treatment of a thread's next operation.
    #[must_use]
    pub fn next(&mut self, thread: u64) -> Step {
        self.thread(thread);
        match self.role {
            Role::Leads => return Step::Free,
            Role::Over => return Step::Over,
            Role::Follows | Role::TakesOver => {}
        }
        let of = &self.threads[&thread];
        if of.counts.made() < of.told {
            let Some(Event { after, takes, result, .. }) = of.next_event() else {
                return Step::Decided { takes: true, result: 0 };
            };
            let decided = Step::Decided { takes: *takes, result: *result };
            return if after.iter().all(|before| self.has_made(*before)) { decided } else { Step::Wait };
        }
        if self.role == Role::TakesOver && self.has_caught_up() {
            if self.leaves_off || self.has_last {
                let _ = self.end();
                return Step::Over;
            }
            self.role = Role::Leads;
            self.threads.values().for_each(|thread| thread.counts.lead());
            return Step::Free;
        }
        Step::Wait
    }

    /// The same with batches that this process holds. A batch is taken only when the thread has nothing to do without
    /// it: the batches left show the leader, which waits for it, how far this process is behind.
    #[must_use]
    pub fn next_by(&mut self, thread: u64, mut held: impl FnMut() -> Option<Batch>) -> Step {
        loop {
            let step = self.next(thread);
            if step != Step::Wait {
                return step;
            }
            let Some(batch) = held() else { return step };
            self.learn(batch);
        }
    }

    /// Another thread of this process that this one waits for. Its operation comes before this thread's next one, or
    /// has to be made before threads go on by themselves. `None`: the leader has to send more.
    #[must_use]
    pub fn awaited_by(&self, thread: u64) -> Option<u64> {
        let of = self.threads.get(&thread)?;
        if let Some(event) = of.next_event() {
            return event.after.iter().find(|before| !self.has_made(**before)).map(|before| before.thread);
        }
        let mut behind = self.threads.iter().filter(|(_, thread)| thread.counts.made() < thread.told);
        behind.find(|_| self.role == Role::TakesOver).map(|(number, _)| *number)
    }

    /// The thread that has ended here without an operation for which this one waits; `None` if it does not wait in
    /// vain. The program has taken another path than in the leader.
    #[must_use]
    pub fn ended_before(&self, thread: u64) -> Option<u64> {
        let of = self.threads.get(&thread)?;
        if let Some(event) = of.next_event() {
            let is_vain = |before: &&Operation| !self.has_made(**before) && self.has_left(before.thread);
            return event.after.iter().find(is_vain).map(|before| before.thread);
        }
        let takes_over = self.role == Role::TakesOver && of.counts.made() == of.told;
        let is_vain = |(number, of): &(&u64, &Thread)| of.counts.made() < of.told && self.has_left(**number);
        self.threads.iter().filter(|_| takes_over).find(is_vain).map(|(number, _)| *number)
    }

    /// Returns true if a batch has an operation that this thread has not made.
    #[must_use]
    pub fn has_next(&self, thread: u64) -> bool {
        self.threads.get(&thread).is_some_and(|of| of.counts.made() < of.told)
    }

    /// Returns true if another thread cannot make its next operation before this one has made its own.
    #[must_use]
    pub fn is_awaited(&self, thread: u64) -> bool {
        let awaits = |of: &Thread| {
            let mut after = of.next_event().into_iter().flat_map(|event| &event.after);
            after.any(|before| before.thread == thread && !self.has_made(*before))
        };
        self.threads.values().any(awaits)
    }

    /// Returns true if a thread has ended, so that it makes no more of the operations that it has not made.
    fn has_left(&self, thread: u64) -> bool {
        #[cfg(any(test, feature = "simulation"))]
        if self.mistake == Some(Mistake::WaitsForEnded) {
            return false;
        }
        // When the order begins, the operations of a thread that has left count as made.
        self.threads.get(&thread).is_some_and(|of| of.has_left && of.begins.is_none())
    }

    fn has_made(&self, operation: Operation) -> bool {
        let is_gone = self.gone.contains(&operation.thread);
        #[cfg(any(test, feature = "simulation"))]
        if is_gone && self.mistake == Some(Mistake::GoneUnknown) {
            return false;
        }
        is_gone || self.threads.get(&operation.thread).is_some_and(|thread| thread.counts.made() >= operation.number)
    }

    /// Returns true if all operations in batches are made.
    fn has_caught_up(&self) -> bool {
        #[cfg(any(test, feature = "simulation"))]
        if self.mistake == Some(Mistake::LeadsAtOnce) {
            return true;
        }
        self.threads.values().all(|thread| thread.counts.made() >= thread.told)
    }

    /// Counts an operation that a thread has made as the leader did.
    pub fn follow(&mut self, thread: u64) -> Operation {
        let of = self.thread(thread);
        if of.next_event().is_some() {
            of.events.pop_front();
        }
        let number = of.counts.go();
        of.allow();
        Operation { thread, number }
    }

    /// Records an operation that a thread of the leader has made. `after`: the latest operations of other threads that
    /// had the lock, if this one takes it.
    pub fn record(&mut self, thread: u64, after: Vec<Operation>, takes: bool, result: i32) -> Operation {
        self.record_found(thread, after, takes, (result, &[]))
    }

    fn record_found(
        &mut self,
        thread: u64,
        after: Vec<Operation>,
        takes: bool,
        (result, found): (i32, &[u8]),
    ) -> Operation {
        let of = self.thread(thread);
        // The event is there before the operation counts: a cut may be made at any moment.
        if !after.is_empty() || !takes || result != 0 || !found.is_empty() {
            of.events.push_back(Event { number: of.counts.made() + 1, after, takes, result, found: found.to_vec() });
        }
        Operation { thread, number: of.counts.go() }
    }

    /// Records that a thread of the leader is the next one to post on a channel, which others use too. Its post may
    /// leave once this operation is in a batch.
    pub fn record_on(&mut self, channel: u64, thread: u64) -> Operation {
        self.record_outcome(channel, thread, 0, &[])
    }

    /// Records that a thread of the leader has made the next call on a channel, with its result and what it found.
    pub fn record_outcome(&mut self, channel: u64, thread: u64, result: i32, found: &[u8]) -> Operation {
        let last = self.channels.get(&channel).filter(|last| last.thread != thread);
        let after = last.copied().into_iter().collect();
        #[cfg(any(test, feature = "simulation"))]
        let result = if self.mistake == Some(Mistake::OutcomeUnsent) { 0 } else { result };
        #[cfg(any(test, feature = "simulation"))]
        let after = if self.mistake == Some(Mistake::ChannelUnsent) { Vec::new() } else { after };
        let operation = self.record_found(thread, after, true, (result, found));
        self.channels.insert(channel, operation);
        operation
    }

    /// Further facts of the leader's call that is this thread's next operation.
    #[must_use]
    pub fn found(&self, thread: u64) -> &[u8] {
        self.threads.get(&thread).and_then(Thread::next_event).map_or(&[], |event| &event.found)
    }

    /// Counts that a thread is the next one on a channel, as in the leader.
    pub fn follow_on(&mut self, channel: u64, thread: u64) -> Operation {
        let operation = self.follow(thread);
        self.channels.insert(channel, operation);
        operation
    }

    /// Cuts the operations since the last cut into a batch; `None` if there are none, or this process does not lead.
    ///
    /// Threads may make operations without events meanwhile. An operation's predecessors count before it is recorded,
    /// so the cut has them too.
    pub fn cut(&mut self) -> Option<Batch> {
        if self.role != Role::Leads {
            return None;
        }
        let mut progress = Vec::new();
        for (number, thread) in &mut self.threads {
            let made = thread.counts.made();
            if made > thread.told || thread.begins.is_some() {
                #[cfg(any(test, feature = "simulation"))]
                if self.mistake == Some(Mistake::TornCut) && number % 2 == 1 && made > thread.told + 1 {
                    thread.told += 1;
                    let is_told = |event: &Event| event.number <= thread.told;
                    let events = std::mem::take(&mut thread.events);
                    let (told, rest) = events.into_iter().partition::<VecDeque<_>, _>(is_told);
                    thread.events = rest;
                    let begins = thread.begins.take();
                    progress.push(Progress { thread: *number, until: thread.told, events: told.into(), begins });
                    continue;
                }
                thread.told = made;
                let events = std::mem::take(&mut thread.events).into();
                progress.push(Progress { thread: *number, until: made, events, begins: thread.begins.take() });
            }
        }
        progress.iter().for_each(|of| self.forget(of.thread));
        (!progress.is_empty()).then_some(Batch(progress))
    }

    /// Learns the leader's next batch, of which a copy of the leader may have made a part. An empty batch, which no cut
    /// makes, says that the leader orders its threads no more.
    pub fn learn(&mut self, batch: Batch) {
        #[cfg(any(test, feature = "simulation"))]
        let goes_past_events = self.mistake == Some(Mistake::GoesPastEvents);
        // No further decisions will come: the known operations are made, and then the order is over.
        if batch.0.is_empty() {
            self.has_last = true;
            self.lead();
            #[cfg(any(test, feature = "simulation"))]
            if self.mistake == Some(Mistake::EndsAtOnce) {
                let _ = self.end();
            }
        }
        #[cfg(any(test, feature = "simulation"))]
        let keeps_counts = self.mistake == Some(Mistake::KeepsCounts);
        for Progress { thread, until, events, begins } in batch.0 {
            if self.gone.contains(&thread) {
                continue;
            }
            let of = self.thread(thread);
            of.told = of.told.max(until);
            // Both wait at the same place, whatever each has done before.
            let meets = of.begins.zip(begins).filter(|(own, leaders)| own.waits && leaders.waits);
            #[cfg(any(test, feature = "simulation"))]
            let meets = meets.filter(|_| !keeps_counts);
            if let Some((_, Point { made, .. })) = meets {
                of.counts.set_made(made);
            }
            if begins.is_some() && of.begins.take().is_some() {
                if of.has_left {
                    of.counts.set_made(of.told);
                }
                self.has_sleepers = true;
            }
            let of = self.thread(thread);
            let made = of.counts.made();
            of.events.extend(events.into_iter().filter(|event| event.number > made));
            of.allow();
            #[cfg(any(test, feature = "simulation"))]
            if goes_past_events {
                of.counts.allow(of.told);
            }
            self.forget(thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The leader's thread 2 took a lock after thread 1 had taken it twice. Here thread 1 ends after the first time.
    #[test]
    fn nobody_waits_for_a_thread_that_has_ended() {
        let mut order = Order::new(false);
        let after = vec![Operation { thread: 1, number: 2 }];
        let event = Event { number: 1, after, takes: true, result: 0, found: Vec::new() };
        let told = |thread, until, events| Progress { thread, until, events, begins: None };
        order.learn(Batch(vec![told(1, 2, Vec::new()), told(2, 1, vec![event])]));
        order.follow(1);
        assert_eq!((order.next(2), order.ended_before(2)), (Step::Wait, None));
        order.leave(1);
        assert_eq!((order.next(2), order.ended_before(2)), (Step::Wait, Some(1)));
    }

    /// A thread may still have to make an operation that the old leader reported.
    #[test]
    fn a_successor_waits_for_a_thread_behind_the_reports() {
        let mut order = Order::new(false);
        let told = |thread| Progress { thread, until: 1, events: Vec::new(), begins: None };
        order.learn(Batch(vec![told(1), told(2)]));
        order.follow(1);
        assert_eq!((order.next(1), order.awaited_by(1)), (Step::Wait, None));
        order.lead();
        assert_eq!((order.next(1), order.awaited_by(1)), (Step::Wait, Some(2)));
        order.follow(2);
        assert_eq!(order.next(1), Step::Free);
    }
}
